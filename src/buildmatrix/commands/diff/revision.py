"""`audit --diff REF`: only what a change brings, in and out, for each target.

The same sources are audited as they were at a git revision. A finding is new where its fingerprint
was not there before: an upgrade of a distribution that was foreign already brings none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from buildmatrix.commands.audit.session import AuditInputs, AuditSession, Results, common_python
from buildmatrix.commands.diff.compare import compare
from buildmatrix.commands.diff.git_revision import Revision, at_revision, moved
from buildmatrix.commands.diff.model import HeldDistribution, Side
from buildmatrix.commands.diff.sides import with_lock
from buildmatrix.errors import BuildmatrixError, UsageError
from buildmatrix.locks.choose import choose
from buildmatrix.phrases import listing
from buildmatrix.reports.diff.model import FindingChange
from buildmatrix.reports.run.model import Difference, Report, TargetDifference
from buildmatrix.rules.model import SEVERITY_RANK, Finding, Verdict
from buildmatrix.rules.registry import rule_of
from buildmatrix.sources.parse import declared
from buildmatrix.sources.resolution.resolved import Resolved
from buildmatrix.spec.model import Spec

_NAMED = 6


@dataclass(frozen=True, slots=True)
class Before:
    """The inputs of a session at a revision."""

    #: None where nothing was there that could be audited.
    inputs: AuditInputs | None
    notes: tuple[str, ...] = ()


@contextmanager
def inputs_at(inputs: AuditInputs, ref: str) -> Iterator[Revision]:
    """The files of `inputs` as they were at `ref`; see `at_revision` for what it raises."""
    with at_revision(inputs.root, ref, tuple(_names(inputs))) as revision:
        yield revision


def _names(inputs: AuditInputs) -> Iterator[str]:
    """Files that are inputs now, as seen from the root: they may be called anything."""
    for source in moved(inputs.sources, inputs.root):
        parsed = declared(source, inputs.root)
        if parsed.is_file and not Path(parsed.name).is_absolute():
            yield parsed.name
    if inputs.spec is not None:
        names = [inputs.spec.path.name, *inputs.spec.catalogue]
        for target in inputs.spec.targets:
            names += [
                *target.requirements,
                target.pyproject or "",
                target.template,
                target.lock_file,
            ]
        below = os.path.relpath(inputs.spec.root.resolve(), inputs.root.resolve())
        yield from (f"{below}/{name}" for name in names if name)


def since(
    session: AuditSession, outcomes: Results, report: Report, ref: str, revision: Revision
) -> Report:
    """What is new in `report`, which is the audit of `outcomes`, since `revision`."""
    session.progress.note(f"auditing the same at {ref} ({revision.commit[:12]})")
    before = _before(session, ref, revision)
    notes = [*before.notes]
    then: Results = ()
    if before.inputs is not None:
        try:
            then = _resolve(session, before.inputs, outcomes)
        except UsageError as error:
            # Targets that were chosen and did not exist then: all of them are new.
            notes.append(f"at {ref}: {error.message.splitlines()[0]}")
    judge = session.judge_of(before.inputs.spec if before.inputs is not None else None)
    old = session.report(then, judge=judge)
    compared = _compared(session, outcomes, report, then, old, ref, revision, notes)
    assert compared.diff is not None
    by_then = session.report(outcomes, judge=judge)
    return replace(compared, diff=replace(compared.diff, accepts=_accepts(by_then, report)))


def _accepts(by_then: Report, by_now: Report) -> tuple[Finding, ...]:
    """Findings of `by_then`, of one state by two policies, that are open there and less `by_now`.

    What is left is an acceptance: a waiver, a lower severity, a rule that is off, a longer list.
    """
    now = {(finding.target, finding.fingerprint): finding for finding in by_now.findings}

    def is_less(finding: Finding) -> bool:
        same = now.get((finding.target, finding.fingerprint))
        return (
            same is None
            or same.waived is not None
            or SEVERITY_RANK[same.severity] < SEVERITY_RANK[finding.severity]
        )

    return tuple(
        finding
        for finding in by_then.findings
        # What is wrong with waivers of then is no finding about what is there now.
        if finding.waived is None and rule_of(finding.rule).scope != "run" and is_less(finding)
    )


def _resolve(session: AuditSession, inputs: AuditInputs, outcomes: Results) -> Results:
    """What the inputs came to then, with the Python of now where that is possible."""
    python = common_python(outcomes) if inputs.sources else None
    then = session.resolve(inputs, python=python, missing_ok=True)
    if python is None or all(isinstance(outcome, Resolved) for outcome in then):
        return then
    other = session.resolve(inputs, missing_ok=True)
    return [
        outcome if isinstance(outcome, Resolved) else other_outcome
        for outcome, other_outcome in zip(then, other, strict=True)
    ]


def _before(session: AuditSession, ref: str, revision: Revision) -> Before:
    now = session.inputs
    notes = []
    if revision.left_out:
        notes.append(
            f"not read at {ref}, since they are too large or too many: "
            f"{listing(revision.left_out, _NAMED)}"
        )
    sources = moved(now.sources, now.root)
    for source in sources:
        parsed = declared(source, now.root)
        if not parsed.is_file:
            continue
        if Path(parsed.name).is_absolute():
            notes.append(f"{parsed.name} is not in this repository: it is the same on both sides")
        elif not (revision.folder / parsed.name).exists():
            notes.append(f"{parsed.name} does not exist at {ref}: everything in it is new")
    spec = now.spec
    if spec is not None:
        spec, note = _spec_at(session, spec, ref, revision, bool(sources))
        notes += [note] if note else []
    if not sources and spec is None:
        return Before(None, tuple(notes))
    return Before(AuditInputs(sources, spec, revision.folder), tuple(notes))


def _spec_at(
    session: AuditSession, spec: Spec, ref: str, revision: Revision, has_sources: bool
) -> tuple[Spec | None, str]:
    """The specification then, and what is to be said about it."""
    below = os.path.relpath(spec.path.resolve(), session.inputs.root.resolve())
    path = revision.folder / below
    instead = spec if has_sources else None
    if not path.is_file():
        return (
            instead,
            "" if has_sources else f"{spec.path} does not exist at {ref}: all of it is new",
        )
    try:
        return session.load(path), ""
    except BuildmatrixError as error:
        first = error.message.splitlines()[0].removeprefix(f"{path}:")
        consequence = (
            "the current one is used for both sides" if has_sources else "everything counts as new"
        )
        return instead, f"{spec.path} at {ref} is wrong ({first.strip()}): {consequence}"


def _compared(
    session: AuditSession,
    outcomes: Results,
    report: Report,
    then: Results,
    old: Report,
    ref: str,
    revision: Revision,
    notes: list[str],
) -> Report:
    locks = {
        resolved.target.id: resolved for resolved in outcomes if isinstance(resolved, Resolved)
    }
    old_locks = {
        resolved.target.id: resolved for resolved in then if isinstance(resolved, Resolved)
    }
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
        notes += _pythons(ref, old_locks.get(target.id), locks.get(target.id))
        comparison = compare(
            _side(ref, target.id, target.backend, old, old_locks.get(target.id)),
            _side("now", target.id, target.backend, report, locks.get(target.id)),
        )
        new += [
            change.after
            for change in comparison.finding_changes
            if change.after is not None and _is_worse(change)
        ]
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
    gone = [
        result.id
        for result in old.targets
        if result.id not in {target.id for target in report.targets}
    ]
    if gone:
        notes.append(f"targets that no longer exist: {listing(gone, _NAMED)}")
    old_findings = {(finding.target, finding.fingerprint) for finding in old.findings}
    ids = {result.id for result in report.targets}
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
        distributions=tuple(_changed_verdicts(report.distributions, differences)),
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


def _pythons(ref: str, then: Resolved | None, now: Resolved | None) -> Iterator[str]:
    """That a target had another Python, which changes versions and wheels too."""
    if then is None or now is None or then.target.python == now.target.python:
        return
    yield (
        f"{now.target.id} is audited with Python {now.target.python}, and at {ref} with "
        f"{then.target.python}: some versions differ for that alone"
    )


def _side(source: str, id: str, backend: str, report: Report, resolved: Resolved | None) -> Side:
    """One target of an audit; nothing where it was not there or could not be resolved."""
    side = Side(source, "lock", targets={id: backend}, findings=(), verdicts=())
    if resolved is None:
        return side
    verdicts = {(v.name, v.version): v for v in report.distributions if v.is_about(id, backend)}
    mine = tuple(
        verdicts[package.name, package.version]
        for package in resolved.lock.packages
        if (package.name, package.version) in verdicts
    )
    side = with_lock(side, resolved.lock, lambda package: choose(package, resolved.target))
    totals = next((t.audit for t in report.targets if t.id == id), None)
    return replace(
        side,
        held=tuple(_sized(held, verdicts.get((held.name, held.version))) for held in side.held),
        size=totals.installed if totals is not None else None,
        findings=tuple(f for f in report.findings if f.target == id),
        verdicts=mine,
        unread=(),
    )


def _sized(held: HeldDistribution, verdict: Verdict | None) -> HeldDistribution:
    """Locks do not always say how large a wheel is; who read it knows."""
    if verdict is None or held.download is not None:
        return held
    return replace(held, download=verdict.download)


def _is_worse(change: FindingChange) -> bool:
    """Whether a finding is new, not accepted any more, or more severe than it was."""
    before, after = change.before, change.after
    if after is None or before is None:
        return after is not None
    if after.waived is not None:
        return False
    return (
        before.waived is not None or SEVERITY_RANK[after.severity] > SEVERITY_RANK[before.severity]
    )


def _changed_verdicts(
    verdicts: tuple[Verdict, ...], changes: list[TargetDifference]
) -> Iterator[Verdict]:
    """Verdicts of the distributions that came, or that are judged otherwise."""
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
