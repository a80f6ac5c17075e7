"""Sides from inventories, verdicts and locks, and the settings for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from buildmatrix.catalogue.model import Evidence
from buildmatrix.commands.diff.contents import find_libraries, group_architectures
from buildmatrix.commands.diff.model import HeldDistribution, Side
from buildmatrix.commands.inspect.contents import sum_shares
from buildmatrix.commands.options import DiffOptions
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.locks.model import Lock, Package, Wheel
from buildmatrix.matrix.model import Spec, Waiver
from buildmatrix.sources.model import Facts, ReadingOptions


def add_facts(side: Side, inventory: Inventory, seen: Sequence[Evidence]) -> Side:
    """Return `side` with the facts of its files."""
    # Whose files were read partly or not at all.
    owners = [binary.owner for binary in inventory.binaries if binary.elf.read is not None]
    owners += [file.owner for file in inventory.closed]
    vendors: dict[tuple[str, str], int] = {}
    for share in sum_shares(seen):
        key = share.vendor, share.backend
        vendors[key] = vendors.get(key, 0) + share.size
    return replace(
        side,
        held=_list_distributions(inventory),
        libraries=find_libraries(inventory, seen),
        architectures=group_architectures(seen),
        partial=frozenset(owner.partition("==")[0] for owner in owners if owner is not None),
        vendors=vendors,
        size=inventory.stats.bytes_total,
        layers=inventory.layers or None,
        environment=inventory.environment if side.kind == "image" else None,
        unread=inventory.unread,
    )


def _list_distributions(inventory: Inventory) -> tuple[HeldDistribution, ...]:
    binaries: dict[str, dict[str, tuple[int, str]]] = {}
    for binary in inventory.binaries:
        if binary.owner is not None:
            files = binaries.setdefault(binary.owner, {})
            files[_relative_path(binary.path)] = binary.size, binary.elf.build_id or ""
    for file in inventory.closed:
        if file.owner is not None:
            binaries.setdefault(file.owner, {})[_relative_path(file.path)] = file.size, ""
    return tuple(
        HeldDistribution(
            distribution.name,
            distribution.version,
            size=distribution.size if distribution.has_record else None,
            record=distribution.record,
            requires=distribution.requires,
            binaries=binaries.get(distribution.owner, {}),
        )
        for distribution in inventory.distributions
    )


def _relative_path(path: str) -> str:
    """Return the path relative to site-packages, which depends on the Python."""
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in path:
            return path.rpartition(folder)[2]
    return path


def add_lock(side: Side, lock: Lock, chosen: Callable[[Package], Wheel | None]) -> Side:
    """Return `side` with the data of a lock: the wheel and index that an installer takes."""
    by_version = {(held.name, held.version): held for held in side.held}
    held = []
    for package in lock.packages:
        key, wheel = (package.name, package.version), chosen(package)
        read = replace(by_version.get(key) or HeldDistribution(*key), index=package.index)
        download, filename, sha256 = (
            (wheel.size, wheel.filename, wheel.sha256 or None) if wheel else (None, None, None)
        )
        held.append(replace(read, download=download, wheel=filename, sha256=sha256))
    return replace(side, held=tuple(held))


# Settings for both sides


@dataclass(frozen=True, slots=True)
class DiffSettings:
    """Settings for reading and judging both sides."""

    options: DiffOptions
    reading: ReadingOptions
    #: The specification of this folder, or None.
    spec: Callable[[], Spec | None]
    waivers: tuple[Waiver, ...]
    #: The user's own data files for the catalogue.
    data_files: tuple[Path, ...]
    today: date
    #: For sides without a backend: that of the other side.
    fallback: str | None = None
    #: Facts read in this run, by SOURCE.
    facts: dict[str, Facts] = field(default_factory=dict)
