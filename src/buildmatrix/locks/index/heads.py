"""Beginnings of everything in a wheel that may be a binary, and file lists of nested archives."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from buildmatrix.base.data import replace
from buildmatrix.base.text import listing
from buildmatrix.facts.binaries.devicefile import HEAD as KIND_HEAD
from buildmatrix.facts.binaries.devicefile import detect_kind
from buildmatrix.facts.binaries.stream import HeadReader
from buildmatrix.facts.inventory.file_facts import (
    ELF_MAGIC,
    FileFacts,
    NestedContents,
    detect_container,
    detect_zip_kind,
    find_tensors,
    may_hold_binary,
)
from buildmatrix.facts.inventory.listing import LARGE_CONTAINER, LEAST, may_matter, readable
from buildmatrix.facts.trees import formats
from buildmatrix.facts.trees.archive import BytesSource
from buildmatrix.facts.trees.base import Unreadable
from buildmatrix.facts.trees.zip_archive import (
    DEFLATED,
    LARGEST_HELD,
    STORED,
    TAIL,
    ZipEntry,
    read_directory,
)
from buildmatrix.locks.index.model import (
    HEAD,
    MOST_ENDS,
    SNIFF,
    Member,
    disguised_members,
    nested_ends,
    useful,
)
from buildmatrix.locks.index.parts import (
    DLOPEN,
    LARGEST_HEAD,
    WheelParts,
    Within,
    facts_of_bytes,
    inflate_end,
)

# File list of a nested ZIP archive, without the bytes before it


#: Bytes of the list of files of an archive that is stored.
LARGEST_LISTING = 2 << 20
#: Maximum inflated bytes of an end: a directory of `zip_archive.LARGEST_DIRECTORY`, and some more.
LARGEST_NESTED_END = 24 << 20


def nested_directory(parts: WheelParts, member: Member) -> tuple[ZipEntry, ...] | None:
    """Read the file list of the ZIP archive `member`; None if it is out of reach or too large."""
    entry, start = parts.tree.place(member.path)
    if entry.method == STORED:
        return _read_stored(parts, start, entry.size)
    if entry.method != DEFLATED:
        return None
    read = 0
    for size in nested_ends(entry.compressed):
        if not parts.affords(size - read):
            return None
        read = size
        files = _read_in_end(parts.source.read(start + entry.compressed - size, size), entry.size)
        if files is not None:
            return files
    return None


def _read_stored(parts: WheelParts, start: int, size: int) -> tuple[ZipEntry, ...] | None:
    if not parts.affords(TAIL):
        return None
    source = Within(parts.source, start, size, LARGEST_LISTING)
    try:
        return read_directory(source)
    except Unreadable:
        return None
    finally:
        parts.spent += max(0, source.bytes_read - TAIL)


def _read_in_end(data: bytes, size: int) -> tuple[ZipEntry, ...] | None:
    """Return the file list that `data`, the end of a member of `size` bytes, has completely.

    Bytes that deflate copied from before it differ in each copy: a list that is the same in all has
    none of them.
    """
    end = inflate_end(data, LARGEST_NESTED_END, LARGEST_NESTED_END)
    if end is None:
        return None
    directories = []
    for copy in end.copies:
        try:
            directories.append(read_directory(_Last(copy, size)))
        except Unreadable:
            return None
    return directories[0] if all(directory == directories[0] for directory in directories) else None


class _Last:
    """The last bytes of a file: a `facts.trees.zip_archive.Bytes`."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data = data
        self._start = size - len(data)
        self.size = size

    def read(self, offset: int, length: int) -> bytes:
        """See `Bytes.read`. Raises `Unreadable` for bytes before these."""
        if offset < self._start:
            raise Unreadable("its list of files begins before the part that was read")
        return self._data[offset - self._start : offset - self._start + length]


# Beginnings


#: Maximum compressed bytes of an archive in a wheel that is read whole.
LARGEST_OPENED = 4 << 20
#: Files named in a message about an unread archive.
MOST_NAMED = 3
#: Inflated bytes of a beginning to hold for its end: the headers of a file and its segments.
FIRST_PAGE = 4 << 10
#: Part of the budget that small binaries leave to large ones if it is too small for all.
PART_KEPT = 4


def heads(parts: WheelParts) -> None:
    """Read the beginning of everything that may be a binary, the largest first."""
    members = sorted(parts.members.values(), key=lambda member: (-member.compressed, member.path))
    candidates = [
        member
        for member in members
        if not member.path.endswith(".py") and may_matter(member.path, member.size)
    ]
    sniffed = {
        member.path: SNIFF
        for member in disguised_members(parts.members.values())
        if member.path not in parts.held and parts.affords(min(member.compressed, SNIFF))
    }
    costs = _select_affordable(parts, candidates)
    # Both in one request: they are interleaved.
    for path in parts.batches({**costs, **sniffed}):
        if path in costs:
            _look(parts, parts.members[path], costs[path])
        elif not _sniff(parts, path):
            parts.opened.add(path)
    for path in parts.held:
        _sniff(parts, path)
    _look_at(parts, parts.unmasked)


def disguised(parts: WheelParts) -> None:
    """Read the first bytes of large unread Python files.

    If no file that was read loads libraries by name, only bytes count, and those of a file smaller
    than `LARGE_CONTAINER` decide nothing. An unread file no longer counts as a file that no import
    runs: it may be anything.
    """
    outlines = (facts.outline for facts in parts.facts.values())
    loads = bool(parts.loading) or any(outline.loads for outline in outlines if outline)
    least = LEAST if loads else LARGE_CONTAINER
    costs = {
        member.path: SNIFF
        for member in parts.members.values()
        if member.path.endswith(".py") and member.size >= least and member.path not in parts.opened
    }
    afforded = {path: cost for path, cost in costs.items() if parts.affords(cost)}
    found = {path for path in parts.batches(afforded) if _sniff(parts, path)}
    parts.lazy = frozenset(parts.lazy) - (costs.keys() - afforded.keys()) - found
    _look_at(parts, found)


