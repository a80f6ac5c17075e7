"""Names of wheels and conda packages, and those that their own metadata state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from packaging.utils import InvalidWheelFilename, canonicalize_name
from packaging.version import InvalidVersion, Version

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.parsing import parse_version, parse_wheel_name, split_variant, version_or_none
from buildmatrix.facts.inventory.conda import CONDA_PREFIX
from buildmatrix.facts.inventory.model import Distribution, Inventory
from buildmatrix.locks.conda_packages import file_parts, is_conda_file, join_build
from buildmatrix.locks.index.model import WheelFacts


def check_name(filename: str, facts: WheelFacts) -> None:
    """Raise UndecidedError for a file whose metadata have another name than the file."""
    if is_conda_file(filename):
        _check_package(filename, facts)
        return
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


def _check_package(filename: str, facts: WheelFacts) -> None:
    name, version, build = file_parts(filename) or ("", "", "")
    expected = f"{CONDA_PREFIX}{name}=={join_build(version, build)}"
    for item in facts.inventory.distributions:
        if item.owner != expected:
            raise UndecidedError(
                f"{filename} holds {item.name.removeprefix(CONDA_PREFIX)} {item.version} by its "
                "own metadata: it is another package than its name says"
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
    if is_conda_file(facts.filename):
        return facts
    _, version, _, _ = parse_wheel_name(split_variant(facts.filename)[0])
    inventory = facts.inventory
    renamed = {
        item.owner: f"{item.name}=={version}"
        for item in inventory.distributions
        if version.local is not None and "+" not in item.version and "/" not in item.path
    }
    if not renamed:
        return facts
    distributions = tuple(
        replace(item, version=str(version)) if item.owner in renamed else item
        for item in inventory.distributions
    )
    inventory = replace(rename_owners(inventory, renamed), distributions=distributions)
    return replace(facts, inventory=inventory)


def rename_owners(inventory: Inventory, names: Mapping[str, str]) -> Inventory:
    """Return the inventory with other owners (`name==version`) of its facts."""
    changes: dict[str, Any] = {}
    for table in fields(inventory):
        rows = getattr(inventory, table.name)
        if isinstance(rows, tuple):
            changes[table.name] = tuple(_rename(row, names) for row in rows)
    return replace(inventory, **changes)


def _rename(row: Any, names: Mapping[str, str]) -> Any:
    new = {
        key: names[own]
        for key in ("owner", "provider")
        if key in getattr(row, "__dataclass_fields__", ()) and (own := getattr(row, key)) in names
    }
    return replace(row, **new) if new else row
