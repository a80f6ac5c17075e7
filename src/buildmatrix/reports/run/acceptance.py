"""A saved report with other waivers and another baseline than the run had."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import date

from buildmatrix.reports.run.model import FailOn, Report, fails, is_undecided
from buildmatrix.rules import baseline, waivers
from buildmatrix.rules.model import Finding, Gate, GateState, TargetResult, in_order
from buildmatrix.spec.model import Waiver


def accept(
    report: Report,
    accepted: Sequence[Waiver],
    known: Collection[str],
    today: date,
    fail_on: FailOn,
) -> Report:
    """The report with `accepted` and the fingerprints `known` applied to what is still open.

    Gates that only open findings had held back are passed then. A gate behind them that did not
    run has still not run.
    """
    if not accepted and not known:
        return report
    open_before = [one for one in report.findings if one.waived is None]
    settled = iter(baseline.apply(waivers.apply(open_before, accepted, today), known))
    findings = tuple(one if one.waived is not None else next(settled) for one in report.findings)
    stale = waivers.check(findings, accepted, today, judged=())
    changed = replace(report, findings=in_order((*findings, *stale)))
    return replace(
        changed,
        targets=tuple(_regated(one, report, changed, fail_on) for one in report.targets),
    )


def _regated(target: TargetResult, before: Report, after: Report, fail_on: FailOn) -> TargetResult:
    was = [one for one in before.findings if one.is_about(target.id)]
    now = [one for one in after.findings if one.is_about(target.id)]
    if target.error is not None or not any(fails(one, fail_on) for one in was):
        return target
    if any(fails(one, fail_on) for one in now):
        return target
    state: GateState = "undecided" if _is_open(now) else "passed"
    gates: dict[Gate, GateState] = dict(target.gates)
    for gate in ("lock", "scan"):
        if gates.get(gate) == "failed":
            gates[gate] = state
    return replace(target, gates=gates)


def _is_open(findings: Sequence[Finding]) -> bool:
    return is_undecided(Report("", findings=tuple(findings)))
