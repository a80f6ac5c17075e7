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


def compared(report: Report, before: Report) -> Report:
    """The report with those findings of a baseline that are there no more.

    Only of backends of which this run judged all that the baseline did, at the same gates: what a
    run did not get to is not gone.
    """
    present = {finding.fingerprint for finding in report.findings}
    now, then = judged(report), judged(before)
    gone = {
        finding.fingerprint: finding
        for finding in before.findings
        if finding.fingerprint not in present
        and None not in now.get(finding.backend, {None})
        and now[finding.backend] >= then.get(finding.backend, set()) - {None}
    }
    return replace(report, gone=in_order(gone.values()))


def judged(report: Report) -> dict[str, set[Gate | None]]:
    """Backend -> the gates that judged all of its targets; None for what is not known."""
    gates_of: dict[str, set[Gate | None]] = {}
    for target in report.targets:
        gates: set[Gate | None] = {
            gate for gate in ("lock", "scan") if target.gates.get(gate) in ("passed", "failed")
        }
        if target.error is not None or "undecided" in target.gates.values():
            gates.add(None)
        held = gates_of.setdefault(target.backend, gates)
        gates_of[target.backend] = (held & gates) | ({None} & (held | gates))
    return gates_of


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
