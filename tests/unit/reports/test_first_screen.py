"""The first screen of the page: the verdict, bars of bytes, and what to do first."""

from __future__ import annotations

import pytest
from test_html import Page
from test_report_formats import finding, report, result

from buildmatrix.base.data import replace
from buildmatrix.judge.composition import Composition, DistributionBytes, VendorBytes
from buildmatrix.judge.model import AuditTotals, Fix, TargetResult, Trial
from buildmatrix.reports import run_html
from buildmatrix.reports.charts import bars, treemap
from buildmatrix.reports.groups import causes, group_findings


def part(name: str, *vendors: VendorBytes) -> DistributionBytes:
    return DistributionBytes(
        name,
        "1.0",
        "requirements.in:1",
        name,
        sum(share.size for share in vendors),
        sum(share.wasted for share in vendors),
        vendors,
    )


def target(id: str, *parts: DistributionBytes) -> TargetResult:
    return replace(result(id), composition=Composition(parts))


TORCH = part("torch", VendorBytes("nvidia", 600, 600), VendorBytes("", 400))
CUDNN = part("nvidia-cudnn-cu12", VendorBytes("nvidia", 1000, 1000))


def test_bars_are_in_proportion_to_the_largest_target_and_their_parts_add_up() -> None:
    drawn = bars((target("a", TORCH, CUDNN), target("b", TORCH)))
    assert (drawn["a"].size, drawn["a"].wasted, drawn["a"].percent) == (2000, 1600, 80)
    assert (drawn["b"].size, drawn["b"].wasted, drawn["b"].percent) == (1000, 600, 60)
    for bar, length in ((drawn["a"], 100), (drawn["b"], 50)):
        assert sum(segment.width for segment in bar.segments) == pytest.approx(length)
        assert sum(segment.size for segment in bar.segments) == bar.size
        assert sum(part.size for part in bar.segments if part.is_wasted) == bar.wasted
    assert drawn["b"].text == "no vendor: 400 B; NVIDIA, wasted: 600 B"


def test_reports_of_earlier_versions_have_bars_without_vendors() -> None:
    audited = replace(result("a"), size=None, audit=AuditTotals(10, 40, 5, 30))
    drawn = bars((audited, replace(result("b"), size=20), replace(result("c"), size=None)))
    assert drawn["a"].text == "no vendor: 10 B; no vendor, wasted: 30 B"
    assert drawn["b"].segments[0].width == 50
    assert "c" not in drawn


def test_numbers_that_no_report_has_do_no_harm() -> None:
    odd = part("x", VendorBytes("<i>", -5, 7), VendorBytes("nvidia", 3, 2**70))
    drawn = bars((target("a", odd),))["a"]
    assert (drawn.size, drawn.wasted) == (3, 3)
    assert "<i>" not in run_html.render(report(targets=(target("a", odd),)))


def test_findings_with_one_cure_are_one_cause_with_the_bytes_that_they_waste() -> None:
    take_cpu = Fix("index", 'write `torch = "cpu"` under [backend.cpu]')
    twin = Fix("replace", "ask for xgboost-cpu instead of xgboost")
    made = report(
        finding(distribution="xgboost", fix=twin, fingerprint="1" * 32),
        finding("BM104", "default-build", distribution="torch", fix=take_cpu, fingerprint="2" * 32),
        finding(
            "BM101",
            "foreign-dependency",
            distribution="nvidia-cudnn-cu12",
            fix=take_cpu,
            fingerprint="3" * 32,
            chain=("requirements.in:1", "torch 1.0", "nvidia-cudnn-cu12 3.4.1"),
        ),
        finding(waived="ours", distribution="other", fingerprint="4" * 32),
        finding(severity="note", distribution="another", fingerprint="5" * 32),
        targets=(target("cpu-py311-server", TORCH, CUDNN, part("xgboost", VendorBytes("", 9))),),
    )
    first, second = causes(made, group_findings(made.findings, ["cpu-py311-server"]))
    assert (first.findings, first.wasted) == (2, 1600)
    assert first.cures[0].text == 'fix: write `torch = "cpu"` under [backend.cpu]'
    assert (second.findings, second.wasted, second.title) == (1, 0, "xgboost 3.4.1")
    page = Page(run_html.render(made)).text
    assert "The 2 causes behind 3 of 4 open findings, by wasted bytes." in page


