"""Conda packages and Python distributions of one environment → distributions, each of them once.

A conda package that brought one Python distribution is that distribution, with all of its files.
Any other is a distribution of its own. What a Python distribution's RECORD lists stays its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from buildmatrix.inventory.conda import CondaPackage, conda_packages
from buildmatrix.inventory.listing import Listing
from buildmatrix.inventory.model import Distribution
from buildmatrix.inventory.names import distribution_name

#: The installer of what conda, mamba and pixi put in place: each of them writes the same records.
CONDA = "conda"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A distribution, and what its record claims: path in the tree → hash as written, or ``."""

    distribution: Distribution
    record: Mapping[str, str]


def with_conda(listing: Listing, python_distributions: Sequence[Recorded]) -> list[Recorded]:
    """`found`, and the packages of the tree's conda environments."""
    packages = conda_packages(listing)
    by_path = {recorded.distribution.path: recorded for recorded in python_distributions}
    brought = {
        conda_package.path: [path for path in conda_package.metadata if path in by_path]
        for conda_package in packages
    }
    names = {
        (conda_package.prefix, conda_package.name): by_path[
            brought[conda_package.path][0]
        ].distribution.name
        if len(brought[conda_package.path]) == 1
        else distribution_name(conda_package.name)
        for conda_package in packages
    }
    additional = []
    for package in packages:
        paths = brought[package.path]
        claimed = {path for place in paths for path in by_path[place].record}
        unclaimed = {path: digest for path, digest in package.files.items() if path not in claimed}
        if len(paths) == 1:
            by_path[paths[0]] = _with_files(
                listing, by_path[paths[0]], unclaimed, requested=package.requested
            )
        else:
            alone = Recorded(_alone(package, names), {})
            additional.append(_with_files(listing, alone, unclaimed, requested=package.requested))
    return [*by_path.values(), *additional]


def _alone(conda_package: CondaPackage, names: Mapping[tuple[str, str], str]) -> Distribution:
    """A package that is no Python distribution; it requires what is there of its dependencies."""
    requires = (names.get((conda_package.prefix, name)) for name in conda_package.depends)
    return Distribution(
        name=distribution_name(conda_package.name),
        version=conda_package.version,
        path=conda_package.path,
        requires=tuple(dict.fromkeys(name for name in requires if name is not None)),
        license=conda_package.license,
    )


def _with_files(
    listing: Listing, recorded: Recorded, files: Mapping[str, str], *, requested: bool
) -> Recorded:
    """A distribution that owns `files`, too, and that conda installed."""
    record = {**recorded.record, **files}
    distribution = replace(
        recorded.distribution,
        installer=recorded.distribution.installer or CONDA,
        requested=recorded.distribution.requested or requested,
        files=len(record),
        size=sum(listing.files[path].size for path in record),
        has_record=True,
    )
    return Recorded(distribution, record)
