"""Gained and lost architectures of device code, overall and per distribution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from buildmatrix.catalogue.model import Evidence
from buildmatrix.parsing import natural
from buildmatrix.reports.diff.model import ArchitectureChange

Architectures = Mapping[tuple[str, str], frozenset[str]]


def group_architectures(evidence: Iterable[Evidence]) -> Architectures:
    """Map distribution (empty for files of none) and vendor to architectures."""
    by_key: dict[tuple[str, str], set[str]] = {}
    for item in evidence:
        if item.architectures:
            owner = (item.distribution or "").partition("==")[0]
            by_key.setdefault((owner, item.vendor), set()).update(item.architectures)
    return {key: frozenset(names) for key, names in by_key.items()}


def compare_architectures(
    before: Architectures, after: Architectures, in_both: Iterable[str], *, whole: bool
) -> tuple[ArchitectureChange, ...]:
    """Return the overall differences by vendor, then those of distributions `in_both` sides.

    Added and removed distributions are reported elsewhere. `whole` is True if all device code of
    both sides is known; otherwise there is no overall comparison.
    """
    changes = []
    for vendor in sorted({key[1] for key in (*before, *after)}) if whole else ():
        changes.append(
            _make_change(None, vendor, _merge_vendor(before, vendor), _merge_vendor(after, vendor))
        )
    both = set(in_both)
    for key in sorted({*before, *after}):
        if key[0] in both:
            nothing: frozenset[str] = frozenset()
            changes.append(_make_change(*key, before.get(key, nothing), after.get(key, nothing)))
    return tuple(change for change in changes if change.gained or change.lost)


def _merge_vendor(by_key: Architectures, vendor: str) -> frozenset[str]:
    return frozenset(name for key, names in by_key.items() if key[1] == vendor for name in names)


def _make_change(
    distribution: str | None, vendor: str, before: frozenset[str], after: frozenset[str]
) -> ArchitectureChange:
    return ArchitectureChange(
        distribution, vendor, _sort_naturally(after - before), _sort_naturally(before - after)
    )


def _sort_naturally(names: Iterable[str]) -> tuple[str, ...]:
    """Sort naturally: `sm_90` before `sm_120`."""
    return tuple(sorted(names, key=natural))
