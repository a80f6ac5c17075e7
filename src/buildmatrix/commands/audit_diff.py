"""`audit --diff REF`: only the differences made by a change, for each target.

The same sources are audited at a git revision. A finding is new if its fingerprint was not there
before: an upgrade of a distribution that was already foreign brings none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, UsageError
from buildmatrix.base.text import listing
from buildmatrix.commands.audit import AuditInputs, AuditSession, Results, common_python
from buildmatrix.commands.diff import compare
from buildmatrix.commands.diff_contents import Side
from buildmatrix.commands.diff_sources import add_lock
from buildmatrix.commands.git_revision import Revision, extract_revision, make_relative
from buildmatrix.judge.model import SEVERITY_RANK, Finding, Verdict
from buildmatrix.judge.registry import rule_of
from buildmatrix.locks.selection import choose_wheel
from buildmatrix.reports.run import Difference, Report, TargetDifference
from buildmatrix.sources.parse import parse_declared
from buildmatrix.sources.resolved import Resolved

_MOST_NAMED = 6


def extract_inputs(inputs: AuditInputs, ref: str) -> AbstractContextManager[Revision]:
    """Provide the files of `inputs` at `ref`; see `extract_revision` for its exceptions."""
    return extract_revision(inputs.root, ref, tuple(_list_inputs(inputs)))


def _list_inputs(inputs: AuditInputs) -> Iterator[str]:
    """Yield the current input files relative to the root, which may have any name."""
    for source in make_relative(inputs.sources, inputs.root):
        parsed = parse_declared(source, inputs.root)
        if parsed.is_file and not Path(parsed.name).is_absolute():
            yield parsed.name
    if inputs.spec is not None:
        names = [inputs.spec.path.name, *inputs.spec.catalogue]
        for target in inputs.spec.targets:
            names += target.requirements
            names += [target.pyproject or "", target.template, target.lock_file]
        below = os.path.relpath(inputs.spec.root.resolve(), inputs.root.resolve())
        yield from (f"{below}/{name}" for name in names if name)


def reduce_report(
    session: AuditSession, outcomes: Results, report: Report, ref: str, revision: Revision
) -> Report:
    """Reduce `report`, the audit of `outcomes`, to the news since `revision`."""
    session.progress.note(f"auditing the same at {ref} ({revision.commit[:12]})")
    notes: list[str] = []
    inputs = _find_inputs(session, ref, revision, notes)
    then: Results = ()
    if inputs is not None:
        try:
            then = _resolve(session, inputs, outcomes)
        except UsageError as error:
            # The selected targets did not exist then, so all of them are new.
            notes.append(f"at {ref}: {error.message.splitlines()[0]}")
    judge = session.judge_of(inputs.spec if inputs is not None else None)
    old = session.report(then, judge=judge)
    compared = _compare(session, outcomes, report, then, old, ref, revision, notes)
    assert compared.diff is not None
    # Findings under the old policy that the current one lacks or reduces are acceptances: a waiver,
    # a lower severity, a disabled rule, a longer list. Findings about old waivers do not concern
    # the current state.
    now = {(finding.target, finding.fingerprint): finding for finding in report.findings}
    accepts = []
    for finding in session.report(outcomes, judge=judge).findings:
        same = now.get((finding.target, finding.fingerprint))
        is_less = (
            same is None
            or same.waived is not None
            or SEVERITY_RANK[same.severity] < SEVERITY_RANK[finding.severity]
        )
        if finding.waived is None and rule_of(finding.rule).scope != "run" and is_less:
            accepts.append(finding)
    return replace(compared, diff=replace(compared.diff, accepts=tuple(accepts)))


def _resolve(session: AuditSession, inputs: AuditInputs, outcomes: Results) -> Results:
    """Resolve the inputs of then, with the current Python if possible."""
    python = common_python(outcomes) if inputs.sources else None
    then = session.resolve(inputs, python=python, missing_ok=True)
    if python is None or all(isinstance(outcome, Resolved) for outcome in then):
        return then
    other = session.resolve(inputs, missing_ok=True)
    return [
        outcome if isinstance(outcome, Resolved) else other_outcome
        for outcome, other_outcome in zip(then, other, strict=True)
    ]


def _find_inputs(
    session: AuditSession, ref: str, revision: Revision, notes: list[str]
) -> AuditInputs | None:
    """Return the inputs of then; None if there was nothing to audit."""
    now = session.inputs
    if revision.left_out:
        notes.append(
            f"not read at {ref}, since they are too large or too many: "
            f"{listing(revision.left_out, _MOST_NAMED)}"
        )
    sources = make_relative(now.sources, now.root)
    for source in sources:
        parsed = parse_declared(source, now.root)
        if not parsed.is_file:
            continue
        if Path(parsed.name).is_absolute():
            notes.append(f"{parsed.name} is not in this repository: it is the same on both sides")
        elif not (revision.folder / parsed.name).exists():
            notes.append(f"{parsed.name} does not exist at {ref}: everything in it is new")
    spec = now.spec
    if spec is not None:
        path = revision.folder / os.path.relpath(spec.path.resolve(), now.root.resolve())
        place, instead = spec.path, spec if sources else None
        try:
            spec = session.options.workspace.load(path) if path.is_file() else instead
        except BuildmatrixError as error:
            first = error.message.splitlines()[0].removeprefix(f"{path}:").strip()
            spec = instead
            consequence = (
                "the current one is used for both sides" if sources else "everything counts as new"
            )
            notes.append(f"{place} at {ref} is wrong ({first}): {consequence}")
        if not path.is_file() and not sources:
            notes.append(f"{place} does not exist at {ref}: all of it is new")
    return AuditInputs(sources, spec, revision.folder) if sources or spec is not None else None


def _compare(
    session: AuditSession,
    outcomes: Results,
    report: Report,
    then: Results,
    old: Report,
    ref: str,
    revision: Revision,
    notes: list[str],
) -> Report:
    old_locks, locks = (
        {resolved.target.id: resolved for resolved in results if isinstance(resolved, Resolved)}
        for results in (then, outcomes)
    )
    old_targets = {result.id: result for result in old.targets}
    differences = []
    new: list[Finding] = []
    for target in report.targets:
        was = old_targets.get(target.id)
        if was is not None and was.error is not None:
            notes.append(
                f"{target.id} could not be audited as it was at {ref}, so all of it counts as "
                f"new: {was.error.splitlines()[0]}"
            )
        before, now = old_locks.get(target.id), locks.get(target.id)
        if before is not None and now is not None and before.target.python != now.target.python:
            # Another Python changes versions and wheels too.
            notes.append(
                f"{target.id} is audited with Python {now.target.python}, and at {ref} with "
                f"{before.target.python}: some versions differ for that alone"
            )
        comparison = compare(
            _make_side(ref, target.id, target.backend, old, before),
            _make_side("now", target.id, target.backend, report, now),
        )
        if comparison.findings is not None:
            raised = comparison.findings.raised
            new += [finding for earlier, finding in raised if _is_worse(earlier, finding)]
        differences.append(
            TargetDifference(
                target.id,
                target.backend,
                was.audit if was is not None and was.error is None else None,
                target.audit if target.error is None else None,
                comparison.findings,
                comparison.distributions,
                comparison.verdicts,
            )
        )
    ids = {result.id for result in report.targets}
    if gone := [result.id for result in old.targets if result.id not in ids]:
        notes.append(f"targets that no longer exist: {listing(gone, _MOST_NAMED)}")
    old_findings = {(finding.target, finding.fingerprint) for finding in old.findings}
    new += [
        finding
        for finding in report.findings
        if finding.target not in ids and (finding.target, finding.fingerprint) not in old_findings
    ]
    unread = {(item.path, item.why) for item in old.unread}
    for path in sorted({path for path, _ in unread}):
        notes.append(f"{path} could not be read at {ref}: its contents then are not known")
    kept = {id(finding) for finding in new}
    findings = tuple(finding for finding in report.findings if id(finding) in kept)
    return replace(
        report,
        subject=f"{report.subject}, new since {ref}",
        findings=findings,
        distributions=tuple(_select_verdicts(report.distributions, differences)),
        unread=tuple(item for item in report.unread if (item.path, item.why) not in unread),
        targets=tuple(
            replace(
                result,
                gates={
                    **result.gates,
                    "lock": session.judge.gate([f for f in findings if f.is_about(result.id)]),
                },
            )
            if result.error is None
            else result
            for result in report.targets
        ),
        diff=Difference(ref, revision.commit, tuple(differences), tuple(notes)),
    )


def _make_side(
    source: str, id: str, backend: str, report: Report, resolved: Resolved | None
) -> Side:
    """Return one target of an audit; an empty side if missing or unresolved."""
    side = Side(source, "lock", targets={id: backend}, findings=(), verdicts=())
    if resolved is None:
        return side
    verdicts = {(v.name, v.version): v for v in report.distributions if v.is_about(id, backend)}
    side = add_lock(side, resolved.lock, lambda package: choose_wheel(package, resolved.target))
    held, mine = [], []
    for item in side.held:
        verdict = verdicts.get((item.name, item.version))
        if verdict is not None:
            mine.append(verdict)
            # Locks do not always have the size of a wheel.
            size = verdict.download if item.download is None else item.download
            item = replace(item, download=size)
        held.append(item)
    totals = next((t.audit for t in report.targets if t.id == id), None)
    return replace(
        side,
        held=tuple(held),
        size=totals.installed if totals is not None else None,
        findings=tuple(f for f in report.findings if f.target == id),
        verdicts=tuple(mine),
        unread=(),
    )


def _is_worse(before: Finding | None, now: Finding) -> bool:
    """True if a finding is new, no longer accepted, or more severe than before."""
    if before is None:
        return True
    if now.waived is not None:
        return False
    return before.waived is not None or SEVERITY_RANK[now.severity] > SEVERITY_RANK[before.severity]


def _select_verdicts(
    verdicts: tuple[Verdict, ...], changes: list[TargetDifference]
) -> Iterator[Verdict]:
    """Yield verdicts of added distributions, and changed verdicts."""
    names = [
        {item.name for item in change.distributions.changes}
        | {verdict.name for verdict in change.verdicts or ()}
        for change in changes
    ]
    for verdict in verdicts:
        if any(
            verdict.name in changed and verdict.is_about(change.id, change.backend)
            for change, changed in zip(changes, names, strict=True)
        ):
            yield verdict
