"""A saved report that gets waivers and a baseline afterwards."""

from __future__ import annotations

from datetime import date

from test_report_formats import finding, report, result

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import Inventory, Unread
from buildmatrix.judge import acceptance
from buildmatrix.matrix.model import Position, Waiver
from buildmatrix.reports import run_table
from buildmatrix.reports.run import Report, exit_code
from buildmatrix.reports.saved import accept

TODAY = date(2026, 11, 21)
WAIVER = Waiver(
    "BM401", (), "xgboost", None, "ours", "team", date(2027, 1, 31), Position("w.toml", 1)
)
SECOND = finding(fingerprint="1" * 32)


def failed(*findings) -> Report:
    return report(*findings, targets=(result(scan="failed", smoke="not-run"),))


def test_a_waiver_turns_a_red_report_green() -> None:
    before = failed(finding())
    after = accept(before, [WAIVER], (), TODAY, "error")
    assert (exit_code(before), exit_code(after)) == (1, 0)
    assert after.targets[0].gates["scan"] == "passed"
    assert after.targets[0].gates["smoke"] == "not-run"


def test_one_finding_that_is_left_keeps_it_red() -> None:
    after = accept(failed(finding(), SECOND), (), {"0" * 32}, TODAY, "error")
    assert exit_code(after) == 1
    assert after.targets[0].gates["scan"] == "failed"


def test_the_baseline_is_counted_and_its_findings_are_shown() -> None:
    after = accept(failed(finding(), SECOND), (), {"0" * 32, "1" * 32}, TODAY, "error")
    assert exit_code(after) == 0
    text = run_table.render(after, width=100, color=False)
    assert "0 errors, 0 warnings, 0 notes, 2 in the baseline" in text
    assert acceptance.BASELINE_REASON in text


def test_a_waiver_that_ran_out_is_told() -> None:
    after = accept(
        failed(finding()), [replace(WAIVER, expires=date(2026, 1, 1))], (), TODAY, "error"
    )
    assert exit_code(after) == 1
    assert [one.rule for one in after.findings] == ["BM901", "BM401"]


def test_what_was_accepted_before_keeps_its_reason() -> None:
    after = accept(failed(finding(waived="before")), [WAIVER], {"0" * 32}, TODAY, "error")
    assert [one.waived for one in after.findings] == ["before"]


def test_a_failed_build_stays_failed() -> None:
    broken = replace(result(build="failed", scan="not-run"), error="no space")
    before = report(finding(), targets=(broken,))
    after = accept(before, [WAIVER], (), TODAY, "error")
    assert after.targets == before.targets
    assert exit_code(after) == 4


def test_an_unread_file_keeps_the_gate_undecided() -> None:
    unread = finding(
        "BM902", "unread-file", severity="warning", path="opt/a.so", fingerprint="2" * 32
    )
    tree = Inventory(unread=(Unread("opt/a.so", "it ends early"),))
    before = report(finding(), unread, targets=(result(scan="failed"),), inventories=[tree])
    after = accept(before, [WAIVER], (), TODAY, "error")
    assert after.targets[0].gates["scan"] == "undecided"
    assert exit_code(after) == 3


def test_without_either_the_report_is_the_same() -> None:
    assert accept(failed(finding()), (), (), TODAY, "error") == failed(finding())


def test_what_nobody_could_check_is_undecided_under_strict_only() -> None:
    unchecked = finding("BM802", "not-checked", severity="warning")
    assert exit_code(report(unchecked)) == 0
    assert exit_code(report(unchecked), strict=True) == 3
    assert exit_code(report(replace(unchecked, waived="ours")), strict=True) == 0
    assert exit_code(report(unchecked, SECOND), strict=True) == 1
