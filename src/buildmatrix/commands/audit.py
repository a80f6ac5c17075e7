"""An audit's report: the judged wheels of all targets, and what was not resolved."""

from __future__ import annotations

import time
from collections.abc import Sequence

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, UsageError
from buildmatrix.base.progress import Progress
from buildmatrix.commands.audit_run import JOBS, AuditRun
from buildmatrix.commands.audit_target import AuditWork, start
from buildmatrix.judge.advisories import AdvisoryOptions, pending_advisories
from buildmatrix.judge.judging import Judge
from buildmatrix.judge.locks import merge_stale_locks
from buildmatrix.judge.model import GATES, AuditTotals, Gate, GateState, TargetResult
from buildmatrix.locks.index.reading import Reader, Readings
from buildmatrix.reports.run import Report, assemble
from buildmatrix.sources.resolved import Resolved, Unresolved


def audit(
    subject: str,
    results: Sequence[Resolved | BuildmatrixError],
    reader: Reader,
    judge: Judge,
    progress: Progress,
    *,
    deep: bool = False,
    strict: bool = False,
    asking: AdvisoryOptions | None = None,
    jobs: int = JOBS,
) -> Report:
    """Judge the wheels of locks; no wheel is downloaded as a whole.

    Args:
        subject: what the report is about.
        results: what was resolved, or why it could not be; one entry per target.
        reader: reads wheels, wherever they are.
        judge: the rules, the catalogue and the waivers.
        progress: shows what is read.
        deep: read all bytes of what is not certain.
        strict: read all bytes of what could still turn a verdict, where nothing fails already.
        asking: how advisories are asked for; None asks for none.
        jobs: wheels that are read at a time.

    What could not be read or resolved is in the report, and makes it undecided.
    """
    began = time.monotonic()
    run = AuditRun(
        [start(resolved) for resolved in results if isinstance(resolved, Resolved)],
        Readings(reader, jobs, progress),
        judge,
    )
    locks = [work.resolved.lock for work in run.works]
    with pending_advisories(locks, judge.policy, asking, progress) as answer:
        run.read_and_judge(deep=deep, strict=strict)
        advisories = answer()
    for work in run.works:
        if advisories is not None:
            work.findings += judge.advisories(work.resolved.target, work.resolved.lock, advisories)
    return _report(run, judge, subject, results, time.monotonic() - began)


def _report(
    run: AuditRun,
    judge: Judge,
    subject: str,
    results: Sequence[Resolved | BuildmatrixError],
    seconds: float,
) -> Report:
    """Make the report of the judged targets, and of those that were not resolved."""
    judged = iter(run.works)
    findings = [finding for work in run.works for finding in work.findings]
    return assemble(
        subject,
        judge.catalogue_date,
        targets=[
            _result(next(judged), judge, seconds)
            if isinstance(error, Resolved)
            else _fail_target(error)
            for error in results
        ],
        # A waiver is unused only if it covers nothing in the image either, as `build` reports.
        findings=[*merge_stale_locks(findings), *judge.stale_waivers(findings, ())],
        verdicts=[
            replace(verdict, targets=(work.resolved.target.id,))
            for work in run.works
            for verdict in work.verdicts
        ],
        inventories=[run.sum_inventories(seconds)],
    )


def _gates(state: GateState) -> dict[Gate, GateState]:
    return {gate: state if gate == "lock" else "not-run" for gate in GATES}


def _result(work: AuditWork, judge: Judge, seconds: float) -> TargetResult:
    target = work.resolved.target
    return TargetResult(
        id=target.id,
        backend=target.backend,
        gates=_gates(judge.gate(work.findings)),
        seconds=seconds,
        audit=work.totals,
        left_out=work.resolved.left_out,
        composition=work.composition,
    )


def _fail_target(error: BuildmatrixError) -> TargetResult:
    """A target of which nothing is known."""
    target = error.target if isinstance(error, Unresolved) else None
    id = target.id if target is not None else ""
    return TargetResult(
        id=id,
        backend=target.backend if target is not None else "",
        gates=_gates("failed" if error.exit_code == UsageError.exit_code else "undecided"),
        error=error.message.removeprefix(f"{id}: "),
        audit=AuditTotals(),
    )
