"""A comparison and drift as HTML pages; tests/integration/test_pages.py opens them in a browser."""

from __future__ import annotations

import re
from html import unescape

import pytest
from page_cases import EVIL, comparison, drift, hostile_comparison

from buildmatrix.base.data import replace
from buildmatrix.reports import diff_html, formats
from buildmatrix.reports.diff import ComparedSide, Comparison, FindingChanges, VendorChange
from buildmatrix.reports.diff_sections import sections
from buildmatrix.reports.formats import Destination, find_format

NOTHING = ComparedSide("a", "image", "", ("cpu",), None, None, None, 0)


def bare(before: int | None, after: int | None, **more: object) -> Comparison:
    return replace(
        Comparison(replace(NOTHING, size=before), replace(NOTHING, source="b", size=after)), **more
    )


def cells(page: str) -> list[str]:
    """Texts of the cells of tables, without their tags."""
    found = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", page, re.DOTALL)
    return [unescape(re.sub(r"<[^>]+>", "", text)).strip() for text in found]


def test_every_difference_is_in_the_page() -> None:
    page = diff_html.render(comparison())
    texts = cells(page)
    for section in sections(comparison(), every=True):
        for row in section.rows if section.header else ():
            subject, *others = row.cells
            assert f"{row.sign} {subject}" in texts, row
            assert all(text.replace(" -> ", " → ") in texts for text in others), row
    for finding in comparison().findings.new + comparison().findings.gone:
        assert finding.message in page
    for text in ("etc/shadow: no permission", "labels are not compared", "3 findings are new"):
        assert text in page


def test_bars_of_both_sides_have_one_scale_and_all_bytes() -> None:
    vendors = (VendorChange("nvidia", "cuda", 20, 0), VendorChange("amd", "rocm", 0, 150))
    before, after = diff_html._side_bars(bare(100, 200, vendors=vendors))
    assert [(part.style, part.x, part.width) for part in before.segments] == [
        ("none", 0, 40),
        ("nvidia", 40, 10),
    ]
    assert [(part.style, part.x, part.width) for part in after.segments] == [
        ("none", 0, 25),
        ("amd", 25, 75),
    ]
    assert before.text == "no vendor: 80 B; NVIDIA: 20 B"


@pytest.mark.parametrize(("before", "after"), [(None, 5), (5, None), (0, 0)])
def test_there_is_no_bar_of_what_is_not_known(before: int | None, after: int | None) -> None:
    assert diff_html._side_bars(bare(before, after, vendors=())) == ()
    assert diff_html._side_bars(bare(5, 5)) == ()


def test_what_grew_is_right_of_the_middle_and_what_shrank_left_of_it() -> None:
    grown, shrunk = diff_html._growth([("small", 0), ("less", -50), ("more", 100)])
    assert (grown.name, grown.style, grown.x, grown.width, grown.text) == (
        "more", "grown", 50, 50, "+100 B",
    )  # fmt: skip
    assert (shrunk.name, shrunk.style, shrunk.x, shrunk.width) == ("less", "shrunk", 25, 25)


def test_a_picture_shows_what_weighs_most() -> None:
    bars = diff_html._growth([(f"d{number}", number) for number in range(100)])
    assert [bar.name for bar in bars] == [f"d{n}" for n in range(99, 99 - diff_html.MOST_BARS, -1)]


@pytest.mark.parametrize(
    ("compared", "state", "headline"),
    [
        (bare(1, 1), "passed", "Findings were not compared"),
        (bare(1, 1, findings=FindingChanges(3)), "passed", "No finding is new"),
        (
            bare(1, 1, findings=FindingChanges(new=comparison().findings.new[:1])),
            "failed",
            "1 finding is new",
        ),
        (
            bare(1, 1, findings=FindingChanges(new=comparison().findings.gone)),
            "undecided",
            "1 finding is new",
        ),
        (
            Comparison(NOTHING, replace(NOTHING, is_undecided=True), findings=FindingChanges(3)),
            "undecided",
            "No finding is new",
        ),
    ],
)
def test_the_first_line_says_what_is_new(compared: Comparison, state: str, headline: str) -> None:
    page = diff_html.render(compared)
    assert f'<section class="verdict {state}"' in page
    assert f"<strong>{headline}</strong>" in page


def test_a_secret_in_an_address_is_in_no_page() -> None:
    source = "docker:https://user:hunter2@registry.example.com/demo?token=hunter2"
    compared = bare(1, 1)
    page = diff_html.render(replace(compared, before=replace(compared.before, source=source)))
    assert "registry.example.com" in page and "hunter2" not in page


def test_names_are_no_markup() -> None:
    to = Destination()
    for table, document in ((formats.DIFF, hostile_comparison()), (formats.DRIFT, drift())):
        page = find_format(table, "html").render(document, to)
        assert EVIL not in page and "<img" not in page
        assert page.count("<script>") == 1
        assert find_format(table, "html").render(document, to) == page


def test_drift_shows_versions_with_their_targets_and_reasons() -> None:
    page = diff_html.render_drift(drift())
    texts = cells(page)
    assert "1.26.4" in texts and "cpu-py312-server" in texts
    assert "2 distributions without a reason" in page
    assert "each backend has an index of its own" in page
