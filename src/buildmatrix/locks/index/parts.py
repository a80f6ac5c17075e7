"""State of a wheel that is read by parts: its members, and its remaining budget."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from msgspec import Struct

from buildmatrix.facts.binaries.stream import (
    UNKNOWN,
    EndSections,
    HeadReader,
    Malformed,
    add_end_sections,
)
from buildmatrix.facts.elf.model import DeviceFile
from buildmatrix.facts.inventory.file_facts import FileFacts, inspect, open_container
from buildmatrix.facts.python_imports.source import runs_at_startup
from buildmatrix.facts.trees.archive import BytesSource
from buildmatrix.facts.trees.base import File, RandomAccess, Symlink, Tree, Trouble, Unreadable
from buildmatrix.facts.trees.wheel import PackedMember, WheelTree
from buildmatrix.facts.trees.zip_archive import LARGEST_HELD
from buildmatrix.locks.index.model import GAP, Member, is_small

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


class Within(Struct):
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
            start, length = self._locate_part(path, costs[path])
            between = start - behind if 0 < start - behind <= GAP else 0
            if batch and size + between + length > BATCH:
                yield from self._fetch_batch(batch)
                batch, size, between = [], 0, 0
            batch.append((path, (start, length)))
            size += between + length
            behind = start + length
        yield from self._fetch_batch(batch)

    def _locate_part(self, path: str, cost: int) -> tuple[int, int]:
        """Return offset and length of the first `cost` bytes of a member, with its header."""
        start, end = self.tree.extent(path)
        return start, min(end - start, cost + AROUND + len(path.encode()))

    def bring(self, costs: Mapping[str, int]) -> None:
        """Fetch the first bytes of members, without reading or charging them."""
        self.source.load([self._locate_part(path, cost) for path, cost in costs.items()])

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


# Deflate is read from its start. But it is a sequence of blocks with their own codes, so decoding
# can start at the beginning of any block; only back references into the 32 KiB before stay unknown.
# Nothing marks the beginning: every bit is tried. False beginnings show by their first symbols, or
# because they do not lead to the end of the member.
#
# The same idea: Kerbiriou and Chikhi, "Parallel decompression of gzip-compressed files and random
# access to DNA sequences" (2019). Format: RFC 1951.


#: Inflated bytes of one end, and of them the last ones to hold, with the sections and their names.
MOST = 8 << 20
HELD = 4 << 20
#: Inflated bytes of a middle: fewer do not prove the beginning of a block.
LEAST_MIDDLE = 32 << 10
#: Offsets tried in one member (a tenth of a second in real ones), and those of them followed beyond
#: their first symbols.
MOST_TRIED = 50_000
MOST_FOLLOWED = 64
#: Compressed bytes that hold the codes of a block.
_CODES = 400
#: Compressed bytes to search at a time, and inflated bytes per step.
_STEP = 4 << 10
_PIECE = 256 << 10
_WINDOW = range(1 << zlib.MAX_WBITS)
#: Stand-ins for the bytes before. The first two together show the offset of each; the third has no
#: byte in common with the first.
_BEFORE = (
    bytes(place & 0xFF for place in _WINDOW),
    bytes(place >> 8 for place in _WINDOW),
    bytes(place & 0xFF ^ 0xFF for place in _WINDOW),
)
#: Beginning of a block with codes of its own: 1 bit for the last one, 2 for its kind, the numbers
#: of codes (3.2.7). Libraries use many: blocks with few are skipped, another one follows.
_FIRST = bytes(byte for byte in range(256) if byte & 6 == 4 and byte >> 3 <= 29)
_SECOND = bytes(byte for byte in range(256) if 16 <= byte & 31 <= 29)
_THIRD = bytes(range(1, 256, 2))
_BEGINNING = re.compile(b"(?=[%b][%b][%b])" % tuple(map(re.escape, (_FIRST, _SECOND, _THIRD))))
#: Compressed data is in stored blocks (3.2.4): three bits of zero, zeros up to the next byte, the
#: length and its complement. Those of archives have thousands of bytes.
_STORED = bytes(range(1 << 5))
_LEAST_STORED = 1 << 10


class Ending:
    """The end of a file; see `facts.binaries.stream.BinaryEnd`."""

    def __init__(self, *copies: bytes) -> None:
        self.copies = copies

    def __len__(self) -> int:
        return len(self.copies[0])

    def codes(self, start: int, stop: int) -> list[int]:
        """See `facts.binaries.stream.BinaryEnd.codes`."""
        parts = [copy[max(0, start) : max(0, stop)] for copy in self.copies]
        if parts.count(parts[0]) == len(parts):
            return list(parts[0])
        return [
            low if low == third else UNKNOWN + (high << 8 | low)
            for low, high, third in zip(*parts, strict=True)
        ]

    def known_bytes(self, start: int, stop: int) -> bytes | None:
        """See `facts.binaries.stream.BinaryEnd.known_bytes`."""
        first, *other_copies = (copy[max(0, start) : max(0, stop)] for copy in self.copies)
        return first if all(copied == first for copied in other_copies) else None


#: Uses a whole processor and some megabytes: concurrent threads would only use memory.
_one_at_a_time = threading.Lock()


def inflate_end(data: bytes, most: int = MOST, held: int = HELD) -> Ending | None:
    """Inflate `data`, the last bytes of a deflated member, from some block on.

    None if no block is found, or if the result exceeds `most` bytes. Returns at most the last
    `held` bytes.
    """
    return _inflate(data, partial(_to_end, most=most, last=held))


def inflate_middle(data: bytes) -> Ending | None:
    """Inflate `data`, bytes from the middle of a deflated member, from some block on.

    None if no block is found. Returns at most the first `HELD` bytes.
    """
    return _inflate(data, _from_middle)


def _inflate(data: bytes, follow: Callable[[memoryview, bytes], bytes | None]) -> Ending | None:
    with _one_at_a_time:
        followed = 0
        for shifted in _iter_block_starts(data):
            try:
                zlib.decompressobj(-zlib.MAX_WBITS, _BEFORE[0]).decompress(shifted[:_CODES], 1)
            except zlib.error:
                continue
            followed += 1
            if followed > MOST_FOLLOWED:
                break
            copies = [copy for before in _BEFORE if (copy := follow(shifted, before)) is not None]
            if len(copies) == len(_BEFORE):
                return Ending(*copies)
        return None


def _iter_block_starts(data: bytes) -> Iterator[memoryview]:
    """Yield `data` from each bit on at which a block may begin, in order."""
    bits = int.from_bytes(data, "little")
    shifted = [(bits >> shift).to_bytes(len(data), "little") for shift in range(8)]
    tried = 0
    for start in range(0, len(data), _STEP):
        places = sorted(
            (match.start(), shift)
            for shift, copy in enumerate(shifted)
            # A block's header that begins in this step may end behind it.
            for match in _BEGINNING.finditer(copy, start, start + _STEP + 2)
        )
        yield from (memoryview(b"\0" + data[at:]) for at in _find_stored(data, start))
        for at, shift in places:
            if at < start + _STEP:
                tried += 1
                if tried > MOST_TRIED:
                    return
                yield memoryview(shifted[shift])[at:]


def _from_middle(data: memoryview, before: bytes) -> bytes | None:
    """Return the first bytes that `data` inflates to, if the member continues behind it."""
    stream = zlib.decompressobj(-zlib.MAX_WBITS, before)
    try:
        held = stream.decompress(data, HELD)
    except zlib.error:
        return None
    return None if stream.eof or len(held) < LEAST_MIDDLE else held


def _find_stored(data: bytes, start: int) -> Iterator[int]:
    """Yield possible offsets of a stored block's length in the step from `start` on."""
    step = int.from_bytes(data[start : start + _STEP + 3], "little")
    complements = (step ^ step >> 16).to_bytes(_STEP + 3, "little")
    at = complements.find(b"\xff\xff")
    while at >= 0:
        place = start + at
        length = int.from_bytes(data[place : place + 2], "little")
        is_long = length >= _LEAST_STORED and place + 4 <= len(data)
        if at < _STEP and place > 0 and data[place - 1] in _STORED and is_long:
            yield place
        at = complements.find(b"\xff\xff", at + 1)


def _to_end(data: memoryview, before: bytes, most: int, last: int) -> bytes | None:
    """Return the last bytes that `data` inflates to, if it ends with the member."""
    stream = zlib.decompressobj(-zlib.MAX_WBITS, before)
    held = bytearray()
    total = 0
    remaining: bytes | memoryview = data
    while not stream.eof:
        try:
            piece = stream.decompress(remaining, _PIECE)
        except zlib.error:
            return None
        remaining = stream.unconsumed_tail
        held += piece
        total += len(piece)
        if total > most or not (piece or remaining):
            return None
        del held[:-last]
    # Shifted by some bits, the last byte may be an empty one.
    return bytes(held) if len(stream.unused_data) <= 1 else None
