"""Facts of conda packages in their archives: their list of files first, then everything.

The files of a package are compressed together, and such a stream cannot be entered in the middle.
So a package is read whole, or only its list.
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.collect import collect, find_relevance
from buildmatrix.facts.inventory.conda import CONDA, CONDA_PREFIX
from buildmatrix.facts.inventory.model import ClosedFile, Distribution, Inventory, Stats
from buildmatrix.facts.trees.archive import Slice
from buildmatrix.facts.trees.base import File
from buildmatrix.facts.trees.conda import CondaTree, PackageInfo, read_info, record_path
from buildmatrix.facts.trees.zip_archive import Bytes
from buildmatrix.locks.conda_packages import join_build
from buildmatrix.locks.index.depth import Reading
from buildmatrix.locks.index.model import Member
from buildmatrix.locks.index.names import rename_owners

#: Bytes of a link's file, for its name to decide.
_LINKED = 4


def read_listing(source: Bytes, filename: str) -> Reading:
    """Return the facts that the package's list of files gives. Raises `Unreadable`."""
    info = read_info(source, filename)
    distribution = _distribution(info)
    closed = tuple(
        ClosedFile(file.path, 0 if file.is_link else file.size, distribution.owner, by)
        for file in info.files
        # Binaries link a library by a name that is usually a link.
        if (by := find_relevance(File(file.path, _LINKED if file.is_link else file.size)))
        is not None
    )
    inventory = Inventory(
        distributions=(distribution,),
        closed=closed,
        stats=Stats(files=len(info.files), bytes_total=source.size),
    )
    return Reading(inventory, tuple(_list_members(info)), limited=True)


def read_whole(archive: Slice, filename: str) -> Reading:
    """Return the facts of all files of a package. Raises `Unreadable`."""
    with CondaTree(archive, filename) as tree:
        inventory = collect(tree)
        distribution = _distribution(tree.info)
        owners = {item.owner for item in inventory.distributions}
        owned = rename_owners(inventory, dict.fromkeys(owners, distribution.owner))
        # Its modules lie beside those of other packages, which it may import.
        inventory = replace(owned, distributions=(distribution,), python_imports=())
        return Reading(inventory, tuple(_list_members(tree.info)))


def _distribution(info: PackageInfo) -> Distribution:
    return Distribution(
        f"{CONDA_PREFIX}{info.name}",
        join_build(info.version, info.build),
        record_path(info),
        installer=CONDA,
        files=len(info.files),
        size=sum(file.size for file in info.files),
        has_record=True,
    )


def _list_members(info: PackageInfo) -> Iterator[Member]:
    """Yield the files; what one takes of the archive is unknown, and its hash serves as its CRC."""
    for file in info.files:
        if not file.is_link:
            yield Member(file.path, file.size, file.size, int(file.sha256[:8] or "0", 16))
