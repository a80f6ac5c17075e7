"""Every HTML page in a real browser: whoever reads it, on whatever, with whatever keys.

`tests/pages/page_cases.py` makes the pages. Nothing in here measures time: `bench/html.py` does,
and bounds of bytes and elements stand in for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import page_cases
import pytest
from browser import Page, opened
from page_cases import ENDLESS, EVIL, PAGES
from playwright.sync_api import Browser

from buildmatrix.reports import formats
from buildmatrix.reports.formats import names

#: Pages of 10,000 findings or images are opened once, and only by what they are there for.
SMALL = [name for name in PAGES if not name.endswith("-many")]
#: A page of twenty targets has nothing that one of four has not, but its width; one with hostile
#: names, nothing but these.
EACH_KIND = [
    pytest.param(name, marks=[pytest.mark.weekly] if name.endswith("-hostile") else [])
    for name in SMALL
    if name != "run-twenty"
]
MEGABYTE = 1_000_000

_UNFOLD = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"

Open = Callable[..., AbstractContextManager[Page]]


@pytest.fixture(scope="module")
def open_page(browser: Browser, tmp_path_factory) -> Open:
    """Open a page of `PAGES` by its name."""
    folder = tmp_path_factory.mktemp("pages")

    @contextmanager
    def open_named(name: str, **options) -> Iterator[Page]:
        path = folder / f"{name}.html"
        if not path.exists():
            path.write_text(page_cases.page(name), encoding="utf-8")
        with opened(browser, path, **options) as page:
            yield page

    return open_named


def test_every_kind_of_page_is_opened_in_here() -> None:
    with_page = {id(table) for table in formats.ALL if "html" in names(table)}
    assert with_page
    assert {id(case.formats) for case in PAGES.values()} == with_page


@pytest.mark.parametrize("name", EACH_KIND)
def test_a_page_is_accessible_asks_nobody_and_complains_of_nothing(
    open_page: Open, name: str
) -> None:
    with open_page(name) as page:
        page.run(_UNFOLD)
        assert page.violations() == []
        page.view.emulate_media(color_scheme="dark")
        # Nothing but colors differs between themes.
        assert page.violations("color-contrast") == []
        assert [url for url in page.requests if not url.startswith("file:")] == []
        assert len(page.requests) == 1
        assert page.complaints == []


def test_axe_finds_what_is_wrong_in_a_page_with_such_a_policy(open_page: Open) -> None:
    with open_page("run-clean") as page:
        page.run(
            """() => {
              const label = document.createElement('p');
              label.textContent = 'nobody can read this';
              label.style.color = '#bbb';
              label.style.background = '#fff';
              document.querySelector('main').append(label, document.createElement('select'));
            }"""
        )
        rules = {violation.partition(":")[0] for violation in page.violations()}
    assert rules == {"color-contrast", "select-name"}


@pytest.mark.parametrize("name", SMALL)
def test_no_page_is_wider_than_its_window(open_page: Open, name: str) -> None:
    """WCAG 2.2, 1.4.10 and 1.4.4: pictures and tables may be scrolled in themselves."""
    with open_page(name) as page:
        page.run(_UNFOLD)
        # A phone, and a window of 1280 pixels at 200 %.
        for width in (320, 640):
            page.view.set_viewport_size({"width": width, "height": 800})
            assert page.run(_STICKING_OUT) == [], width
            assert page.run("document.documentElement.scrollWidth") <= width


_STICKING_OUT = """(() => {
  const width = document.documentElement.clientWidth;
  return [...document.querySelectorAll('main *, header *, footer *')].filter((element) => {
    const box = element.getBoundingClientRect();
    if (!element.checkVisibility() || box.width < 2 || box.right <= width + 1) return false;
    for (let up = element.parentElement; up; up = up.parentElement) {
      const flow = getComputedStyle(up).overflowX;
      if (flow !== 'visible' && up !== document.body && up !== document.documentElement) {
        return false;
      }
    }
    return true;
  }).map((element) => element.outerHTML.slice(0, 120));
})()"""


@pytest.mark.parametrize("name", EACH_KIND)
def test_without_scripts_everything_is_there_to_read(open_page: Open, name: str) -> None:
    with open_page(name) as page:
        with_scripts = page.run(_TEXTS)
    with open_page(name, scripts=False) as page:
        assert page.run(_TEXTS) == with_scripts
        # A control that does nothing is not shown.
        assert page.run(_CONTROLS) == []
        # Nothing of the content is hidden but by `details`, which open without scripts.
        page.run(_UNFOLD)
        assert page.run(_UNSEEN) == []
        for text in _messages(name):
            assert _squeezed(text) in _squeezed(page.run("document.body.innerText")), text


#: Texts of the content, without those of controls that scripts bring.
_TEXTS = """[...document.querySelectorAll('main p, main td, main li, main th, main pre')]
  .filter((element) => !element.closest('.controls'))
  .map((element) => element.textContent.trim())"""
_CONTROLS = """[...document.querySelectorAll('button, input, select')]
  .filter((element) => element.checkVisibility()).map((element) => element.outerHTML)"""


#: Text that nobody sees, but for that of controls and of what they say.
_UNSEEN = """[...document.querySelectorAll('main *')].filter((element) =>
    !element.checkVisibility() && element.textContent.trim()
    && !element.closest('.controls[hidden], .none[hidden]') && !element.closest('svg'))
  .map((element) => element.outerHTML.slice(0, 120))"""


def _messages(name: str) -> list[str]:
    """What the first findings say; the rest of a group is named there, and not repeated."""
    document = PAGES[name].document()
    findings = getattr(document, "findings", ())
    return [finding.message for finding in getattr(findings, "new", findings)[:1]]


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


#: Focus as somebody who uses the keyboard sees it: a line around the element, or in it.
_FOCUS = """(() => {
  const element = document.activeElement;
  if (!element || element === document.body) return null;
  const seen = [element, ...element.querySelectorAll('*')].some((part) => {
    const style = getComputedStyle(part);
    return (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1)
      || style.boxShadow !== 'none'
      || (part instanceof SVGElement && parseFloat(style.strokeWidth) >= 2
        && style.stroke !== 'none');
  });
  element.dataset.walked = '';
  const box = element.getBoundingClientRect();
  return {seen: seen && box.width > 0 && box.bottom > 0 && box.top < innerHeight,
    html: element.outerHTML.slice(0, 150)};
})()"""
_REACHABLE = """[...document.querySelectorAll(
    'a[href], button, input, select, textarea, summary, [tabindex]')]
  .filter((element) => element.tabIndex >= 0 && !element.disabled && element.checkVisibility()
    && !(element.type === 'radio' && !element.checked))"""


def walked(page: Page) -> list[str]:
    """What is wrong with a walk through the page by the Tab key."""
    controls, wrong = page.run(f"{_REACHABLE}.length"), []
    for _ in range(controls + 3):
        page.view.keyboard.press("Tab")
        focus = page.run(_FOCUS)
        if focus is None:
            missed = f"{_REACHABLE}.filter((one) => !('walked' in one.dataset))"
            return wrong + [f"missed: {html}" for html in page.run(f"{missed}.map({_SOURCE})")]
        if not focus["seen"]:
            wrong.append(f"unseen: {focus['html']}")
    return [*wrong, "the focus does not leave the page"]


_SOURCE = "(element) => element.outerHTML.slice(0, 150)"


@pytest.mark.parametrize("name", EACH_KIND)
def test_every_control_is_reached_by_keys_and_shows_that_it_is(open_page: Open, name: str) -> None:
    with open_page(name) as page:
        assert walked(page) == []


def test_the_walk_sees_what_is_wrong(open_page: Open) -> None:
    with open_page("diff") as page:
        page.run("document.getElementById('theme').style.outline = 'none'")
        (wrong,) = walked(page)
        assert wrong.startswith("unseen: ") and 'id="theme"' in wrong
    with open_page("diff") as page:
        page.run(
            """() => document.getElementById('theme').addEventListener('keydown', (event) =>
              event.preventDefault())"""
        )
        assert "the focus does not leave the page" in walked(page)


def test_keys_open_what_is_folded(open_page: Open) -> None:
    with open_page("run-small") as page:
        summary = page.view.locator("summary").first
        summary.focus()
        before = summary.evaluate("(one) => one.parentElement.open")
        page.view.keyboard.press("Enter")
        assert summary.evaluate("(one) => one.parentElement.open") != before


def test_the_first_stop_leads_past_the_head_of_the_page(open_page: Open) -> None:
    with open_page("run-small") as page:
        page.view.keyboard.press("Tab")
        page.view.keyboard.press("Enter")
        assert page.run("document.activeElement.id") == "main"


@pytest.mark.parametrize("name", EACH_KIND)
def test_on_paper_everything_is_open_and_dark_on_white(open_page: Open, name: str) -> None:
    with open_page(name, theme="dark", width=794) as page:
        page.view.emulate_media(media="print", color_scheme="light")
        assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.run(_CONTROLS) == []
        assert page.run(_FOLDED) == []
        assert page.run("document.documentElement.scrollWidth") <= 794
        assert page.view.pdf(format="A4", print_background=True).startswith(b"%PDF")


#: What stands in `details` and takes no room: it would be missing on paper.
_FOLDED = """[...document.querySelectorAll('details:not([open]) > :not(summary)')]
  .filter((element) => element.getBoundingClientRect().height === 0)
  .map((element) => element.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize(
    "name",
    ["run-hostile", "diff-hostile", "drift", "preflight-hostile", "fleet-hostile"],
)
def test_hostile_names_are_text_and_nothing_else(open_page: Open, name: str) -> None:
    with open_page(name) as page:
        text = page.run("document.body.textContent")
        assert EVIL in text and ENDLESS in text
        assert page.run("document.title").startswith("buildmatrix: ")
        assert page.run("document.scripts.length") == 1
        assert page.run("document.images.length") == 0
        assert page.run("document.querySelectorAll('[onerror]').length") == 0


def test_scripts_and_styles_that_would_get_in_do_nothing(open_page: Open) -> None:
    """The second line of defense: what is not escaped is stopped by the policy."""
    with open_page("run-small") as page:
        title, color = page.run("[document.title, getComputedStyle(document.body).color]")
        page.run(
            """() => {
              for (const [name, text] of [
                ['script', "document.title = 'owned'"], ['style', 'body { color: red }']]) {
                const element = document.createElement(name);
                element.textContent = text;
                document.body.append(element);
              }
              document.body.insertAdjacentHTML('beforeend',
                '<img src="http://127.0.0.1:9/x" onerror="document.title = 0">');
            }"""
        )
        # What the page logs arrives before the answer to a later question.
        page.run("new Promise((done) => setTimeout(done))")
        after = page.run("[document.title, getComputedStyle(document.body).color]")
        assert after == [title, color]
        assert len([text for text in page.complaints if "Content Security Policy" in text]) >= 3


_LAID_OUT_ROWS = """[...document.querySelectorAll('tr')]
  .filter((row) => row.checkVisibility({contentVisibilityAuto: true})).length"""


def test_ten_thousand_findings_are_one_page_of_a_bounded_size(open_page: Open) -> None:
    """Time is measured by `bench/html.py`; it follows these numbers, which need no luck."""
    with open_page("run-many") as page:
        # To lay out what nobody looks at yet is most of the time.
        assert page.run("document.querySelectorAll('*').length") < 250_000
        # A table of as many rows is folded: then it is not laid out.
        assert page.run("document.querySelectorAll('tr').length") > 10_000
        assert page.run(_LAID_OUT_ROWS) < 1000
        assert page.complaints == []
        text = page.run("document.body.textContent")
        numbers = {int(number) for number in re.findall(r"finding number (\d+):", text)}
        assert numbers == set(range(10_000))
    assert len(page_cases.page("run-many").encode()) < 12 * MEGABYTE


def test_twenty_targets_are_below_one_and_a_half_megabytes() -> None:
    assert len(page_cases.page("run-twenty").encode()) < 1.5 * MEGABYTE
