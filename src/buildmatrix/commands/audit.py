"""`audit`: its inputs and rules, and the report on the judged wheels of all targets."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Collection, Sequence
from datetime import date
from pathlib import Path

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, UsageError
from buildmatrix.base.progress import Progress
from buildmatrix.base.text import shown
from buildmatrix.commands.audit_run import Audited, AuditMemory, AuditRun
from buildmatrix.commands.audit_target import AuditedTarget
from buildmatrix.commands.options import AuditOptions
from buildmatrix.images.store.cache import Cache
from buildmatrix.judge.acceptance import FailOn
from buildmatrix.judge.advisories import AdvisoryOptions, pending_advisories
from buildmatrix.judge.judging import Judge
from buildmatrix.judge.locks import merge_stale_locks
from buildmatrix.judge.model import GATES, AuditTotals, Finding, Gate, GateState, TargetResult
from buildmatrix.locks.index.reading import Reader, Readings
from buildmatrix.matrix.model import Spec, Target, Waiver, bare_spec
from buildmatrix.reports.run import Report, assemble
from buildmatrix.sources.resolved import Resolved, Unresolved, resolve_sources
from buildmatrix.sources.wheels_on_index import JOBS

#: What was resolved, or why it could not be; one entry per target.
Results = Sequence[Resolved | BuildmatrixError]


def audit(
    subject: str,
    results: Results,
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
        results: resolved targets, and the errors of the others.
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
    results: Results,
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


# Sessions: audits of several inputs with the same rules


class AuditInputs(Struct, frozen=True):
    """Inputs of an audit; relative sources start from `root`."""

    sources: tuple[str, ...]
    spec: Spec | None
    root: Path


class AuditSession(Struct, frozen=True):
    """Everything that stays the same when other inputs are audited."""

    inputs: AuditInputs
    reader: Reader
    judge: Judge
    progress: Progress
    options: AuditOptions
    #: Rules with the policy and the waivers of a specification, or of none.
    judge_of: Callable[[Spec | None], Judge]

    def resolve(
        self,
        inputs: AuditInputs | None = None,
        *,
        globs: Sequence[str] | None = None,
        python: str | None = None,
        missing_ok: bool = False,
        relock: bool = False,
        change: Callable[[Target], Target] | None = None,
    ) -> tuple[Resolved | BuildmatrixError, ...]:
        """Resolve the inputs; see `resolve_sources`, also for errors raised.

        `globs` choose other targets, `python` is used where the command line names none.
        """
        inputs, options = inputs or self.inputs, self.options
        return resolve_sources(
            inputs.sources,
            inputs.spec,
            # Targets that are named one by one need no narrowing.
            backends=options.backends if globs is None else (),
            globs=options.select if globs is None else globs,
            subset=options.subset if globs is None else None,
            python=options.python or python,
            platform=options.platform,
            root=inputs.root,
            cache=options.workspace.user_cache(),
            offline=options.workspace.offline,
            missing_ok=missing_ok,
            relock=relock,
            change=change,
            progress=self.progress,
        )

    def report(
        self, results: Results, *, judge: Judge | None = None, advisories: bool = True
    ) -> Report:
        """Audit the resolved distributions."""
        sources, spec = self.inputs.sources, self.inputs.spec
        options, wanted = self.options, self.options.vulnerabilities and advisories
        report = audit(
            shown(", ".join(sources)) or (spec.path.name if spec is not None else ""),
            results,
            self.reader,
            judge or self.judge,
            self.progress,
            deep=options.deep,
            strict=options.strict,
            asking=options.workspace.advisories(wanted),
            cache=options.workspace.user_cache(),
        )
        return report if sources or spec is None else replace(report, project=spec.title)


def common_python(results: Results) -> str | None:
    """The Python that all targets were looked at with, where it is one."""
    pythons = {target.python for target in map(target_of, results) if target is not None}
    return pythons.pop() if len(pythons) == 1 else None


def target_of(result: Resolved | BuildmatrixError) -> Target | None:
    """The target that a result is about."""
    return result.target if isinstance(result, Resolved | Unresolved) else None


# Subject and rules, with a specification or without one


def judge_for(
    spec: Spec | None,
    accepted: Sequence[Waiver],
    fail_on: FailOn,
    today: date,
    baseline: Collection[str],
) -> Judge:
    """The rules with the policy and the waivers of `spec`, and with those that are `accepted`.

    `baseline` has the fingerprints of findings that are not new.
    """
    base = spec if spec is not None else bare_spec()
    return Judge(replace(base, waivers=(*base.waivers, *accepted)), fail_on, today, baseline)


def check_usable(results: Results) -> None:
    """Raise `UsageError` with each reason once, when wrong input leaves no target to look at."""
    wrong = [
        error
        for error in results
        if isinstance(error, BuildmatrixError) and error.exit_code == UsageError.exit_code
    ]
    if wrong and len(wrong) == len(results):
        raise UsageError("\n".join(dict.fromkeys(error.message for error in wrong)))


# Memory of a process with many threads


#: mallopt(3) of glibc.
_M_ARENA_MAX = -8


def share_one_heap() -> None:
    """Let all threads of this process take memory from one heap; before they begin.

    glibc gives each of them a heap of its own, and what one frees no other gets: a third of the
    memory of an audit. They wait for an index most of the time and hold Python's lock for the rest,
    so sharing costs no time. Other C libraries know no such heaps; nothing happens there.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
