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


def with_conda(listing: Listing, found: Sequence[Recorded]) -> list[Recorded]:
    """`found`, and the packages of the tree's conda environments."""
    packages = conda_packages(listing)
    known = {one.distribution.path: one for one in found}
    brought = {one.path: [path for path in one.metadata if path in known] for one in packages}
    names = {
        (one.prefix, one.name): known[brought[one.path][0]].distribution.name
        if len(brought[one.path]) == 1
        else distribution_name(one.name)
        for one in packages
    }
    others = []
    for one in packages:
        paths = brought[one.path]
        claimed = {path for place in paths for path in known[place].record}
        own = {path: digest for path, digest in one.files.items() if path not in claimed}
        if len(paths) == 1:
            known[paths[0]] = _with_files(listing, known[paths[0]], own, requested=one.requested)
        else:
            alone = Recorded(_alone(one, names), {})
            others.append(_with_files(listing, alone, own, requested=one.requested))
    return [*known.values(), *others]


def _alone(one: CondaPackage, names: Mapping[tuple[str, str], str]) -> Distribution:
    """A package that is no Python distribution; it requires what is there of its dependencies."""
    requires = (names.get((one.prefix, name)) for name in one.depends)
    return Distribution(
        name=distribution_name(one.name),
        version=one.version,
        path=one.path,
        requires=tuple(dict.fromkeys(name for name in requires if name is not None)),
    )


def _with_files(
    listing: Listing, one: Recorded, files: Mapping[str, str], *, requested: bool
) -> Recorded:
    """A distribution that owns `files`, too, and that conda installed."""
    record = {**one.record, **files}
    distribution = replace(
        one.distribution,
        installer=one.distribution.installer or CONDA,
        requested=one.distribution.requested or requested,
        files=len(record),
        size=sum(listing.files[path].size for path in record),
        has_record=True,
    )
    return Recorded(distribution, record)
