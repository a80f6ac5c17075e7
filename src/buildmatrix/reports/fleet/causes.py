"""Causes that many images share: one fix for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from buildmatrix.reports.fleet.model import FleetFinding, FleetResult, finding_order
from buildmatrix.rules.model import SEVERITY_RANK

#: The fix; or rule, vendor and what it is about.
Key: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FleetCause:
    """Open findings that one fix cures, or of one rule about the same without a fix."""

    key: Key
    #: The one that weighs most.
    first: FleetFinding
    #: Codes of all of them; what is wrong in one place may break several rules.
    rules: tuple[str, ...]
    #: What findings are about: distributions, else paths; those of most images first.
    about: tuple[str, ...]
    results: tuple[FleetResult, ...]
    #: Bytes of no use that it brings, installed, of all images together. Another cause may bring
    #: the same ones.
    size: int

    @property
    def fix(self) -> str | None:
        """The one thing to do; None where none is known."""
        return self.first.fix

    @property
    def title(self) -> str:
        """Short title."""
        more = f" and {len(self.about) - 1} more" if len(self.about) > 1 else ""
        return f"{self.about[0]}{more}" if self.about else self.first.message

    @property
    def owners(self) -> tuple[str, ...]:
        """Whom the images belong to, where somebody is named."""
        return tuple(sorted({result.owner for result in self.results if result.owner}))


def cause_key(finding: FleetFinding) -> Key:
    """Findings of one key are one cause: cured by one fix, or of one rule about the same."""
    if finding.fix:
        return (finding.fix,)
    about = finding.distribution or finding.path or finding.message
    return (finding.rule, finding.vendor or "", about)


def counts(finding: FleetFinding) -> bool:
    """Return True if the finding asks for action."""
    return finding.waived is None and finding.severity != "note"


@dataclass(slots=True)
class _Gathered:
    findings: dict[FleetFinding, int] = field(default_factory=dict)
    about: dict[str, int] = field(default_factory=dict)
    results: dict[int, FleetResult] = field(default_factory=dict)
    size: int = 0


def causes(results: Iterable[FleetResult]) -> Sequence[FleetCause]:
    """Errors before warnings, then what brings most bytes, then what most images have."""
    gathered: dict[Key, _Gathered] = {}
    for result in results:
        # Of the bytes of one distribution several findings may speak.
        sizes: dict[tuple[Key, str], int] = {}
        for finding in filter(counts, result.findings):
            key = cause_key(finding)
            group = gathered.setdefault(key, _Gathered())
            group.findings[finding] = group.findings.get(finding, 0) + 1
            group.results[id(result)] = result
            about = finding.distribution or finding.path or ""
            if about:
                group.about[about] = group.about.get(about, 0) + 1
            sizes[key, about] = max(sizes.get((key, about), 0), finding.size)
        for (key, _), size in sizes.items():
            gathered[key].size += size
    return sorted((_cause(key, group) for key, group in gathered.items()), key=_place)


def _cause(key: Key, group: _Gathered) -> FleetCause:
    return FleetCause(
        key,
        min(group.findings, key=finding_order),
        tuple(sorted({finding.rule for finding in group.findings})),
        tuple(sorted(group.about, key=lambda name: (-group.about[name], name))),
        tuple(group.results.values()),
        group.size,
    )


def _place(cause: FleetCause) -> tuple[object, ...]:
    rank = SEVERITY_RANK[cause.first.severity]
    return (-rank, -cause.size, -len(cause.results), cause.key)
