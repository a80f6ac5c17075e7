"""What a lock of all platforms and extras comes to for one choice: a walk from its roots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from buildmatrix.locks.markers import BrokenMarker

#: Edges that one walk follows at most; the largest real locks have some 5000.
_MOST = 500_000


@dataclass(frozen=True, slots=True)
class LockEdge:
    """One wish of an entry for another."""

    #: Normalised name.
    name: str
    extras: frozenset[str] = frozenset()
    marker: str | None = None
    #: Version and source that the wish names, where a lock holds several entries of one name.
    version: str = ""
    source: object = None
    #: Range of versions that the wish allows, in the words of the tool that wrote it.
    allows: str = ""


@dataclass(frozen=True, slots=True)
class LockEntry:
    """One entry of a lock."""

    name: str
    version: str
    source: object
    #: Extra → what it asks for; the empty name for what is asked for always.
    wishes: Mapping[str, tuple[LockEdge, ...]]
    #: Markers, one of which must hold for the entry to be meant; none of them: always.
    forks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wish:
    """One thing that is asked for from outside the lock."""

    #: `file:line`.
    place: str
    edge: LockEdge


class Astray(ValueError):
    """A lock does not hold together; the message says where."""


def walk(
    wishes: Iterable[Wish],
    entries: Sequence[LockEntry],
    fits: Callable[[str | None, frozenset[str]], bool],
    allows: Callable[[LockEdge, LockEntry], bool],
    chosen: frozenset[str] = frozenset(),
) -> dict[int, set[str]]:
    """Index of each entry that is reached → who asked for it: `file:line`, and names.

    Args:
        wishes: where to start.
        entries: the whole lock.
        fits: whether a marker holds, given the extras of the entry that asks.
        allows: whether an entry may serve an edge that leads to its name.
        chosen: the extras of the project that are asked for, which the forks of entries may name.

    Raises:
        Astray: a wish leads nowhere, or a marker is none.
    """
    by_name: dict[str, list[int]] = {}
    for number, entry in enumerate(entries):
        by_name.setdefault(entry.name, []).append(number)
    askers: dict[int, set[str]] = {}
    extras: dict[int, frozenset[str]] = {}

    def is_meant(entry: LockEntry) -> bool:
        return not entry.forks or any(fits(marker, chosen) for marker in entry.forks)

    def find(edge: LockEdge, asker: str) -> int:
        found = by_name.get(edge.name, [])
        meant = [number for number in found if allows(edge, entries[number])]
        if len(meant) > 1:
            meant = [n for n in meant if is_meant(entries[n])] or meant
        if not meant:
            raise Astray(f"{asker} asks for `{edge.name}`, which the lock does not hold")
        return meant[0]

    queue: list[tuple[str, LockEdge, frozenset[str]]] = [
        (w.place, w.edge, frozenset()) for w in wishes
    ]
    for asker, edge, asked in queue:  # grows while it is walked
        if len(queue) > _MOST:
            raise Astray(f"more than {_MOST} dependencies lead out of it")
        try:
            if not fits(edge.marker, asked):
                continue
            number = find(edge, asker)
        except BrokenMarker as error:
            raise Astray(f"the marker of `{edge.name}` for {asker} is none: {error}") from error
        entry = entries[number]
        new = number not in askers
        askers.setdefault(number, set())
        if asker != entry.name:
            askers[number].add(asker)
        known = extras.get(number, frozenset())
        extras[number] = known | edge.extras
        if new or extras[number] != known:
            # An extra can also open a wish that stands among the plain ones, behind a marker.
            for extra in ("", *sorted(extras[number])):
                queue += [
                    (entry.name, wish, extras[number]) for wish in entry.wishes.get(extra, ())
                ]
    return askers
