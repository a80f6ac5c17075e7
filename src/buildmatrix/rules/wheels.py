"""Subject of rules before anything is installed: a target made of its lock's wheels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.model import Evidence
from buildmatrix.catalogue.names import demangle
from buildmatrix.index.model import SourceFacts
from buildmatrix.inventory.model import Inventory
from buildmatrix.loader.resolution import Needed, Resolution
from buildmatrix.loader.resolver import resolve
from buildmatrix.locks.model import Lock, Staleness
from buildmatrix.rules.subject import ImageSubject, LinkedFiles, Present
from buildmatrix.spec.model import Policy, Target


@dataclass(frozen=True)
class Wheels(ImageSubject):
    """One target whose locked wheels were read, some of them in part, without a base image."""

    #: Reason if the lock does not match its inputs.
    stale: Staleness | None
    #: Distributions without a usable wheel, with the reason.
    without_wheel: Mapping[str, str]
    #: Facts of source distributions that were read, or why they were not, by distribution.
    sources: Mapping[str, SourceFacts | str]
    #: The files with tables that were read of single libraries; None where there are none.
    with_tables: LinkedFiles | None = None

    @property
    def linked(self) -> LinkedFiles:
        """See `ImageSubject.linked`."""
        return self.with_tables or super().linked

    @property
    def noun(self) -> str:
        """See `ImageSubject.noun`."""
        return "this lock"


def wheels(
    target: Target,
    inventory: Inventory,
    evidence: Sequence[Evidence],
    lock: Lock,
    catalogue: Catalogue,
    policy: Policy,
    *,
    downloads: Mapping[str, int],
    stale: Staleness | None = None,
    without_wheel: Mapping[str, str] | None = None,
    sources: Mapping[str, SourceFacts | str] | None = None,
    resolution: Resolution | None = None,
    with_tables: LinkedFiles | None = None,
) -> Wheels:
    """The target as the wheels of its lock make it. `downloads` are their bytes, by name."""
    present = tuple(
        Present(
            package.name,
            package.version,
            target.lock_file,
            downloads.get(package.name),
            package.index,
        )
        for package in sorted(lock.packages, key=lambda package: package.name)
    )
    return Wheels(
        target,
        catalogue.on(target.platform),
        policy,
        lock,
        present,
        inventory,
        tuple(evidence),
        resolution or resolved(inventory),
        stale,
        without_wheel or {},
        sources or {},
        with_tables,
    )


def resolved(inventory: Inventory) -> Resolution:
    """Resolve NEEDED entries among wheels, some of whose files were not opened.

    The loader model knows the files that were opened; a closed one answers to its file name.
    """
    resolution = resolve(inventory)
    wanted = {needed.name for needed in resolution.needed if needed.path is None}
    closed: dict[str, list[str]] = {}
    for file in inventory.closed:
        name = file.path.rpartition("/")[2]
        for wanted_name in {name, demangle(name)} & wanted:
            closed.setdefault(wanted_name, []).append(file.path)
    return replace(
        resolution, needed=tuple(_with_closed(needed, closed) for needed in resolution.needed)
    )


def _with_closed(needed: Needed, closed: Mapping[str, Sequence[str]]) -> Needed:
    if needed.path is not None or needed.name not in closed:
        return needed
    return replace(needed, anywhere=(*needed.anywhere, *closed[needed.name]))
