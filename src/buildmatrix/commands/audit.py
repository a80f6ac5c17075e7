"""An audit's report: the judged wheels of all targets, and what was not resolved."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, UsageError
from buildmatrix.base.progress import Progress
from buildmatrix.commands.audit_memory import Audited, AuditedTarget, AuditMemory
from buildmatrix.images.store.cache import Cache
from buildmatrix.judge.advisories import AdvisoryOptions, pending_advisories
from buildmatrix.judge.judging import Judge
from buildmatrix.judge.locks import merge_stale_locks
from buildmatrix.judge.model import GATES, AuditTotals, Finding, Gate, GateState, TargetResult
from buildmatrix.reports.run import Report, assemble
from buildmatrix.sources.resolved import Resolved, Unresolved
from buildmatrix.sources.wheels_on_index import JOBS

if TYPE_CHECKING:
    from buildmatrix.locks.index.reading import Reader


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
    cache: Cache | None = None,
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
        cache: has results of earlier runs.

    What could not be read or resolved is in the report, and makes it undecided.
    """
    began = time.monotonic()
    resolved = [item for item in results if isinstance(item, Resolved)]
    memory = AuditMemory(cache, resolved, judge, deep=deep)
    locks = [item.lock for item in resolved]
    with pending_advisories(locks, judge.policy, asking, progress) as answer:
        # What `strict` reads depends on waivers.
        audited = None if strict else memory.load()
        if audited is None:
            from buildmatrix.commands.audit_run import AuditRun
            from buildmatrix.locks.index.reading import Readings

            run = AuditRun(resolved, Readings(reader, jobs, progress), judge)
            run.read_and_judge(deep=deep, strict=strict)
            audited = run.results()
            if run.is_complete and not strict:
                memory.save(audited)
        advisories = answer()
    findings = []
    for item, target in zip(resolved, audited.targets, strict=True):
        own = judge.settled(target.findings)
        if advisories is not None:
            lock = replace(item.lock, packages=target.packages)
            own += judge.advisories(item.target, lock, advisories)
        findings.append(own)
    return _report(subject, results, audited, findings, judge, time.monotonic() - began)


def _report(
    subject: str,
    results: Sequence[Resolved | BuildmatrixError],
    audited: Audited,
    findings: Sequence[tuple[Finding, ...]],
    judge: Judge,
    seconds: float,
) -> Report:
    """Make the report of the judged targets, and of those that were not resolved.

    `findings` are those of each judged target.
    """
    judged = zip(audited.targets, findings, strict=True)
    resolved = (item.target for item in results if isinstance(item, Resolved))
    every = [finding for own in findings for finding in own]
    return assemble(
        subject,
        judge.catalogue_date,
        targets=[
            _result(item, *next(judged), judge, seconds)
            if isinstance(item, Resolved)
            else _fail_target(item)
            for item in results
        ],
        # A waiver is unused only if it covers nothing in the image either, as `build` reports.
        findings=[*merge_stale_locks(every), *judge.stale_waivers(every, ())],
        verdicts=[
            replace(verdict, targets=(target.id,))
            for target, own in zip(resolved, audited.targets, strict=True)
            for verdict in own.verdicts
        ],
        inventories=[replace(audited.read, stats=replace(audited.read.stats, seconds=seconds))],
    )


def _gates(state: GateState) -> dict[Gate, GateState]:
    return {gate: state if gate == "lock" else "not-run" for gate in GATES}


def _result(
    resolved: Resolved,
    audited: AuditedTarget,
    findings: Sequence[Finding],
    judge: Judge,
    seconds: float,
) -> TargetResult:
    target = resolved.target
    return TargetResult(
        id=target.id,
        backend=target.backend,
        gates=_gates(judge.gate(findings)),
        seconds=seconds,
        audit=audited.totals,
        left_out=resolved.left_out,
        composition=audited.composition,
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
