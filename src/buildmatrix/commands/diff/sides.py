"""Inventories, verdicts and locks → sides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from buildmatrix.catalogue.model import Evidence
from buildmatrix.commands.diff.architectures import architectures
from buildmatrix.commands.diff.libraries import libraries
from buildmatrix.commands.diff.model import HeldDistribution, Side
from buildmatrix.inventory.model import Inventory
from buildmatrix.locks.model import Lock, Package, Wheel
from buildmatrix.rules.model import Verdict


def with_inventory(side: Side, inventory: Inventory, evidence: Iterable[Evidence]) -> Side:
    """`side` with everything that the facts of a tree say."""
    seen = tuple(evidence)
    return replace(
        side,
        held=held_of(inventory),
        libraries=libraries(inventory, seen),
        architectures=architectures(seen),
        partial=_partial(inventory),
        size=inventory.stats.bytes_total,
        layers=inventory.layers or None,
        environment=inventory.environment if side.kind == "image" else None,
        unread=inventory.unread,
    )


def held_of(inventory: Inventory) -> tuple[HeldDistribution, ...]:
    """The distributions of a tree."""
    binaries: dict[str, dict[str, tuple[int, str]]] = {}
    for binary in inventory.binaries:
        if binary.owner is not None:
            files = binaries.setdefault(binary.owner, {})
            files[_inside(binary.path)] = binary.size, binary.elf.build_id or ""
    for file in inventory.closed:
        if file.owner is not None:
            binaries.setdefault(file.owner, {})[_inside(file.path)] = file.size, ""
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


def _partial(inventory: Inventory) -> frozenset[str]:
    """Distributions with files that were read in part, or not at all."""
    owners = [binary.owner for binary in inventory.binaries if binary.elf.read is not None]
    owners += [file.owner for file in inventory.closed]
    return frozenset(owner.partition("==")[0] for owner in owners if owner is not None)


def _inside(path: str) -> str:
    """The path as seen from site-packages, which lies elsewhere with another Python."""
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in path:
            return path.rpartition(folder)[2]
    return path


def held_of_verdicts(verdicts: Iterable[Verdict]) -> tuple[HeldDistribution, ...]:
    """The distributions that a report is about."""
    return tuple(
        dict.fromkeys(
            HeldDistribution(
                v.name, v.version, backend=v.backend, download=v.download, sha256=v.sha256
            )
            for v in verdicts
        )
    )


def architectures_of(verdicts: Iterable[Verdict]) -> Mapping[tuple[str, str], frozenset[str]]:
    """Distribution and vendor → architectures, which is all that a report says of them."""
    by_key: dict[tuple[str, str], frozenset[str]] = {}
    for verdict in verdicts:
        for vendor, names in verdict.architectures.items():
            key = verdict.name, vendor
            by_key[key] = by_key.get(key, frozenset()) | frozenset(names)
    return by_key


def partial_of(verdicts: Iterable[Verdict]) -> frozenset[str]:
    """Distributions that an audit judged by part of their files."""
    return frozenset(verdict.name for verdict in verdicts if verdict.depth not in (None, "whole"))


def with_lock(side: Side, lock: Lock, chosen: Callable[[Package], Wheel | None]) -> Side:
    """`side` with what a lock says: which wheel of which index an installer takes."""
    by_version = {(held.name, held.version): held for held in side.held}
    return replace(
        side,
        held=tuple(
            _locked(package, chosen(package), by_version.get((package.name, package.version)))
            for package in lock.packages
        ),
    )


def _locked(
    package: Package, wheel: Wheel | None, read: HeldDistribution | None
) -> HeldDistribution:
    held = read or HeldDistribution(package.name, package.version)
    return replace(
        held,
        download=wheel.size if wheel is not None else None,
        wheel=wheel.filename if wheel is not None else None,
        sha256=(wheel.sha256 or None) if wheel is not None else None,
        index=package.index,
    )
