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


def pair_targets(before: Side, after: Side) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Map the targets of either side to their names in the comparison.

    If each side has one target, these are compared under any names.
    """
    if len(before.targets) == len(after.targets) == 1:
        return dict.fromkeys(before.targets, ""), dict.fromkeys(after.targets, "")
    return {id: id for id in before.targets}, {id: id for id in after.targets}


def compare_findings(before: Side, after: Side) -> FindingChanges:
    """Return new, removed and changed findings, by severity, and the number of the others.

    Findings are the same if they have the same fingerprint and target: a finding outlives an
    upgrade of its distribution.
    """
    names = pair_targets(before, after)
    old = _index_findings(before.findings or (), names[0])
    new = _index_findings(after.findings or (), names[1])
    changed = []
    for key in old.keys() & new.keys():
        was, now = old[key], new[key]
        if (was.severity, was.waived is None) != (now.severity, now.waived is None):
            changed.append(ChangedFinding(was, now))
    return FindingChanges(
        len(old.keys() & new.keys()) - len(changed),
        tuple(sorted((new[key] for key in new.keys() - old.keys()), key=_sort_key)),
        tuple(sorted((old[key] for key in old.keys() - new.keys()), key=_sort_key)),
        tuple(sorted(changed, key=lambda changed_finding: _sort_key(changed_finding.after))),
    )


def _index_findings(findings: Iterable[Finding], names: Mapping[str, str]) -> dict[_Key, Finding]:
    by_key: dict[_Key, Finding] = {}
    for finding in findings:
        by_key.setdefault((names.get(finding.target, finding.target), finding.fingerprint), finding)
    return by_key


def _sort_key(finding: Finding) -> tuple[bool, int, str, str, str, str, str]:
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
    """Return changed verdicts, the worst current ones first."""
    old, new = _find_worst(before.verdicts or ()), _find_worst(after.verdicts or ())
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
        sorted(changes, key=lambda change: (-_rank(change.after), change.name, change.backend))
    )


def _find_worst(verdicts: Iterable[Verdict]) -> dict[_Key, Verdict]:
    worst: dict[_Key, Verdict] = {}
    for verdict in verdicts:
        keep_worst(worst, (verdict.name, verdict.backend), verdict)
    return worst


def _rank(verdict: VerdictName | None) -> int:
    return -1 if verdict is None else VERDICT_RANK[verdict]
