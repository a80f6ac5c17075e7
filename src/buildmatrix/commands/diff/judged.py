"""Findings and verdicts of two sides that were judged for the same backend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from buildmatrix.commands.diff.model import Side
from buildmatrix.reports.diff.model import ChangedFinding, FindingChanges, VerdictChange
from buildmatrix.rules.model import (
    SEVERITY_RANK,
    VERDICT_RANK,
    Finding,
    Verdict,
    VerdictName,
    keep_worst,
)

_Key = tuple[str, str]


def pairs(before: Side, after: Side) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Target → what it is called in the comparison, for either side.

    Where each side has one target, they are compared whatever they are called.
    """
    if len(before.targets) == len(after.targets) == 1:
        return dict.fromkeys(before.targets, ""), dict.fromkeys(after.targets, "")
    return {id: id for id in before.targets}, {id: id for id in after.targets}


def compare_findings(before: Side, after: Side) -> FindingChanges:
    """Findings that are new, gone, or count otherwise, the severe first; how many stay.

    A finding is the same where its fingerprint is, on the same target: it outlives an upgrade of
    the distribution that it is about.
    """
    names = pairs(before, after)
    old = _by_key(before.findings or (), names[0])
    new = _by_key(after.findings or (), names[1])
    changed = []
    for key in old.keys() & new.keys():
        was, now = old[key], new[key]
        if (was.severity, was.waived is None) != (now.severity, now.waived is None):
            changed.append(ChangedFinding(was, now))
    return FindingChanges(
        len(old.keys() & new.keys()) - len(changed),
        tuple(sorted((new[key] for key in new.keys() - old.keys()), key=_order)),
        tuple(sorted((old[key] for key in old.keys() - new.keys()), key=_order)),
        tuple(sorted(changed, key=lambda changed_finding: _order(changed_finding.after))),
    )


def _by_key(findings: Iterable[Finding], names: Mapping[str, str]) -> dict[_Key, Finding]:
    by_key: dict[_Key, Finding] = {}
    for finding in findings:
        by_key.setdefault((names.get(finding.target, finding.target), finding.fingerprint), finding)
    return by_key


def _order(finding: Finding) -> tuple[bool, int, str, str, str, str, str]:
    return (
        finding.waived is not None,
        -SEVERITY_RANK[finding.severity],
        finding.target,
        finding.rule,
        finding.distribution or "",
        finding.path or "",
        finding.fingerprint,
    )


def compare_verdicts(before: Side, after: Side) -> tuple[VerdictChange, ...]:
    """Verdicts that differ, the worst of now first."""
    old, new = _worst(before.verdicts or ()), _worst(after.verdicts or ())
    changes = []
    for key in sorted({*old, *new}):
        verdict, other = old.get(key), new.get(key)
        names = (verdict.verdict if verdict else None), (other.verdict if other else None)
        if names[0] == names[1] or not {*names} - {None, "ok"}:
            continue
        latest = other or verdict
        assert latest is not None
        changes.append(
            VerdictChange(
                *key,
                *names,
                latest.reason,
                verdict.foreign_bytes if verdict else 0,
                other.foreign_bytes if other else 0,
            )
        )
    return tuple(
        sorted(changes, key=lambda change: (-_badness(change.after), change.name, change.backend))
    )


def _worst(verdicts: Iterable[Verdict]) -> dict[_Key, Verdict]:
    worst: dict[_Key, Verdict] = {}
    for verdict in verdicts:
        keep_worst(worst, (verdict.name, verdict.backend), verdict)
    return worst


def _badness(verdict: VerdictName | None) -> int:
    return -1 if verdict is None else VERDICT_RANK[verdict]
