"""What both sides of a comparison are read with, and what facts alone say of a side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from buildmatrix.catalogue.model import Evidence
from buildmatrix.commands.diff.model import Side
from buildmatrix.commands.diff.sides import with_inventory
from buildmatrix.commands.inspect.shares import sum_shares
from buildmatrix.inventory.model import Inventory
from buildmatrix.reports.run.model import FailOn
from buildmatrix.sources.model import Facts, ReadingOptions
from buildmatrix.spec.model import Spec, Waiver


@dataclass(frozen=True, slots=True)
class DiffSettings:
    """What both sides are read and judged with."""

    options: ReadingOptions
    #: The specification of this folder, or None where there is none.
    spec: Callable[[], Spec | None]
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
    """`side` with everything that its files say."""
    bytes_of: dict[tuple[str, str], int] = {}
    for share in sum_shares(seen):
        key = share.vendor, share.backend
        bytes_of[key] = bytes_of.get(key, 0) + share.size
    return replace(with_inventory(side, inventory, seen), vendors=bytes_of)
