"""The HTML report in a real browser: what a reader sees, and what hostile names cannot do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import Page, opened
from playwright.sync_api import Browser

from buildmatrix.inventory.model import Inventory, Unread
from buildmatrix.reports.run import html
from buildmatrix.reports.run.model import assemble
from buildmatrix.rules.model import Finding, Fix, TargetResult

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
def page(browser: Browser, tmp_path_factory) -> Iterator[Page]:
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
    path.write_text(html.render(report), encoding="utf-8")
    with opened(browser, path) as page:
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


def test_the_page_asks_nobody_for_anything(page: Page) -> None:
    assert [url for url in page.requests if not url.startswith("file:")] == []
    assert len(page.requests) == 1
    assert page.complaints == []


def test_scripts_that_would_get_in_do_not_run(page: Page) -> None:
    """The second line of defence: what is not escaped is stopped by the policy."""
    title = page.run("document.title")
    page.run(
        "(() => { const s = document.createElement('script');"
        " s.textContent = \"document.title = 'owned'\"; document.body.append(s); })()"
    )
    page.run("document.body.insertAdjacentHTML('beforeend', '<img src=http://127.0.0.1:9/x>')")
    assert page.run("document.title") == title
    assert any("Content Security Policy" in text for text in page.complaints)
