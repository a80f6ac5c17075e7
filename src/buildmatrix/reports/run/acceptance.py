"""A saved report with other waivers and another baseline than the run had."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import date

from buildmatrix.reports.run.model import FailOn, Report, fails, is_undecided
from buildmatrix.rules import baseline, waivers
from buildmatrix.rules.model import Gate, GateState, TargetResult, in_order
from buildmatrix.spec.model import Waiver


def accept(
    report: Report,
    accepted: Sequence[Waiver],
    fingerprints: Collection[str],
    today: date,
    fail_on: FailOn,
) -> Report:
    """The report with `accepted` and a baseline's `fingerprints` applied to what is still open.

    Gates that only open findings had held back are passed then. A gate behind them that did not
    run has still not run.
    """
    if not accepted and not fingerprints:
        return report
    open_before = [finding for finding in report.findings if finding.waived is None]
    settled = iter(baseline.apply(waivers.apply(open_before, accepted, today), fingerprints))
    findings = tuple(
        finding if finding.waived is not None else next(settled) for finding in report.findings
    )
    stale = waivers.check(findings, accepted, today, judged=())
    changed = replace(report, findings=in_order((*findings, *stale)))
    return replace(
        changed,
        targets=tuple(_regated(target, report, changed, fail_on) for target in report.targets),
    )


def _regated(target: TargetResult, before: Report, after: Report, fail_on: FailOn) -> TargetResult:
    was = [finding for finding in before.findings if finding.is_about(target.id)]
    now = [finding for finding in after.findings if finding.is_about(target.id)]
    if target.error is not None or not any(fails(finding, fail_on) for finding in was):
        return target
    if any(fails(finding, fail_on) for finding in now):
        return target
    state: GateState = "undecided" if is_undecided(Report("", findings=tuple(now))) else "passed"
    gates: dict[Gate, GateState] = dict(target.gates)
    for gate in ("lock", "scan"):
        if gates.get(gate) == "failed":
            gates[gate] = state
    return replace(target, gates=gates)
