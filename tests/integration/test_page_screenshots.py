"""Pages as they look, at three widths and in both themes, beside what a person has looked at.

After a wanted change: `UPDATE_GOLDEN=1 pytest tests/integration/test_page_screenshots.py`, and look
at every picture of `tests/pages/screenshots` that differs.
"""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path

import page_cases
import pytest
from browser import THEMES, Page, Theme, opened
from PIL import Image
from playwright.sync_api import Browser
from screenshots import difference, reference_of, save

UPDATE = bool(os.environ.get("UPDATE_GOLDEN"))
REFERENCES = Path(page_cases.__file__).parent / "screenshots"
PAGES = ("run-small", "run-twenty", "diff", "preflight", "fleet")
WIDTHS = (360, 800, 1280)
#: What is below is in other pictures, or the same over and over.
MOST_HEIGHT = 2400
#: What the README shows: the first screens of a report.
PICTURE, PICTURE_HEIGHT = Path(__file__).parents[2] / "docs/pictures/report.png", 1640
REMEDY = "after a wanted change run this again with UPDATE_GOLDEN=1, and look at the pictures"


def shot(page: Page) -> Image.Image:
    width = page.run("innerWidth")
    height = min(page.run("document.documentElement.scrollHeight"), MOST_HEIGHT)
    page.view.set_viewport_size({"width": width, "height": height})
    return reference_of(page.view.screenshot(animations="disabled"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("screenshots")


@pytest.mark.parametrize(
    "theme",
    # Nothing but colors differs between themes; test_pages.py checks the contrast of both.
    ["light", pytest.param("dark", marks=pytest.mark.weekly)],
)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_looks_as_it_did(browser: Browser, folder: Path, name: str, theme: Theme) -> None:
    path = folder / f"{name}.html"
    path.write_text(page_cases.page(name), encoding="utf-8")
    differing = []
    with opened(browser, path, theme=theme) as page:
        for width in WIDTHS:
            page.view.set_viewport_size({"width": width, "height": 800})
            page.view.reload()
            taken = shot(page)
            reference = REFERENCES / f"{name}-{width}-{theme}.png"
            if UPDATE:
                save(taken, reference)
                continue
            if not reference.is_file():
                differing.append(f"{reference} is missing")
                continue
            found = difference(Image.open(reference), taken)
            if found.is_too_large:
                save(taken, folder / reference.name)
                differing.append(
                    f"{folder / reference.name} differs from {reference}: {found.share:.1%} of the "
                    f"dots, {found.height:.1%} of the height"
                )
    assert not differing, "\n".join([*differing, REMEDY])


def test_the_picture_of_the_readme_is_of_the_page(browser: Browser, folder: Path) -> None:
    path = folder / "picture.html"
    path.write_text(page_cases.page("run-small"), encoding="utf-8")
    with opened(browser, path, width=1280) as page:
        page.view.set_viewport_size({"width": 1280, "height": PICTURE_HEIGHT})
        taken = Image.open(BytesIO(page.view.screenshot(animations="disabled"))).convert("RGB")
    if UPDATE:
        save(taken.quantize(128, dither=Image.Dither.NONE), PICTURE)
    found = difference(Image.open(PICTURE), taken)
    assert not found.is_too_large, f"{found}; {REMEDY}"


def test_every_reference_is_of_a_page_and_all_together_are_small() -> None:
    names = {f"{n}-{width}-{theme}.png" for n in PAGES for width in WIDTHS for theme in THEMES}
    assert {path.name for path in REFERENCES.iterdir()} == names
    assert sum(path.stat().st_size for path in REFERENCES.iterdir()) < 1_500_000


@pytest.mark.parametrize(
    "damage",
    [
        # A card is gone; the columns are; the letters have another size; the colors are gone.
        "document.querySelector('.card').remove()",
        "document.querySelectorAll('.card').forEach((card) => { card.style.width = '70%'; })",
        "document.documentElement.style.fontSize = '17px'",
        "document.querySelectorAll('.part').forEach((part) => { part.style.fill = '#888'; })",
        "document.documentElement.dataset.theme = 'dark'",
        "document.styleSheets[0].disabled = true",
    ],
)
def test_what_breaks_a_page_is_seen(browser: Browser, folder: Path, damage: str) -> None:
    path = folder / "run-small.html"
    path.write_text(page_cases.page("run-small"), encoding="utf-8")
    with opened(browser, path, width=1280) as page:
        page.run(f"() => {{ {damage}; }}")
        found = difference(Image.open(REFERENCES / "run-small-1280-light.png"), shot(page))
    assert found.is_too_large, found


def test_letters_that_are_drawn_otherwise_are_no_difference(browser: Browser, folder: Path) -> None:
    path = folder / "run-small.html"
    path.write_text(page_cases.page("run-small"), encoding="utf-8")
    with opened(browser, path, width=1280) as page:
        page.run("document.body.style.webkitFontSmoothing = 'none'")
        page.run("document.body.style.filter = 'blur(0.5px)'")
        page.run("document.body.style.transform = 'translate(0.4px, 0.4px)'")
        found = difference(Image.open(REFERENCES / "run-small-1280-light.png"), shot(page))
    assert not found.is_too_large, found
