"""Where each NEEDED entry of a tree leads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from buildmatrix.inventory.model import Unread

Rule = Literal[
    "loaded", "path", "rpath", "inherited-rpath", "environment", "runpath", "cache", "default"
]


@dataclass(frozen=True, slots=True)
class Needed:
    """How one NEEDED entry of one binary is resolved."""

    #: Path of the binary that needs it.
    binary: str
    #: The entry.
    name: str
    #: Path of the file that it leads to; None when no search path holds it.
    path: str | None
    rule: Rule | None = None
    #: Folders that were searched, in order, when it was not found.
    searched: tuple[str, ...] = ()
    #: Files of the tree that have this name or soname, when it was not found: a package may load
    #: one of them by its path (ctypes) before it is needed, as torch does.
    anywhere: tuple[str, ...] = ()
    #: `path:line` of a call in a Python file of the binary's distribution that names one of these.
    preloaded_from: str | None = None
    #: Path of the binary whose RPATH or RUNPATH led there; for `loaded` the one that needed it
    #: first.
    by: str | None = None
    #: The path at which it was found, before links were followed; a leading `/` is the tree's root.
    place: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """Files that it may lead to: the one that was found, else those of the same name."""
        return (self.path,) if self.path is not None else self.anywhere


@dataclass(frozen=True, slots=True)
class Resolution:
    """Every NEEDED entry of a tree."""

    #: Sorted by binary, in the order of its entries.
    needed: tuple[Needed, ...]
    #: Whether the tree holds a C library. Without one it is no root file system, and what the
    #: system provides cannot be found in it.
    is_root: bool
    #: Binaries that were not traced, with the reason.
    unread: tuple[Unread, ...] = ()
    #: What LD_PRELOAD and ld.so.preload put into programs: `binary` is the first such program.
    preloaded: tuple[Needed, ...] = ()

    @property
    def missing(self) -> tuple[Needed, ...]:
        """Entries whose name exists nowhere in the tree."""
        return tuple(needed for needed in self.needed if not needed.paths)

    def links(self) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
        """Return the path of a binary → NEEDED entry → files that it may lead to."""
        links: dict[str, dict[str, tuple[str, ...]]] = {}
        for item in self.needed:
            links.setdefault(item.binary, {})[item.name] = item.paths
        return links
