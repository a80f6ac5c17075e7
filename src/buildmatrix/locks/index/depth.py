"""Reading of a wheel by parts, at the depths `listing` and `heads` of `index.model.Depth`.

The parts depend on the wheel's directory and on the budget, never on time or on the cache: equal
calls return equal facts. The files of a conda package are compressed together, and such a stream
cannot be entered in the middle: a package is read whole, or only its list of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.facts.binaries.head_facts import Prefix, collect_linking
from buildmatrix.facts.binaries.reader import read_elf
from buildmatrix.facts.binaries.stream import read_end
from buildmatrix.facts.elf.headers import Malformed
from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.inventory.collect import collect, collect_shallow, find_relevance
from buildmatrix.facts.inventory.conda import CONDA, CONDA_PREFIX
from buildmatrix.facts.inventory.listing import may_matter
from buildmatrix.facts.inventory.model import ClosedFile, Distribution, Inventory, Stats
from buildmatrix.facts.python_imports.graph import ImportStages
from buildmatrix.facts.trees.archive import BytesSource, Slice
from buildmatrix.facts.trees.base import File, Unreadable
from buildmatrix.facts.trees.conda import CondaTree, PackageInfo, read_info, record_path
from buildmatrix.facts.trees.wheel import WheelTree
from buildmatrix.facts.trees.zip_archive import DEFLATED, Bytes
from buildmatrix.locks.conda_packages import join_build
from buildmatrix.locks.index.ends import archives, ends, links, suspects
from buildmatrix.locks.index.heads import FIRST_PAGE, disguised, heads
from buildmatrix.locks.index.model import (
    DYNAMIC_ENDS,
    FEW_PYTHON,
    HEAD,
    SMALL_WHEEL,
    Depth,
    Member,
    Tables,
    is_small,
)
from buildmatrix.locks.index.names import rename_owners
from buildmatrix.locks.index.parts import (
    BATCH,
    LARGEST_HEAD,
    LARGEST_PACKED,
    Ending,
    HeldTree,
    Ranged,
    WheelParts,
    facts_of_bytes,
    inflate_end,
    is_source,
)

# Python files that an import runs


#: Bytes of the Python files in one folder that are fetched if an import runs some of them.
LARGEST_FOLDER = 512 << 10


def read_python(parts: WheelParts) -> None:
    """Read the Python files: all of them if they are few, else those that an import runs."""
    costs = {
        member.path: member.compressed
        for member in parts.members.values()
        if is_source(member.path)
        and (may_matter(member.path, member.size) or not member.path.endswith(".py"))
        and member.compressed <= LARGEST_PACKED
    }
    total = sum(costs.values())
    available = parts.available
    if total <= max(FEW_PYTHON, 0 if available is None else available // 4):
        if parts.affords(total):
            _read(parts, costs)
        return
    stages = ImportStages(path for path in parts.members if is_source(path))
    reached = dict.fromkeys(stages.first_files())
    ahead = list(reached)
    # Files beside those that an import reaches are usually reached in later stages. Fetching them
    # at the same time saves two thirds of the requests, for hardly more bytes.
    folders: dict[str, dict[str, int]] = {}
    for path, cost in costs.items():
        folders.setdefault(path.rpartition("/")[0], {})[path] = cost
    while ahead:
        stage = {path: costs[path] for path in ahead if path in costs}
        if not parts.affords(sum(stage.values())):
            return
        fetched = dict(stage)
        for path in stage:
            files = folders.pop(path.rpartition("/")[0], {})
            if sum(files.values()) <= LARGEST_FOLDER:
                fetched |= files
        parts.bring(fetched)
        imported = (
            path
            for read, source in _read(parts, stage)
            for path in stages.files_after(read, source)
        )
        ahead = [path for path in dict.fromkeys(imported) if path not in reached]
        reached.update(dict.fromkeys(ahead))
    parts.lazy = costs.keys() - reached.keys()


def _read(parts: WheelParts, costs: dict[str, int]) -> list[tuple[str, bytes]]:
    """Read Python files; return the readable ones with their bytes."""
    parts.hold(costs)
    read: list[tuple[str, bytes]] = []
    for path in costs:
        if path not in parts.held:
            continue
        parts.opened.add(path)
        with parts.noting(path):
            source = parts.held[path].unpack()
            parts.facts[path] = facts_of_bytes(path, source)
            read.append((path, source))
    return read


# Tables of single libraries: linked libraries, needed and defined symbols.
#
# Linkers put the tables of symbols first, and the dynamic section, which locates them, near the
# end: see `index.ends`. Each library is read by itself, so the result depends on its own bytes
# alone.


#: Compressed bytes read as its beginning, until they include its symbols. From the last but one on,
#: the defined symbols are enough: their hashes come before all names.
BEGINNINGS = (HEAD, 256 << 10, 1 << 20, 4 << 20)


def read_tables(source: Ranged, paths: Iterable[str]) -> Mapping[str, Tables]:
    """Return the tables of libraries, by path.

    Raises `Unreadable` if `source` is not a ZIP archive, and errors of `source`.
    """
    tables: dict[str, Tables] = {}
    # Wheels have no links: a library is stored under each of its names.
    same: dict[tuple[int, int], Elf | None] = {}
    with WheelTree(source) as tree:
        members = {member.path: member for member in tree.members}
        for path in paths:
            member = members.get(path)
            if member is None:
                tables[path] = Tables(None)
                continue
            content, cost = (member.crc, member.size), 0
            if content not in same:
                reading = _Reading(source, tree, member)
                with suppress(Unreadable, Malformed):
                    same[content] = reading.read()
                same.setdefault(content, None)
                cost = reading.cost
            tables[path] = Tables(same[content], cost)
    return tables


class _Reading(Struct):
    """The reading of one member, and its cost in bytes."""

    source: Ranged
    tree: WheelTree
    member: Member
    cost: int = 0

    def read(self) -> Elf | None:
        """Read the tables. Raises `Unreadable` and Malformed."""
        member, tree = self.member, self.tree
        if is_small(member):
            self.cost = member.compressed
            data = tree.packed(member.path).unpack()
            return read_elf(BytesSource(data), len(data), deep=False)
        self.cost = beginning = HEAD
        page = tree.beginning(member.path, HEAD, LARGEST_HEAD)
        elf = _collect(page, member.size, ())
        linking: tuple[tuple[int, bytes], ...] = ()
        if elf is not None and not elf.dynamic_read:
            linking = self._read_linking(page[:FIRST_PAGE])
            elf = _collect(page, member.size, linking)
        for length in BEGINNINGS:
            if elf is None or not elf.dynamic_read or elf.binding is not None:
                break
            if length == HEAD:
                continue
            length = min(length, member.compressed)
            self.cost += max(0, length - beginning)
            beginning = max(beginning, length)
            data = tree.beginning(member.path, length, LARGEST_HEAD)
            elf = _collect(data, member.size, linking)
            if elf is not None and elf.binding is None and length >= BEGINNINGS[-2]:
                elf = _collect(data, member.size, linking, exports_only=True)
        return elf if elf is not None and elf.dynamic_read else None

    def _read_linking(self, page: bytes) -> tuple[tuple[int, bytes], ...]:
        """Read offset and bytes of the loader's tables at the end of the member."""
        entry, start = self.tree.place(self.member.path)
        before = self.cost
        for length in DYNAMIC_ENDS:
            length = min(length, entry.compressed)
            self.cost = before + length
            data = self.source.read(start + entry.compressed - length, length)
            end = inflate_end(data) if entry.method == DEFLATED else Ending(data, data, data)
            sections = read_end(page, end, entry.size) if end is not None else None
            if sections is None and length >= DYNAMIC_ENDS[1]:
                break
            if sections is not None and any(
                at < sections.dynamic_end <= at + len(part) for at, part in sections.linking
            ):
                return sections.linking
            if length == entry.compressed:
                break
        return ()


