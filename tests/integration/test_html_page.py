"""The HTML report of a run in a real browser: what a reader sees, and filters.

What holds for every page is in `test_pages.py`."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Literal

import page_cases
import pytest
from browser import THEMES, Page, Theme, opened
from PIL import Image
from playwright.sync_api import Browser

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import Inventory, Unread
from buildmatrix.judge.model import Finding, Fix, TargetResult
from buildmatrix.reports import run_html
from buildmatrix.reports.run import assemble

EVIL = (
    "</style></script><script>document.title='owned'</script>"
    "<img src=http://127.0.0.1:9/pixel onerror=\"document.title='owned'\">"
)


def finding(severity, message: str, *, waived: str | None = None, number: int = 0) -> Finding:
    return Finding(
        rule="BM401",
        name="foreign-device-code",
        severity=severity,
        target="cpu-py312-server",
        backend="cpu",
        vendor="nvidia",
        message=message,
        distribution=EVIL,
        version="1",
        chain=("requirements.in:3", EVIL),
        fix=Fix("replace", EVIL, EVIL),
        waived=waived,
        fingerprint=f"{number:032x}",
    )


@pytest.fixture(scope="module")
def report_file(tmp_path_factory) -> Path:
    report = assemble(
        EVIL,
        "2026-11-20",
        targets=[
            TargetResult(
                "cpu-py312-server",
                "cpu",
                {"lock": "passed", "build": "failed", "scan": "undecided"},
                error=f"step failed\n  | {EVIL}",
                log=EVIL,
            )
        ],
        findings=[
            finding("error", EVIL, number=1),
            finding("warning", "a warning", number=2),
            finding("note", "a note", number=3),
            finding("error", "accepted by somebody", waived=EVIL, number=4),
        ],
        inventories=[Inventory(unread=(Unread(EVIL, EVIL),))],
    )
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(run_html.render(report), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page(browser: Browser, report_file: Path) -> Iterator[Page]:
    with opened(browser, report_file) as page:
        yield page


def visible(page: Page) -> list[str]:
    script = "[...document.querySelectorAll('article')].filter((a) => a.checkVisibility())"
    return page.run(f"{script}.map((a) => a.className)")


def click(page: Page, kind: str) -> None:
    page.run(f"document.querySelector('.filter input[value={kind}]').click()")


def test_a_reader_sees_targets_gates_and_all_findings(page: Page) -> None:
    text = page.run("document.body.innerText")
    for expected in ("cpu-py312-server", "undecided", "step failed", "a warning", "a note"):
        assert expected in text
    assert visible(page) == ["error", "warning", "note", "accepted"]


def test_the_filter_hides_what_is_not_selected(page: Page) -> None:
    click(page, "error")
    click(page, "note")
    assert visible(page) == ["warning", "accepted"]
    click(page, "warning")
    click(page, "accepted")
    assert visible(page) == []
    assert "Nothing of what is selected." in page.run("document.body.innerText")
    for kind in ("error", "warning", "note", "accepted"):
        click(page, kind)
    assert len(visible(page)) == 4


def test_hostile_names_are_text_and_nothing_else(page: Page) -> None:
    assert EVIL in page.run("document.body.innerText")
    assert page.run("document.title") == f"buildmatrix: {EVIL}"
    assert page.run("document.scripts.length") == 1
    assert page.run("document.images.length") == 0


def shown(page: Page) -> str:
    return page.run("document.querySelector('.filter .shown').textContent")


def test_filters_are_in_the_address_and_outlive_a_reload(
    browser: Browser, report_file: Path
) -> None:
    with opened(browser, report_file) as page:
        assert shown(page).startswith("4 of 4 findings")
        page.view.get_by_label("Search").fill("a WARNING")
        page.view.get_by_label("notes").uncheck()
        assert visible(page) == ["warning"]
        address = page.view.url
        page.view.reload()
        assert page.view.url == address
        assert visible(page) == ["warning"]
        assert page.view.get_by_label("Search").input_value() == "a WARNING"
        assert not page.view.get_by_label("notes").is_checked()
        page.view.get_by_role("button", name="Show all").click()
        page.wait("document.querySelectorAll('article[hidden]').length === 0")
        assert "WARNING" not in page.view.url
    # Somebody else opens what was sent.
    with opened(browser, report_file, fragment="#" + address.partition("#")[2]) as page:
        assert visible(page) == ["warning"]


def test_a_link_to_a_target_names_it_whatever_its_place(browser: Browser, tmp_path: Path) -> None:
    """The next run may have more targets, or others before it."""
    made, texts = page_cases.matrix(("py312",)), []
    for number, report in enumerate((made, replace(made, targets=made.targets[::-1]))):
        path = tmp_path / f"{number}.html"
        path.write_text(run_html.render(report), encoding="utf-8")
        with opened(browser, path, fragment="#target=rocm7.0-py312-server") as page:
            assert (
                page.view.get_by_role("combobox", name="Target").input_value()
                == "rocm7.0-py312-server"
            )
            texts.append(shown(page))
            assert "of 50 findings" in texts[-1] and not texts[-1].startswith("50 ")
            page.view.get_by_role("combobox", name="Target").select_option("cuda12.8-py312-server")
            assert page.view.url.endswith("#target=cuda12.8-py312-server")
            page.run("location.hash = '#target=gone-py39-server'")
            page.wait("document.querySelectorAll('article[hidden]').length === 0")
            assert page.view.get_by_role("combobox", name="Target").input_value() == ""
    assert texts[0] == texts[1]


def test_the_back_button_brings_back_what_was_shown(browser: Browser, report_file: Path) -> None:
    with opened(browser, report_file, fragment="#severity=note") as page:
        assert visible(page) == ["note"]
        page.run("location.hash = '#severity=warning,error'")
        page.wait("document.querySelectorAll('article[hidden]').length === 2")
        assert visible(page) == ["error", "warning"]
        page.view.go_back()
        page.wait("document.querySelectorAll('article[hidden]').length === 3")
        assert visible(page) == ["note"]


@pytest.mark.parametrize(
    "fragment", ["#q=%3Cimg%3E", "#severity=none&rule=<b>&target=99&x=y", "#="]
)
def test_an_address_that_means_nothing_does_no_harm(
    browser: Browser, report_file: Path, fragment: str
) -> None:
    with opened(browser, report_file, fragment=fragment) as page:
        assert page.complaints == []
        page.view.get_by_role("button", name="Show all").click()
        page.wait("document.querySelectorAll('article[hidden]').length === 0")


#: Color of letters in pictures, and the boxes of those of a treemap that are not cut off.
INK = (11, 15, 20)
BOXES = """() => {
  const map = document.querySelector('.treemap');
  const texts = [...map.querySelectorAll('text:not(.title)')];
  const origin = map.getBoundingClientRect();
  for (const text of texts) text.style.fill = 'transparent';
  return texts.filter((text) => text.checkVisibility()).map((text) => {
    const box = text.getBoundingClientRect(), cell = text.closest('svg').getBoundingClientRect();
    // The frame of the cell is drawn over its edges.
    const right = Math.min(box.right, cell.right - 4) - origin.left;
    const bottom = Math.min(box.bottom, cell.bottom - 4) - origin.top;
    return [box.left - origin.left, box.top - origin.top, right, bottom];
  });
}"""


def luminance(color: tuple[int, ...]) -> float:
    """Relative luminance, by WCAG 2.2."""
    parts = [part / 255 for part in color[:3]]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("medium", ["screen", "print"])
@pytest.mark.parametrize("theme", THEMES)
def test_letters_have_contrast_to_every_dot_behind_them(
    browser: Browser, tmp_path: Path, theme: Theme, medium: Literal["screen", "print"]
) -> None:
    """Also on stripes, which axe-core does not see: where it was 1.1."""
    path = tmp_path / "report.html"
    path.write_text(page_cases.page("run-small"), encoding="utf-8")
    with opened(browser, path, theme=theme) as page:
        page.view.emulate_media(media=medium)
        boxes = page.run(BOXES)
        taken = page.view.locator(".treemap").first.screenshot()
    picture = Image.open(BytesIO(taken)).convert("RGB")
    colors = {
        color
        for left, top, right, bottom in boxes
        for _, color in picture.crop((int(left), int(top), int(right), int(bottom))).getcolors(9999)
    }
    assert len(boxes) > 20
    least = min(map(luminance, colors))
    assert (least + 0.05) / (luminance(INK) + 0.05) >= 4.5
