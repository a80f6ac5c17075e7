"""Architectures of device code that came or went, for everything and for each distribution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from buildmatrix.catalogue.model import Evidence
from buildmatrix.parsing import natural
from buildmatrix.reports.diff.model import ArchitectureChange

Architectures = Mapping[tuple[str, str], frozenset[str]]


def architectures(evidence: Iterable[Evidence]) -> Architectures:
    """Distribution (empty for files that none owns) and vendor → architectures."""
    by_key: dict[tuple[str, str], set[str]] = {}
    for item in evidence:
        if item.architectures:
            owner = (item.distribution or "").partition("==")[0]
            by_key.setdefault((owner, item.vendor), set()).update(item.architectures)
    return {key: frozenset(names) for key, names in by_key.items()}


def compare_architectures(
    before: Architectures, after: Architectures, in_both: Iterable[str], *, whole: bool
) -> tuple[ArchitectureChange, ...]:
    """First what differs in all, by vendor, then by distribution, of those that are `in_both`.

    Of a distribution that came or went that is said already. `whole` is whether all device code of
    both sides is known: else nothing can be said of all of it.
    """
    changes = []
    for vendor in sorted({key[1] for key in (*before, *after)}) if whole else ():
        changes.append(_change(None, vendor, _all(before, vendor), _all(after, vendor)))
    both = set(in_both)
    for key in sorted({*before, *after}):
        if key[0] in both:
            nothing: frozenset[str] = frozenset()
            changes.append(_change(*key, before.get(key, nothing), after.get(key, nothing)))
    return tuple(change for change in changes if change.gained or change.lost)


def _all(by_key: Architectures, vendor: str) -> frozenset[str]:
    return frozenset(name for key, names in by_key.items() if key[1] == vendor for name in names)


def _change(
    distribution: str | None, vendor: str, before: frozenset[str], after: frozenset[str]
) -> ArchitectureChange:
    return ArchitectureChange(
        distribution, vendor, _in_order(after - before), _in_order(before - after)
    )


def _in_order(names: Iterable[str]) -> tuple[str, ...]:
    """`sm_90` before `sm_120`."""
    return tuple(sorted(names, key=natural))
