"""The page of a fleet in a real browser: every image is found, and what it says is sent on.

What holds for every page is in `test_pages.py`. Nothing in here measures time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import fleet_cases
import page_cases
import pytest
from browser import Page, opened
from page_cases import ENDLESS, EVIL
from playwright.sync_api import Browser

Open = Callable[..., AbstractContextManager[Page]]

_TITLES = "[...document.querySelectorAll('table.results button')].map((one) => one.textContent)"


@pytest.fixture(scope="module")
def open_page(browser: Browser, tmp_path_factory) -> Open:
    folder: Path = tmp_path_factory.mktemp("fleet")

    @contextmanager
    def open_named(name: str, **options) -> Iterator[Page]:
        path = folder / f"{name}.html"
        if not path.exists():
            path.write_text(page_cases.page(name), encoding="utf-8")
        with opened(browser, path, **options) as page:
            yield page

    return open_named


def said(page: Page) -> str:
    return page.run("document.querySelector('#results .shown').textContent")


def test_ten_thousand_images_are_below_five_megabytes_and_few_elements(open_page: Open) -> None:
    assert len(page_cases.page("fleet-many").encode()) < 5_000_000
    report = fleet_cases.fleet(10_000)
    worst = sorted(report.results, key=lambda result: -result.unusable_download)[0]
    with open_page("fleet-many") as page:
        assert page.complaints == []
        assert page.run("document.querySelectorAll('*').length") < 6000
        assert said(page).startswith("10000 of 10000 fit")
        assert len(page.run(_TITLES)) == 50
        # Every image is found by its digest, its name and its owner.
        for result in (report.results[0], report.results[7777], worst):
            page.view.locator("input[name=q]").fill(f"{result.digest} {result.owner}")
            assert page.run(_TITLES) == [result.title]
        page.view.locator("input[name=q]").fill("")
        page.view.locator("select[name=state]").select_option("undecided")
        undecided = sum(result.state == "undecided" for result in report.results)
        assert said(page).startswith(f"{undecided} of 10000 fit")
        page.view.get_by_role("button", name="Next").click()
        assert page.view.url.endswith("#state=undecided&page=2")
        page.view.get_by_role("button", name="Show all").click()
        page.wait("document.querySelector('#results .shown').textContent.startsWith('10000 of')")


def test_filters_fit_what_the_report_says_and_are_in_the_address(open_page: Open) -> None:
    results = page_cases.PAGES["fleet"].document().results
    cases = {
        "backend=cpu": lambda item: item.backend == "cpu",
        "owner=search&state=failed": lambda item: item.owner == "search" and item.state == "failed",
        "vendor=AMD": lambda item: any(held.vendor == "amd" for held in item.vendors),
        "node=b200&fit=refused": lambda item: any(
            fit.node == "b200" and fit.state == "refused" for fit in item.fits
        ),
        "node=b200&fit=unknown": lambda item: all(fit.node != "b200" for fit in item.fits),
        "q=BM402 STACK": lambda item: (
            {"BM402", "BM601"} <= {finding.rule for finding in item.findings}
        ),
        "q=search/": lambda item: "/search/" in item.repository,
    }
    for fragment, fits in cases.items():
        with open_page("fleet", fragment=f"#{fragment}") as page:
            expected = {item.title for item in results if fits(item)}
            assert set(page.run(_TITLES)) == expected, fragment
            assert page.complaints == []


def test_orders_put_the_most_first(open_page: Open) -> None:
    results = page_cases.PAGES["fleet"].document().results
    weights = {
        "": lambda item: item.unusable_download,
        "running": lambda item: item.unusable_download * item.containers,
        "pull": lambda item: item.download,
        "containers": lambda item: item.containers,
    }
    with open_page("fleet") as page:
        for order, weight in weights.items():
            page.view.locator("select[name=sort]").select_option(order)
            expected = [item.title for item in sorted(results, key=lambda item: -weight(item))]
            assert page.run(_TITLES) == expected
        page.view.locator("select[name=sort]").select_option("name")
        assert page.run(_TITLES) == [item.title for item in results]


def test_what_is_said_of_many_leads_to_them_and_a_name_unfolds_what_is_known(
    open_page: Open,
) -> None:
    report = page_cases.PAGES["fleet"].document()
    with open_page("fleet") as page:
        page.view.locator("#causes a").first.click()
        page.wait("location.hash === '#cause=0'")
        page.wait("document.activeElement.id === 'results-title'")
        shown = page.run(_TITLES)
        assert 0 < len(shown) < len(report.results)
        first = next(item for item in report.results if item.title == shown[0])
        button = page.view.locator("table.results button").first
        button.focus()
        page.view.keyboard.press("Enter")
        assert button.get_attribute("aria-expanded") == "true"
        text = page.view.locator("tr.more").inner_text()
        assert first.digest in text
        for finding in first.findings:
            assert finding.message in text
        for fit in first.fits:
            assert f"{fit.node}: {fit.state}" in text
        assert page.violations() == []
        page.view.keyboard.press("Enter")
        assert page.view.locator("tr.more").count() == 0
        # The one before that was looked at comes back.
        page.view.go_back()
        page.wait(
            f"document.querySelectorAll('table.results button').length === {len(report.results)}"
        )


@pytest.mark.parametrize(
    "fragment", ["#q=%3Cimg%3E", "#owner=<b>&vendor=9&cause=x&node=__proto__&page=-7&sort=?", "#="]
)
def test_an_address_that_means_nothing_does_no_harm(open_page: Open, fragment: str) -> None:
    with open_page("fleet", fragment=fragment) as page:
        assert page.complaints == []
        page.view.get_by_role("button", name="Show all").click()
        page.wait("document.querySelectorAll('table.results button').length > 30")


def test_hostile_rows_are_text_when_they_are_drawn(open_page: Open) -> None:
    with open_page("fleet-hostile") as page:
        titles = page.run(_TITLES)
        assert any(EVIL in title for title in titles) and any(ENDLESS in title for title in titles)
        page.run("document.querySelectorAll('table.results button').forEach((one) => one.click())")
        assert EVIL in page.run("document.querySelector('table.results').textContent")
        assert page.run("document.images.length") == 0
        assert page.run("document.scripts.length") == 1
        assert page.run("document.querySelectorAll('[onerror]').length") == 0
        page.view.set_viewport_size({"width": 380, "height": 800})
        assert page.run("document.documentElement.scrollWidth") <= 380
        assert page.violations() == []
        assert page.complaints == []
        # Each of them is found by its owner, whatever that is.
        for option in page.run(
            "[...document.querySelectorAll('select[name=owner] option')].map((one) => one.value)"
        )[1:]:
            page.view.locator("select[name=owner]").select_option(option)
            assert said(page).startswith("1 of ")
