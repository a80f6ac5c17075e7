"""State of a wheel that is read by parts: its members, and its remaining budget."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from buildmatrix.facts.binaries.model import DeviceFile
from buildmatrix.facts.binaries.stream import EndSections, HeadReader, Malformed, add_end_sections
from buildmatrix.facts.inventory.file_facts import FileFacts, inspect, open_container
from buildmatrix.facts.python_imports.source import runs_at_startup
from buildmatrix.facts.trees.archive import BytesSource
from buildmatrix.facts.trees.base import File, RandomAccess, Symlink, Tree, Trouble, Unreadable
from buildmatrix.facts.trees.wheel import PackedMember, WheelTree
from buildmatrix.facts.trees.zip_archive import LARGEST_HELD
from buildmatrix.locks.index.budget import GAP, is_small
from buildmatrix.locks.index.model import Member

# Fetched members, as the tree that `inventory` reads


#: Files of a metadata folder that the inventory reads; licenses are not facts.
_METADATA = frozenset(
    {"METADATA", "PKG-INFO", "WHEEL", "RECORD", "INSTALLER", "REQUESTED", "direct_url.json",
     "entry_points.txt", "variant.json"}
)  # fmt: skip
#: Maximum compressed bytes of one file of metadata, or one Python file; real wheels have less.
LARGEST_PACKED = 4 << 20


def is_metadata(path: str) -> bool:
    """Return True if the inventory reads the file at `path` for its distributions."""
    folder, _, name = path.rpartition("/")
    if folder.endswith((".dist-info", ".egg-info")):
        return name in _METADATA
    return folder.endswith(".dist-info/sboms")


def is_source(path: str) -> bool:
    """Return True if the file at `path` is Python that an import or the start of Python runs."""
    return path.endswith(".py") or (runs_at_startup(path) and "/" not in path)


@dataclass(frozen=True, slots=True)
class HeldTree(Tree):
    """Listing of a wheel, with the bytes of some files."""

    entries: Sequence[File | Symlink | Trouble]
    held: Mapping[str, PackedMember]

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        """See `Tree.walk`."""
        return iter(self.entries)

    @contextmanager
    def open(self, path: str) -> Iterator[RandomAccess]:
        """See `Tree.open`."""
        packed = self.held.get(path)
        if packed is None:
            raise Unreadable("it was not read from the index: too large for its kind")
        yield BytesSource(packed.unpack())


@dataclass(frozen=True, slots=True)
class _SingleFile(Tree):
    """A single file in memory."""

    file: File
    data: bytes

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        yield self.file

    @contextmanager
    def open(self, path: str) -> Iterator[RandomAccess]:
        yield BytesSource(self.data)


@dataclass(slots=True)
class Within:
    """A part of a wheel, of which at most `most` bytes are read, as `zip_archive.Bytes`."""

    source: Ranged
    start: int
    size: int
    most: int
    bytes_read: int = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `Bytes.read`. Raises `Unreadable` if that exceeds the limit."""
        length = max(0, min(length, self.size - offset))
        self.bytes_read += length
        if self.bytes_read > self.most:
            raise Unreadable("its list of files exceeds the limit")
        return self.source.read(self.start + offset, length)


def facts_of_bytes(path: str, data: bytes) -> FileFacts:
    """Return the facts of the file at `path` with the bytes `data`."""
    file = File(path, len(data))
    tree = _SingleFile(file, data)
    return open_container(tree, file, inspect(tree, file))


# State


#: Bytes before a member's data: its header, with a long name and an extra field.
AROUND = 1 << 10
#: Bytes to request and hold at a time.
BATCH = 2 << 20
#: Maximum inflated bytes of a beginning; a library's inflate to 100 to 500 KiB.
LARGEST_HEAD = 8 << 20
#: Imported by a library that loads others by name.
DLOPEN = b"\0dlopen\0"


