"""Settings for both sides of a comparison, and the facts of one side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from buildmatrix.catalogue.model import Evidence
from buildmatrix.commands.diff.model import Side
from buildmatrix.commands.diff.sides import add_inventory
from buildmatrix.commands.inspect.shares import sum_shares
from buildmatrix.inventory.model import Inventory
from buildmatrix.rules.acceptance import FailOn
from buildmatrix.sources.model import Facts, ReadingOptions
from buildmatrix.spec.model import Spec, Waiver


@dataclass(frozen=True, slots=True)
class DiffSettings:
    """Settings for reading and judging both sides."""

    options: ReadingOptions
    #: The specification of this folder, or None.
    spec: Callable[[], Spec | None]
    #: Overrides the backend in an image's labels.
    backend: str | None = None
    #: For sides without a backend: that of the other side.
    fallback: str | None = None
    runtime: str | None = None
    #: Targets of a report, or of the specification to be locked.
    globs: tuple[str, ...] = ()
    fail_on: FailOn = "error"
    waivers: tuple[Waiver, ...] = ()
    #: The user's own data files for the catalogue.
    data_files: tuple[Path, ...] = ()
    today: date = date.min
    #: Facts read in this run, by SOURCE.
    facts: dict[str, Facts] = field(default_factory=dict)


def add_facts(side: Side, inventory: Inventory, seen: Sequence[Evidence]) -> Side:
    """Return `side` with the facts of its files."""
    bytes_of: dict[tuple[str, str], int] = {}
    for share in sum_shares(seen):
        key = share.vendor, share.backend
        bytes_of[key] = bytes_of.get(key, 0) + share.size
    return replace(add_inventory(side, inventory, seen), vendors=bytes_of)
