"""What of a baseline is there no more."""

from __future__ import annotations

from test_html import Page
from test_report_formats import finding, report, result

from buildmatrix.base.data import replace
from buildmatrix.judge.model import Finding, TargetResult
from buildmatrix.reports import json_form, run_html, saved
from buildmatrix.reports.run import Report
from buildmatrix.reports.saved import list_gone

OLD = finding(fingerprint="1" * 32, distribution="old", message="old holds device code")
KEPT = finding(fingerprint="2" * 32, distribution="kept")
NEW = finding(fingerprint="3" * 32, distribution="new")
THEN = report(OLD, KEPT)


def test_what_is_there_no_more_is_gone_and_the_page_says_so() -> None:
    now = list_gone(report(replace(KEPT, waived="it is in the baseline report"), NEW), THEN)
    assert now.gone == (OLD,)
    text = Page(run_html.render(now)).text
    assert "1 open finding new, 1 that was there before, 1 gone." in text
    assert "BM401 foreign-device-code: old holds device code" in text
    again = saved.parse(json_form.render(now).encode(), "report.json")
    assert run_html.render(again) == run_html.render(now)


def test_without_a_baseline_the_page_says_nothing_of_one() -> None:
    assert "Against the baseline" not in run_html.render(report(NEW))


def test_what_a_run_did_not_get_to_is_not_gone() -> None:
    for target in (
        result(scan="undecided"),
        replace(result(), error="no space"),
        result(build="failed", scan="not-run", smoke="not-run"),
        replace(result("rocm"), backend="rocm"),
    ):
        assert list_gone(report(targets=(target,)), THEN).gone == ()
    both = (result(), result("b", scan="not-run"))
    assert list_gone(report(targets=both), THEN).gone == ()
    assert list_gone(report(targets=(result(scan="failed"),)), THEN).gone == (KEPT, OLD)


def shard(id: str, *findings: Finding, target: TargetResult | None = None) -> Report:
    """What one job of a matrix gives that has the baseline."""
    of_target = tuple(replace(item, target=id) for item in findings)
    made = report(*of_target, targets=(replace(target or result(), id=id),))
    return list_gone(made, THEN)


def test_shards_together_have_lost_what_none_of_them_has() -> None:
    assert saved.merge([shard("py311", KEPT), shard("py312")]).gone == (OLD,)
    assert saved.merge([shard("py311"), shard("py312", KEPT, OLD)]).gone == ()
    both = saved.merge([shard("py311", KEPT), shard("py312", KEPT)])
    assert both.gone == (OLD,)
    assert "1 gone." in Page(run_html.render(both)).text
    assert saved.merge([report(NEW), report(targets=(result("b"),))]).gone is None
    # One that had no baseline says what it holds all the same.
    plain = replace(shard("py312", OLD), gone=None)
    assert saved.merge([shard("py311", KEPT), plain]).gone == ()


def test_what_a_shard_did_not_get_to_may_still_be_there() -> None:
    for target in (
        result(scan="undecided"),
        replace(result(), error="no space"),
        result(build="failed", scan="not-run"),
    ):
        assert saved.merge([shard("py311", KEPT), shard("py312", target=target)]).gone == ()
    rocm = shard("rocm", target=replace(result(scan="undecided"), backend="rocm"))
    assert saved.merge([shard("py311", KEPT), rocm]).gone == (OLD,)


def test_a_source_that_was_judged_twice_is_named_with_its_backend_among_what_is_gone() -> None:
    cuda = list_gone(report(targets=(replace(result("x"), backend="cuda"),)), report())
    cpu = list_gone(report(targets=(result("x"),)), report(replace(OLD, target="x")))
    (gone,) = saved.merge([cpu, cuda]).gone or ()
    assert gone.target == "x (cpu)"