class Ranged(Protocol):
    """A wheel that can be read in parts: `index.remote.RemoteFile`, or a local file."""

    @property
    def size(self) -> int:
        """Bytes in all."""

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on."""

    def load(self, parts: Sequence[tuple[int, int]]) -> None:
        """Fetch (offset, length) parts at once, so that `read` finds them."""

    def stream(self, offset: int = 0) -> Generator[bytes, None, None]:
        """Everything from `offset` on, in order."""


class WheelParts:
    """Known facts of one wheel."""

    def __init__(self, source: Ranged, tree: WheelTree, most: int | None) -> None:
        """`most`: bytes to spend beyond the listing; None for no limit."""
        self.source = source
        self.tree = tree
        self.most = most
        #: Bytes spent.
        self.spent = 0
        #: True if all bytes may be read.
        self.is_whole = False
        self.members = {member.path: member for member in tree.members}
        self.held: dict[str, PackedMember] = {}
        self.facts: dict[str, FileFacts] = {}
        #: Files that were read, in part or whole.
        self.opened: set[str] = set()
        #: Files with harmless names that are binaries by their first bytes.
        self.unmasked: set[str] = set()
        #: Unread Python files that no import runs.
        self.lazy: Collection[str] = frozenset()
        #: True if more bytes would have been read within a larger limit.
        self.limited = False
        #: First page of each partly read binary, and facts from its end.
        self.pages: dict[str, bytes] = {}
        self.ends: dict[str, EndSections] = {}
        #: Binaries that load others by name, as far as they were read.
        self.loading: set[str] = set()
        #: Containers, and large files with device code that are not ELF: only all of their bytes
        #: show their content.
        self.archives: list[Member] = []

    @contextmanager
    def noting(self, path: str) -> Iterator[None]:
        """Note what makes a file unreadable."""
        try:
            yield
        except (Unreadable, Malformed) as error:
            self.facts[path] = FileFacts(unread=str(error))

    @property
    def available(self) -> int | None:
        """Remaining bytes; None for no limit."""
        return None if self.most is None else max(0, self.most - self.spent)

    def is_small(self, member: Member) -> bool:
        """Return True if a member is read whole when the budget allows."""
        return is_small(member) or (self.is_whole and member.size <= LARGEST_HELD)

    def affords(self, cost: int) -> bool:
        """Spend `cost` bytes, if they are available; return True if they were."""
        available = self.available
        if available is not None and cost > available:
            self.limited = True
            return False
        self.spent += cost
        return True

    def batches(self, costs: dict[str, int]) -> Iterator[str]:
        """Yield the members `costs` in the wheel's order, with their first bytes fetched."""
        batch: list[tuple[str, tuple[int, int]]] = []
        size = behind = 0
        for path in sorted(costs, key=self.tree.extent):
            start, length = self._part(path, costs[path])
            between = start - behind if 0 < start - behind <= GAP else 0
            if batch and size + between + length > BATCH:
                yield from self._fetch_batch(batch)
                batch, size, between = [], 0, 0
            batch.append((path, (start, length)))
            size += between + length
            behind = start + length
        yield from self._fetch_batch(batch)

    def _part(self, path: str, cost: int) -> tuple[int, int]:
        """Return offset and length of the first `cost` bytes of a member, with its header."""
        start, end = self.tree.extent(path)
        return start, min(end - start, cost + AROUND + len(path.encode()))

    def bring(self, costs: Mapping[str, int]) -> None:
        """Fetch the first bytes of members, without reading or charging them."""
        self.source.load([self._part(path, cost) for path, cost in costs.items()])

    def _fetch_batch(self, batch: list[tuple[str, tuple[int, int]]]) -> Iterator[str]:
        self.source.load([part for _, part in batch])
        yield from (path for path, _ in batch)

    def hold(self, costs: dict[str, int]) -> None:
        """Fetch the members `costs` whole."""
        for path in self.batches(costs):
            with self.noting(path):
                self.held[path] = self.tree.packed(path)

    def tell(self, path: str, kind: str | None, reader: HeadReader) -> None:
        """Note facts from the beginning of a binary; `kind`: of a file for a device."""
        end = self.ends.get(path)
        if end is not None and reader.offset < self.members[path].size:
            for start, data in end.linking:
                reader.lend(start, data)
        head = reader.head()
        assert head is not None  # its magic number was seen
        if kind is None:
            end = end if head.elf.read is not None else None
            self.facts[path] = FileFacts(elf=add_end_sections(head.elf, end) if end else head.elf)
        else:
            device = DeviceFile(kind, head.elf.device_code, unread=head.elf.unread)
            self.facts[path] = FileFacts(device=device)

    def listing(self) -> None:
        """Read the metadata folder."""
        self.hold(
            {
                member.path: member.compressed
                for member in self.members.values()
                if is_metadata(member.path) and member.compressed <= LARGEST_PACKED
            }
        )
        self.opened.update(self.held)
