"""The part of a lock of all platforms and extras that one selection installs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from buildmatrix.locks.markers import BrokenMarker

#: Edges that one walk follows at most; the largest real locks have some 5000.
_MOST = 500_000


@dataclass(frozen=True, slots=True)
class LockEdge:
    """One dependency of an entry on another."""

    #: Normalized name.
    name: str
    extras: frozenset[str] = frozenset()
    marker: str | None = None
    #: Version and source that the dependency names, where a lock holds several entries of one name.
    version: str = ""
    source: object = None
    #: Range of versions that the dependency allows, in the syntax of the tool that wrote it.
    allows: str = ""


@dataclass(frozen=True, slots=True)
class LockEntry:
    """One entry of a lock."""

    name: str
    version: str
    #: As the lock has it.
    table: Mapping[str, object]
    #: `file:line`; empty where that is not known.
    place: str
    #: Extra → what it requires; the empty name for what is always required.
    dependencies: Mapping[str, tuple[LockEdge, ...]]
    #: Markers, one of which must hold for the entry to apply; it always applies without any.
    forks: tuple[str, ...] = ()

    @property
    def source(self) -> object:
        """Where its files are, in the words of the tool that wrote the lock."""
        return self.table.get("source")


@dataclass(frozen=True, slots=True)
class LockRoot:
    """One requirement from outside the lock."""

    #: `file:line`.
    place: str
    edge: LockEdge


class InconsistentLock(ValueError):
    """A lock does not hold together; the message says where."""


def walk(
    roots: Iterable[LockRoot],
    entries: Sequence[LockEntry],
    fits: Callable[[str | None, frozenset[str]], bool],
    allows: Callable[[LockEdge, LockEntry], bool],
    chosen: frozenset[str] = frozenset(),
) -> list[tuple[LockEntry, tuple[str, ...]]]:
    """The entries that are reached, in order, each with what requires it: `file:line`, and names.

    Args:
        roots: where to start.
        entries: the whole lock.
        fits: whether a marker holds, given the active extras of the entry that has it.
        allows: whether an entry may serve an edge that leads to its name.
        chosen: the selected extras of the project, which the forks of entries may name.

    Raises:
        InconsistentLock: a dependency is not in the lock, or a marker is not valid.
    """
    by_name: dict[str, list[int]] = {}
    for number, entry in enumerate(entries):
        by_name.setdefault(entry.name, []).append(number)
    askers: dict[int, set[str]] = {}
    extras: dict[int, frozenset[str]] = {}

    def applies(entry: LockEntry) -> bool:
        return not entry.forks or any(fits(marker, chosen) for marker in entry.forks)

    def find(edge: LockEdge, asker: str) -> int:
        candidates = by_name.get(edge.name, [])
        fitting = [number for number in candidates if allows(edge, entries[number])]
        if len(fitting) > 1:
            fitting = [n for n in fitting if applies(entries[n])] or fitting
        if not fitting:
            raise InconsistentLock(f"{asker} asks for `{edge.name}`, which the lock does not hold")
        return fitting[0]

    queue: list[tuple[str, LockEdge, frozenset[str]]] = [
        (w.place, w.edge, frozenset()) for w in roots
    ]
    for asker, edge, active_extras in queue:  # grows while it is walked
        if len(queue) > _MOST:
            raise InconsistentLock(f"more than {_MOST} dependencies lead out of it")
        try:
            if not fits(edge.marker, active_extras):
                continue
            number = find(edge, asker)
        except BrokenMarker as error:
            raise InconsistentLock(
                f"the marker of `{edge.name}` for {asker} is not valid: {error}"
            ) from error
        entry = entries[number]
        new = number not in askers
        askers.setdefault(number, set())
        if asker != entry.name:
            askers[number].add(asker)
        extras_before = extras.get(number, frozenset())
        extras[number] = extras_before | edge.extras
        if new or extras[number] != extras_before:
            # An extra can also activate a plain dependency, through its marker.
            for extra in ("", *sorted(extras[number])):
                queue += [
                    (entry.name, dependency, extras[number])
                    for dependency in entry.dependencies.get(extra, ())
                ]
    return in_order(entries, askers)


def in_order(
    entries: Sequence[LockEntry], askers: Mapping[int, set[str]]
) -> list[tuple[LockEntry, tuple[str, ...]]]:
    """Entries by name and version, with what requires them; `askers` has it by their index."""
    return sorted(
        ((entries[number], tuple(sorted(names))) for number, names in askers.items()),
        key=lambda reached: (reached[0].name, reached[0].version),
    )
