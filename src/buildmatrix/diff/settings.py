"""What both sides of a comparison are read with, and what facts alone tell of a side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.catalogue.model import Evidence
from buildmatrix.diff.model import Side
from buildmatrix.diff.sides import with_inventory
from buildmatrix.inspect.shares import shares
from buildmatrix.inventory.model import Inventory
from buildmatrix.progress import Progress
from buildmatrix.reports.run.model import FailOn
from buildmatrix.sources.known import Machine
from buildmatrix.sources.source import Facts
from buildmatrix.spec.model import Spec, Waiver

if TYPE_CHECKING:
    from buildmatrix.index.reading import Reader
    from buildmatrix.store.cache import Cache


@dataclass(frozen=True, slots=True)
class Index:
    """What reading wheels on an index needs."""

    reader: Reader
    progress: Progress
    #: Has what was resolved in the last minutes; None asks again.
    cache: Cache | None = None
    offline: bool = False
    #: Read whole wheels.
    deep: bool = False
    #: Minor version in place of the target's.
    python: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What both sides are read and judged with."""

    machine: Machine
    #: The specification of this folder, or None where there is none.
    spec: Callable[[], Spec | None]
    #: Opens the package index, for what is read there.
    index: Callable[[], Index]
    #: In place of what an image says of itself.
    backend: str | None = None
    #: For what says nothing of itself: the backend of the other side.
    fallback: str | None = None
    runtime: str | None = None
    #: Targets of a report, or of the specification for what would be locked.
    globs: tuple[str, ...] = ()
    fail_on: FailOn = "error"
    waivers: tuple[Waiver, ...] = ()
    #: The user's own data files for the catalogue.
    data_files: tuple[Path, ...] = ()
    today: date = date.min
    #: What was read in this run, by SOURCE.
    facts: dict[str, Facts] = field(default_factory=dict)


def with_facts(side: Side, inventory: Inventory, seen: Sequence[Evidence]) -> Side:
    """`side` with everything that its files tell."""
    bytes_of: dict[tuple[str, str], int] = {}
    for share in shares(seen):
        key = share.vendor, share.backend
        bytes_of[key] = bytes_of.get(key, 0) + share.size
    return replace(with_inventory(side, inventory, seen), vendors=bytes_of)