def test_the_verdict_is_that_of_the_targets_and_of_the_findings() -> None:
    def headline(*results: TargetResult, **severities: str) -> str:
        page = run_html.render(report(*map(finding, severities), targets=results))
        return page.partition("<strong>")[2].partition("</strong>")[0]

    good, bad, open_ = result("a"), result("b", scan="failed"), result("c", scan="undecided")
    assert headline(good) == "Passed"
    assert headline(good, result("b")) == "Passed: all 2 targets"
    assert headline(good, bad) == "Failed: 1 of 2 targets"
    assert headline(bad, replace(bad, id="c")) == "Failed: all 2 targets"
    assert headline(good, open_) == "Undecided: 1 of 2 targets"
    assert headline(bad, BM401="error") == "Failed"
    # A gate that did not run is never part of "Passed".
    unsmoked, scanned = result("a", smoke="not-run"), result("d", lock="not-run", build="not-run")
    assert headline(unsmoked) == "Lock, build and scan passed; smoke did not run"
    assert headline(unsmoked, result("b")) == (
        "Lock, build and scan passed; smoke did not run on 1 of 2 targets"
    )
    assert headline(unsmoked, scanned) == (
        "Scan passed; lock, build and smoke did not run on 1 of 2 targets"
    )
    # With `--fail-on never`.
    assert headline(good, BM401="error") == "No gate failed, 1 open error"
    assert headline(good, open_, BM401="error") == "Undecided: 1 of 2 targets, 1 open error"


def test_a_gate_that_ran_nowhere_is_named_and_has_no_column() -> None:
    page = Page(run_html.render(report(targets=(result("a", smoke="not-run"),)))).text
    assert "Did not run on any target: smoke." in page


@pytest.mark.parametrize(
    ("works", "text"),
    [
        ((True, True), "2 steps cure 2 of 3 findings"),
        ((None, None), "2 untried steps may cure 2 of 3 findings"),
        ((True, None), "1 step cures 1 of 3 findings; 1 untried step may cure 1"),
        ((False, True), "1 step cures 1 of 3 findings"),
        ((False, False), ""),
    ],
)
def test_only_fixes_that_were_tried_are_said_to_cure(
    works: tuple[bool | None, ...], text: str
) -> None:
    fixes = [
        Fix("pin", f"take {number}", tried=None if done is None else Trial(done, "tried"))
        for number, done in enumerate(works)
    ]
    made = report(
        *(finding(fix=fix, fingerprint=f"{n}" * 32) for n, fix in enumerate(fixes)),
        finding(fix=None, fingerprint="9" * 32),
    )
    page = Page(run_html.render(made)).text
    assert (f"{text}." if text else "open error") in page
    assert ("cure" in page.partition("What to do first")[0]) is bool(text)


def drawn(*parts: DistributionBytes) -> Page:
    return Page(run_html.render(report(targets=(target("a", *parts),))))


def test_bytes_of_one_color_are_listed_and_not_drawn_as_areas() -> None:
    plain = drawn(*(part(f"p{n}", VendorBytes("", 100 - n)) for n in range(12)))
    tables = [attributes.get("class") for tag, attributes in plain.elements if tag == "table"]
    pictures = [attributes.get("class") for tag, attributes in plain.elements if tag == "svg"]
    assert "largest" in tables and "treemap" not in pictures
    assert pictures.count("bar none") == 10
    colored = drawn(TORCH, part("p", VendorBytes("", 5)))
    pictures = [attributes.get("class") for tag, attributes in colored.elements if tag == "svg"]
    assert "treemap" in pictures


def test_titles_of_areas_fit_or_are_left_out() -> None:
    """Each is inside of its area by the width that letters are given."""
    lines = [
        replace(part(name, VendorBytes("nvidia", bytes_, bytes_)), line=f"{name}.in:1", asker=name)
        for name, bytes_ in (("a" * 20, 900), ("b" * 60, 400), ("c" * 30, 90), ("d" * 200, 900))
    ]
    picture = treemap(["a"], Composition(tuple(lines)))
    titles = [block.title for block in picture.blocks]
    assert "" in titles and any(titles)
    for block in picture.blocks:
        assert len(block.title) * 7.8 <= block.area.width


def test_a_report_of_a_project_has_its_name_as_title() -> None:
    page = run_html.render(replace(report(), project="inferno 0.1.0"))
    assert "<title>buildmatrix: inferno 0.1.0</title>" in page
    assert "<h1>inferno 0.1.0</h1>" in page
    assert "<h1>wheel:x.whl</h1>" in run_html.render(replace(report(), subject="wheel:x.whl"))