def _look_at(parts: WheelParts, paths: Collection[str]) -> None:
    costs = _select_affordable(parts, [parts.members[path] for path in sorted(paths)])
    for path in parts.batches(costs):
        _look(parts, parts.members[path], costs[path])


def _select_affordable(parts: WheelParts, members: Sequence[Member]) -> dict[str, int]:
    """Return members whose beginnings may be read, with their costs.

    Small ones are read whole, the smallest first. If bytes are scarce, they leave some to the large
    ones, whose beginnings show the least.
    """
    large = [member for member in members if not parts.is_small(member)]
    costs = {member.path: HEAD for member in large if parts.affords(HEAD)}
    small = [member for member in members if parts.is_small(member)]
    reserved = 0
    if parts.most is not None:
        reserved = min(parts.most // PART_KEPT, sum(useful(member) - HEAD for member in large))
        reserved += sum(min(member.compressed, HEAD) for member in small)
    for member in sorted(small, key=lambda member: (member.compressed, member.path)):
        beginning = min(member.compressed, HEAD)
        reserved -= beginning
        available = parts.available
        is_scarce = available is not None and member.compressed > available - reserved
        cost = beginning if is_scarce else member.compressed
        parts.limited |= cost < member.compressed
        if parts.affords(cost):
            costs[member.path] = cost
    return costs


def _sniff(parts: WheelParts, path: str) -> bool:
    """Return True if the first bytes show a binary, whatever the file's name says."""
    size = parts.members[path].size
    with parts.noting(path):
        head = parts.tree.beginning(path, SNIFF, formats.FAR_HEAD)
        if (
            # A stream may begin with empty blocks.
            len(head) < min(size, formats.HEAD)
            or head.startswith(ELF_MAGIC)
            or detect_kind(path, head) is not None
            or detect_container(BytesSource(head), head, size, path) is not None
        ):
            parts.unmasked.add(path)
            return True
    return False


def _look(parts: WheelParts, member: Member, length: int) -> None:
    """Read the first `length` compressed bytes of a member."""
    path = member.path
    parts.opened.add(path)
    with parts.noting(path):
        if length >= member.compressed and parts.is_small(member):
            parts.facts[path] = facts_of_bytes(path, parts.tree.packed(path).unpack())
            return
        data = parts.tree.beginning(path, HEAD, LARGEST_HEAD)
        kind = detect_kind(path, data[:KIND_HEAD])
        if data.startswith(ELF_MAGIC) and len(data) > KIND_HEAD:
            reader = HeadReader(BytesSource(data), member.size)
            reader.read_to(len(data))
            parts.pages[path] = data[:FIRST_PAGE]
            if DLOPEN in data:
                parts.loading.add(path)
            parts.tell(path, kind, reader)
        elif (contents := detect_container(BytesSource(data), data, member.size, path)) is not None:
            _look_inside(parts, member, contents)
        elif kind in ("pe", "macho"):
            # Of another system: the libraries it links, as far as they are known, only name a
            # vendor.
            parts.facts[path] = facts_of_bytes(path, data)
        elif kind is not None or len(data) < min(member.size, formats.HEAD):
            # Its beginning does not show its content.
            parts.opened.discard(path)
            parts.archives.append(member)


def _look_inside(parts: WheelParts, member: Member, contents: NestedContents) -> None:
    """Read a container whole if it is small; the file list of a ZIP may be enough.

    If not, the container is read whole if the budget allows in the end. A small one that stays
    closed leaves the verdict open, like any other file; a large one leaves the run undecided.
    """
    path = member.path
    closed = ""
    if member.compressed <= LARGEST_OPENED and member.size <= LARGEST_HELD:
        if parts.affords(member.compressed):
            parts.facts[path] = facts_of_bytes(path, parts.tree.packed(path).unpack())
            return
    else:
        is_listed = contents.kind == "zip" and len(parts.archives) < MOST_ENDS
        files = nested_directory(parts, member) if is_listed else None
        if files is None:
            closed = f"{member.size} bytes of an archive were not read"
        else:
            tensors = find_tensors(entry.name for entry in files)
            binaries = [
                entry
                for entry in files
                if may_hold_binary(entry.name, entry.size) and entry.name not in tensors
            ]
            kind = detect_zip_kind(entry.name for entry in files)
            if not binaries:
                parts.facts[path] = FileFacts(contents=NestedContents(kind, len(files)))
                return
            contents = NestedContents(kind, len(files))
            closed = _describe_unread(binaries)
    parts.opened.discard(path)
    parts.archives.append(member)
    if closed:
        parts.facts[path] = FileFacts(contents=replace(contents, waiting=None, closed=closed))


def _describe_unread(binaries: Sequence[ZipEntry]) -> str:
    """Return the relevant unread files of an archive, in words."""
    if sum(entry.size for entry in binaries) < LARGE_CONTAINER:
        return ""
    largest = sorted(binaries, key=lambda entry: (-entry.size, entry.name))
    names = (f"{readable(entry.name)} ({entry.size} bytes)" for entry in largest)
    return f"not read of its files: {listing(names, MOST_NAMED)}"
