"""Entries of a lock of all platforms and extras, and the edges between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


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


class InconsistentLock(ValueError):
    """A lock does not hold together; the message says where."""


def in_order(
    entries: Sequence[LockEntry], askers: Mapping[int, set[str]]
) -> list[tuple[LockEntry, tuple[str, ...]]]:
    """Entries by name and version, with what requires them; `askers` has it by their index."""
    return sorted(
        ((entries[number], tuple(sorted(names))) for number, names in askers.items()),
        key=lambda reached: (reached[0].name, reached[0].version),
    )