def _collect(
    data: bytes,
    size: int,
    linking: Iterable[tuple[int, bytes]],
    *,
    exports_only: bool = False,
) -> Elf | None:
    """Return the facts from a file's beginning and other parts."""
    prefix = Prefix(BytesSource(data))
    prefix.end = len(data)
    prefix.lent += linking
    return collect_linking(size, prefix, exports_only=exports_only)


#: A small wheel is read whole if this part of it may be. Its libraries are then inflated from their
#: beginnings, which takes less time than from behind.
MOST_OF_IT = 3 / 4


class Reading(Struct, frozen=True):
    """Result of reading a wheel."""

    inventory: Inventory
    members: tuple[Member, ...]
    #: True if more bytes would have been read within a larger limit.
    limited: bool = False


def read_parts(source: Ranged, depth: Depth, most: int | None = None) -> Reading:
    """Return the facts of a wheel, with up to `most` bytes beyond its listing.

    Raises `Unreadable` if it is not a ZIP archive, and errors of `source`.
    """
    with WheelTree(source) as tree:
        parts = WheelParts(source, tree, most)
        parts.listing()
        if depth != "listing":
            if most is None and source.size <= BATCH:
                source.load([(0, source.size)])
            elif most is not None and SMALL_WHEEL >= source.size <= most / MOST_OF_IT:
                source.load([(0, source.size)])
                # Beginnings are counted twice.
                parts.is_whole, parts.most = True, 2 * source.size
            heads(parts)
            ends(parts)
            links(parts)
            read_python(parts)
            disguised(parts)
            suspects(parts)
            archives(parts)
        held = HeldTree(tuple(tree.walk()), parts.held)
        inventory = collect_shallow(held, parts.facts, parts.opened, parts.unmasked, parts.lazy)
        return Reading(inventory, tree.members, parts.limited)


# Packages of conda


#: Bytes of a link's file, for its name to decide.
_LINKED = 4


def read_package_list(source: Bytes, filename: str) -> Reading:
    """Return the facts that the package's list of files gives. Raises `Unreadable`."""
    info = read_info(source, filename)
    distribution = _make_distribution(info)
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
    return Reading(inventory, tuple(_list_packaged(info)), limited=True)


def read_package(archive: Slice, filename: str) -> Reading:
    """Return the facts of all files of a package. Raises `Unreadable`."""
    with CondaTree(archive, filename) as tree:
        inventory = collect(tree)
        distribution = _make_distribution(tree.info)
        owners = {item.owner for item in inventory.distributions}
        owned = rename_owners(inventory, dict.fromkeys(owners, distribution.owner))
        # Its modules lie beside those of other packages, which it may import.
        inventory = replace(owned, distributions=(distribution,), python_imports=())
        return Reading(inventory, tuple(_list_packaged(tree.info)))


def _make_distribution(info: PackageInfo) -> Distribution:
    return Distribution(
        f"{CONDA_PREFIX}{info.name}",
        join_build(info.version, info.build),
        record_path(info),
        installer=CONDA,
        files=len(info.files),
        size=sum(file.size for file in info.files),
        has_record=True,
    )


def _list_packaged(info: PackageInfo) -> Iterator[Member]:
    """Yield the files; what one takes of the archive is unknown, and its hash serves as its CRC."""
    for file in info.files:
        if not file.is_link:
            yield Member(file.path, file.size, file.size, int(file.sha256[:8] or "0", 16))
