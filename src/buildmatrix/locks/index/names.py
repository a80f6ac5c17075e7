"""Names of wheels, and those that their own metadata state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from packaging.utils import InvalidWheelFilename, canonicalize_name
from packaging.version import InvalidVersion, Version

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.parsing import parse_version, parse_wheel_name, split_variant, version_or_none
from buildmatrix.facts.inventory.model import Distribution
from buildmatrix.locks.index.model import WheelFacts


def check_name(filename: str, facts: WheelFacts) -> None:
    """Raise UndecidedError for a wheel whose metadata have another name than the file."""
    try:
        plain, label = split_variant(filename)
        name, version, _, _ = parse_wheel_name(plain)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise UndecidedError(f"{filename} is not a valid name of a wheel: {error}") from error
    # Metadata of bundled libraries are deeper, and not about the wheel.
    distributions = [
        distribution
        for distribution in facts.inventory.distributions
        if distribution.path.endswith(".dist-info") and "/" not in distribution.path
    ]
    if not distributions:
        raise UndecidedError(f"{filename} has no metadata folder (.dist-info): it is not a wheel")
    if all(_is_called(distribution, name, version) for distribution in distributions):
        _check_label(filename, label, distributions)
        return
    names = ", ".join(
        f"{distribution.name} {distribution.version}" for distribution in distributions[:3]
    )
    raise UndecidedError(
        f"{filename} holds {names} by its own metadata, not {name} {version}; installers refuse it"
    )


def _check_label(filename: str, label: str | None, distributions: Sequence[Distribution]) -> None:
    """Raise UndecidedError for a variant whose metadata have another label than its name."""
    labels = {item.variant.label if item.variant is not None else None for item in distributions}
    if label is not None and labels != {label}:
        own = ", ".join(sorted(name or "no variant" for name in labels))
        raise UndecidedError(
            f"{filename} is the variant {label} by its name, and {own} by its own metadata"
        )


def _is_called(distribution: Distribution, name: str, version: Version) -> bool:
    """Return True if metadata fit a file name; they may lack its local version (pip, uv)."""
    own = version_or_none(distribution.version)
    return canonicalize_name(distribution.name) == name and (
        own == version or own == parse_version(version.public)
    )


def apply_file_version(facts: WheelFacts) -> WheelFacts:
    """Return the facts under the file name's version, if the metadata lack its local part."""
    _, version, _, _ = parse_wheel_name(split_variant(facts.filename)[0])
    inventory = facts.inventory
    renamed = {
        item.owner: f"{item.name}=={version}"
        for item in inventory.distributions
        if version.local is not None and "+" not in item.version and "/" not in item.path
    }
    if not renamed:
        return facts
    changes: dict[str, Any] = {}
    for table in fields(inventory):
        rows = getattr(inventory, table.name)
        if not isinstance(rows, tuple):
            continue
        changed = []
        for row in rows:
            new = {
                key: renamed[own]
                for key in ("owner", "provider")
                if key in getattr(row, "__dataclass_fields__", ())
                and (own := getattr(row, key)) in renamed
            }
            if isinstance(row, Distribution) and row.owner in renamed:
                new = {"version": str(version)}
            changed.append(replace(row, **new) if new else row)
        changes[table.name] = tuple(changed)
    return replace(facts, inventory=replace(inventory, **changes))
