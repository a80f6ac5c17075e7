"""Join of the conda packages and Python distributions of an environment.

A conda package with a single Python distribution becomes that distribution, with all of its files.
Any other becomes a distribution of its own. Files in a Python distribution's RECORD stay with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from buildmatrix.inventory.conda import CondaPackage, read_conda_packages
from buildmatrix.inventory.listing import Listing
from buildmatrix.inventory.model import Distribution
from buildmatrix.inventory.names import distribution_name

#: Installer name for conda, mamba and pixi, which write the same records.
CONDA = "conda"


@dataclass(frozen=True, slots=True)
class RecordedDistribution:
    """A distribution, and the files of its record: path in the tree to hash as written, or ``."""

    distribution: Distribution
    record: Mapping[str, str]


def merge_conda_packages(
    listing: Listing, python_distributions: Sequence[RecordedDistribution]
) -> list[RecordedDistribution]:
    """Return the Python distributions and the packages of the tree's conda environments."""
    packages = read_conda_packages(listing)
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
            by_path[paths[0]] = _add_files(
                listing, by_path[paths[0]], unclaimed, requested=package.requested
            )
        else:
            alone = RecordedDistribution(_make_distribution(package, names), {})
            additional.append(_add_files(listing, alone, unclaimed, requested=package.requested))
    return [*by_path.values(), *additional]


def _make_distribution(
    conda_package: CondaPackage, names: Mapping[tuple[str, str], str]
) -> Distribution:
    """Make a distribution of a non-Python package; it requires its installed dependencies."""
    requires = (names.get((conda_package.prefix, name)) for name in conda_package.depends)
    return Distribution(
        name=distribution_name(conda_package.name),
        version=conda_package.version,
        path=conda_package.path,
        requires=tuple(dict.fromkeys(name for name in requires if name is not None)),
        license=conda_package.license,
    )


def _add_files(
    listing: Listing, recorded: RecordedDistribution, files: Mapping[str, str], *, requested: bool
) -> RecordedDistribution:
    """Return a distribution that also owns `files`, installed by conda."""
    record = {**recorded.record, **files}
    distribution = replace(
        recorded.distribution,
        installer=recorded.distribution.installer or CONDA,
        requested=recorded.distribution.requested or requested,
        files=len(record),
        size=sum(listing.files[path].size for path in record),
        has_record=True,
    )
    return RecordedDistribution(distribution, record)
