"""What a change brought (`audit --diff`), read back from the key `diff` of a saved report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from buildmatrix.errors import UsageError
from buildmatrix.reports.diff.model import (
    Comparison,
    DistributionChange,
    End,
    FindingChange,
    VerdictChange,
)
from buildmatrix.reports.run.model import Difference, Report, TargetDifference
from buildmatrix.rules.model import AuditTotals, Finding

#: A saved report does not say of either side what the other parts of it say.
_NOWHERE = End("", "lock", "", (), None, None, None, 0)


@dataclass(frozen=True, slots=True)
class _Changed:
    before: Finding
    after: Finding


@dataclass(frozen=True, slots=True)
class _Findings:
    same: int
    new: tuple[Finding, ...]
    gone: tuple[Finding, ...]
    changed: tuple[_Changed, ...]


@dataclass(frozen=True, slots=True)
class _Distributions:
    same: int
    changes: tuple[DistributionChange, ...]


@dataclass(frozen=True, slots=True)
class _Target:
    id: str
    backend: str
    before: AuditTotals | None
    after: AuditTotals | None
    findings: _Findings | None
    distributions: _Distributions
    verdicts: tuple[VerdictChange, ...] | None


@dataclass(frozen=True, slots=True)
class SavedDifference:
    """What `reports.run.revision_json` writes."""

    ref: str
    commit: str
    targets: tuple[_Target, ...]
    notes: tuple[str, ...]


def difference(saved: SavedDifference) -> Difference:
    """The difference that was saved."""
    targets = tuple(
        TargetDifference(one.id, one.backend, _comparison(one), one.before, one.after)
        for one in saved.targets
    )
    return Difference(saved.ref, saved.commit, targets, saved.notes)


def _comparison(one: _Target) -> Comparison:
    found = one.findings
    return Comparison(
        _NOWHERE,
        _NOWHERE,
        distributions=one.distributions.changes,
        same_distributions=one.distributions.same,
        findings=None if found is None else _findings(found),
        same_findings=found.same if found is not None else 0,
        verdicts=one.verdicts,
    )


def _findings(found: _Findings) -> tuple[FindingChange, ...]:
    return (
        *(FindingChange("added", None, one) for one in found.new),
        *(FindingChange("removed", one, None) for one in found.gone),
        *(FindingChange("changed", one.before, one.after) for one in found.changed),
    )


def merged(reports: Sequence[Report]) -> Difference | None:
    """The difference of several reports; None where none of them has one.

    Raises `UsageError` when they were not compared with the same commit.
    """
    found = [one.difference for one in reports]
    known = [one for one in found if one is not None]
    if not known:
        return None
    if len(known) < len(found) or len({one.commit for one in known}) > 1:
        raise UsageError(
            "not all of these reports tell what is new since the same commit; merge only reports "
            "of one run"
        )
    return replace(
        known[0],
        targets=tuple(target for one in known for target in one.targets),
        notes=tuple(dict.fromkeys(note for one in known for note in one.notes)),
    )
