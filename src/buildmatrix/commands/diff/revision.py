"""`audit --diff REF`: only the differences made by a change, for each target.

The same sources are audited at a git revision. A finding is new if its fingerprint was not there
before: an upgrade of a distribution that was already foreign brings none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from buildmatrix.base.errors import BuildmatrixError, UsageError
from buildmatrix.base.text import listing
from buildmatrix.commands.audit.session import AuditInputs, AuditSession, Results, common_python
from buildmatrix.commands.diff.compare import compare
from buildmatrix.commands.diff.git_revision import Revision, extract_revision, make_relative
from buildmatrix.commands.diff.model import HeldDistribution, Side
from buildmatrix.commands.diff.sides import add_lock
from buildmatrix.judge.model import SEVERITY_RANK, Finding, Verdict
from buildmatrix.judge.registry import rule_of
from buildmatrix.locks.selection import choose_wheel
from buildmatrix.matrix.model import Spec
from buildmatrix.reports.diff.model import FindingChange
from buildmatrix.reports.run.model import Difference, Report, TargetDifference
from buildmatrix.sources.parse import parse_declared
from buildmatrix.sources.resolved import Resolved

_MOST_NAMED = 6


@dataclass(frozen=True, slots=True)
class RevisionInputs:
    """Inputs of a session at a revision."""

    #: None if there was nothing to audit.
    inputs: AuditInputs | None
    notes: tuple[str, ...] = ()


@contextmanager
def extract_inputs(inputs: AuditInputs, ref: str) -> Iterator[Revision]:
    """Provide the files of `inputs` at `ref`; see `extract_revision` for its exceptions."""
    with extract_revision(inputs.root, ref, tuple(_list_inputs(inputs))) as revision:
        yield revision


def _list_inputs(inputs: AuditInputs) -> Iterator[str]:
    """Yield the current input files relative to the root, which may have any name."""
    for source in make_relative(inputs.sources, inputs.root):
        parsed = parse_declared(source, inputs.root)
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


def reduce_report(
    session: AuditSession, outcomes: Results, report: Report, ref: str, revision: Revision
) -> Report:
    """Reduce `report`, the audit of `outcomes`, to the news since `revision`."""
    session.progress.note(f"auditing the same at {ref} ({revision.commit[:12]})")
    before = _find_inputs(session, ref, revision)
    notes = [*before.notes]
    then: Results = ()
    if before.inputs is not None:
        try:
            then = _resolve(session, before.inputs, outcomes)
        except UsageError as error:
            # The selected targets did not exist then, so all of them are new.
            notes.append(f"at {ref}: {error.message.splitlines()[0]}")
    judge = session.judge_of(before.inputs.spec if before.inputs is not None else None)
    old = session.report(then, judge=judge)
    compared = _compare(session, outcomes, report, then, old, ref, revision, notes)
    assert compared.diff is not None
    by_then = session.report(outcomes, judge=judge)
    return replace(
        compared, diff=replace(compared.diff, accepts=_find_acceptances(by_then, report))
    )


def _find_acceptances(by_then: Report, by_now: Report) -> tuple[Finding, ...]:
    """Return open findings of `by_then`, the same state under the old policy, reduced in `by_now`.

    The rest are acceptances: a waiver, a lower severity, a disabled rule, a longer list.
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
        # Findings about old waivers do not concern the current state.
        if finding.waived is None and rule_of(finding.rule).scope != "run" and is_less(finding)
    )


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


def _find_inputs(session: AuditSession, ref: str, revision: Revision) -> RevisionInputs:
    now = session.inputs
    notes = []
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
        spec, note = _load_spec(session, spec, ref, revision, bool(sources))
        notes += [note] if note else []
    if not sources and spec is None:
        return RevisionInputs(None, tuple(notes))
    return RevisionInputs(AuditInputs(sources, spec, revision.folder), tuple(notes))


def _load_spec(
    session: AuditSession, spec: Spec, ref: str, revision: Revision, has_sources: bool
) -> tuple[Spec | None, str]:
    """Return the specification of then, with a note."""
    below = os.path.relpath(spec.path.resolve(), session.inputs.root.resolve())
    path = revision.folder / below
    instead = spec if has_sources else None
    if not path.is_file():
        return (
            instead,
            "" if has_sources else f"{spec.path} does not exist at {ref}: all of it is new",
        )
    try:
        return session.options.workspace.load(path), ""
    except BuildmatrixError as error:
        first = error.message.splitlines()[0].removeprefix(f"{path}:")
        consequence = (
            "the current one is used for both sides" if has_sources else "everything counts as new"
        )
        return instead, f"{spec.path} at {ref} is wrong ({first.strip()}): {consequence}"


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
        notes += _compare_pythons(ref, old_locks.get(target.id), locks.get(target.id))
        comparison = compare(
            _make_side(ref, target.id, target.backend, old, old_locks.get(target.id)),
            _make_side("now", target.id, target.backend, report, locks.get(target.id)),
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
        notes.append(f"targets that no longer exist: {listing(gone, _MOST_NAMED)}")
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


def _compare_pythons(ref: str, then: Resolved | None, now: Resolved | None) -> Iterator[str]:
    """Yield a note if a target had another Python, which changes versions and wheels too."""
    if then is None or now is None or then.target.python == now.target.python:
        return
    yield (
        f"{now.target.id} is audited with Python {now.target.python}, and at {ref} with "
        f"{then.target.python}: some versions differ for that alone"
    )


def _make_side(
    source: str, id: str, backend: str, report: Report, resolved: Resolved | None
) -> Side:
    """Return one target of an audit; an empty side if missing or unresolved."""
    side = Side(source, "lock", targets={id: backend}, findings=(), verdicts=())
    if resolved is None:
        return side
    verdicts = {(v.name, v.version): v for v in report.distributions if v.is_about(id, backend)}
    mine = tuple(
        verdicts[package.name, package.version]
        for package in resolved.lock.packages
        if (package.name, package.version) in verdicts
    )
    side = add_lock(side, resolved.lock, lambda package: choose_wheel(package, resolved.target))
    totals = next((t.audit for t in report.targets if t.id == id), None)
    return replace(
        side,
        held=tuple(_add_size(held, verdicts.get((held.name, held.version))) for held in side.held),
        size=totals.installed if totals is not None else None,
        findings=tuple(f for f in report.findings if f.target == id),
        verdicts=mine,
        unread=(),
    )


def _add_size(held: HeldDistribution, verdict: Verdict | None) -> HeldDistribution:
    """Add the size of a wheel, which locks do not always have, from its verdict."""
    if verdict is None or held.download is not None:
        return held
    return replace(held, download=verdict.download)


def _is_worse(change: FindingChange) -> bool:
    """True if a finding is new, no longer accepted, or more severe than before."""
    before, after = change.before, change.after
    if after is None or before is None:
        return after is not None
    if after.waived is not None:
        return False
    return (
        before.waived is not None or SEVERITY_RANK[after.severity] > SEVERITY_RANK[before.severity]
    )


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
