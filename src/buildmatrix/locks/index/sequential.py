"""Reading of a whole wheel in one pass: each member is inflated once, nothing is written to disk.

For the depth `whole`, and for servers without ranges. A ZIP archive is read from its directory,
which comes last: the headers of members are trusted until they are compared with it in the end.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from buildmatrix.facts.inventory.collect import collect_shallow
from buildmatrix.facts.inventory.file_facts import FileFacts, add_contents, inspect_source
from buildmatrix.facts.trees.base import Unreadable
from buildmatrix.facts.trees.wheel import (
    INFLATION_ALLOWANCE,
    MOST_INFLATION,
    PackedMember,
    WheelTree,
    install_path,
)
from buildmatrix.facts.trees.zip_archive import (
    DEFLATED,
    ENCRYPTED,
    LARGEST_DIRECTORY,
    LARGEST_HELD,
    LOCAL,
    LOCAL_MARK,
    SIZES_FOLLOW,
    STORED,
    TAIL,
    Inflated,
    Sequential,
    ZipEntry,
)
from buildmatrix.locks.index.depth import Reading
from buildmatrix.locks.index.ending import Forward
from buildmatrix.locks.index.parts import (
    LARGEST_PACKED,
    HeldTree,
    facts_of_bytes,
    is_metadata,
    is_source,
)

#: Compressed bytes of Python files and metadata to hold; torch has 13 MB.
MOST_PACKED = 48 << 20
PIECE = 1 << 20
INPUT = 64 << 10
_DESCRIPTOR_MARK = b"PK\x07\x08"
#: Signatures of a member and of the directory.
_NEXT = re.compile(rb"PK(?:\x03\x04|\x01\x02|\x05\x06|\x06\x06)")
_LONGEST_DESCRIPTOR = 24
_ZIP_64 = 1
_ELSEWHERE = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Streamed:
    """Facts of a wheel, and the SHA-256 of all bytes in hex."""

    reading: Reading
    sha256: str


def read_stream(chunks: Iterator[bytes], size: int, listed: WheelTree | None) -> Streamed:
    """Read a wheel of `size` bytes from its `chunks`.

    `listed`: the directory, if it is already known. Raises `Unreadable` for an archive that is not
    ZIP, contradicts itself, or cannot be divided into members without its directory.
    """
    hasher = hashlib.sha256()

    def hashed() -> Iterator[bytes]:
        for chunk in chunks:
            hasher.update(chunk)
            yield chunk

    forward = Forward(hashed())
    sizes = {entry.offset: entry for entry in listed.entries} if listed is not None else {}
    passing = _StreamedMembers(forward, sizes, INFLATION_ALLOWANCE + MOST_INFLATION * size)
    while forward.peek(len(LOCAL_MARK)) == LOCAL_MARK:
        passing.member()
    tail_at = forward.at
    tail = forward.exactly(LARGEST_DIRECTORY + 2 * TAIL)
    if forward.read(1):
        raise Unreadable("no readable ZIP archive: what follows its members is not a directory")
    tree = WheelTree(_Tail(tail_at, tail))
    passing.compare(tree)
    inventory = collect_shallow(HeldTree(tree.walk(), passing.held), passing.facts, passing.opened)
    return Streamed(Reading(inventory, tree.members), hasher.hexdigest())


@dataclass(frozen=True, slots=True)
class _Tail:
    """The last bytes of an archive, whose offsets are those of all of it."""

    start: int
    data: bytes

    @property
    def size(self) -> int:
        return self.start + len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        if offset < self.start:
            # Zeros are not a signature: a search before the directory finds nothing.
            return (
                b"\0" * min(length, self.start - offset)
                + self.data[: max(0, offset + length - self.start)]
            )
        return self.data[offset - self.start : offset - self.start + length]


@dataclass(slots=True)
class _StreamedMembers:
    """Facts of the members so far."""

    forward: Forward
    #: Offset of a member → its entry, if known.
    sizes: dict[int, ZipEntry]
    allowance: int
    held: dict[str, PackedMember] = field(default_factory=dict)
    facts: dict[str, FileFacts] = field(default_factory=dict)
    opened: set[str] = field(default_factory=set)
    passed: dict[int, ZipEntry] = field(default_factory=dict)
    _packed: int = 0

    def member(self) -> None:
        """Read the member that begins here."""
        offset = self.forward.at
        header = self.forward.exactly(LOCAL.size)
        if len(header) < LOCAL.size:
            raise Unreadable("no readable ZIP archive: it ends inside the header of a member")
        _, _, flags, method, _, _, crc, compressed, size, name_length, extra_length = LOCAL.unpack(
            header
        )
        raw, extra = self.forward.exactly(name_length), self.forward.exactly(extra_length)
        listed = self.sizes.get(offset)
        if listed is not None:
            crc, compressed, size = listed.crc, listed.compressed, listed.size
        elif _ELSEWHERE in (compressed, size):
            size, compressed = _large(extra)
        follow = bool(flags & SIZES_FOLLOW)
        entry = ZipEntry(
            raw.decode("utf-8", "backslashreplace"),
            raw,
            flags,
            method,
            crc,
            compressed,
            size,
            offset,
        )
        if flags & ENCRYPTED or method not in (STORED, DEFLATED):
            raise Unreadable(f"{entry.name} is encrypted, or neither stored nor deflated")
        if follow and listed is None:
            if method == STORED:
                raise Unreadable(
                    f"the size of {entry.name} is only in the directory at the end; use an  "
                    "index that supports ranges, or download the wheel"
                )
            entry = self._read_unsized(entry)
        else:
            self._read_sized(entry)
        if follow:
            self._skip_descriptor()
        self.passed[offset] = entry

    def _read_sized(self, entry: ZipEntry) -> None:
        self.allowance -= entry.size
        if self.allowance < 0:
            raise Unreadable(
                f"the wheel inflates to more than {MOST_INFLATION} times its size: a ZIP bomb"
            )
        path = install_path(entry.name)
        start = self.forward.at
        is_held = is_metadata(path) or is_source(path)
        if is_held and entry.compressed <= LARGEST_PACKED:
            self._hold(path, PackedMember(entry, self.forward.exactly(entry.compressed)))
            return
        if not path.endswith("/"):
            self.opened.add(path)
            try:
                with Inflated(self._stream(entry), entry.size) as source:
                    facts = inspect_source(source, path, entry.size)
                    self.facts[path] = add_contents(facts, source, path, entry.size)
            except Unreadable as error:
                self.facts[path] = FileFacts(unread=str(error))
        unread = start + entry.compressed - self.forward.at
        while unread > 0 and (data := self.forward.read(min(unread, PIECE))):
            unread -= len(data)

    def _stream(self, entry: ZipEntry) -> Sequential:
        """Return the bytes of the member that begins here, which arrive once."""
        remaining = entry.compressed

        def arriving(_: int, length: int) -> bytes:
            nonlocal remaining
            data = self.forward.read(min(length, remaining))
            remaining -= len(data)
            return data

        return Sequential(arriving, entry)

    def _hold(self, path: str, packed: PackedMember) -> None:
        """Read a member whose content matters, and hold its bytes for that."""
        self.opened.add(path)
        try:
            facts = facts_of_bytes(path, packed.unpack())
        except Unreadable as error:
            facts = FileFacts(unread=str(error))
        self._packed += len(packed.data)
        if is_metadata(path) or self._packed <= MOST_PACKED:
            self.held[path] = packed
        elif facts.outline is not None:
            # Its source is gone when it is opened.
            self.opened.discard(path)
            return
        if facts != FileFacts():
            self.facts[path] = facts

    def _read_unsized(self, entry: ZipEntry) -> ZipEntry:
        """Read a deflated member, whose end is marked in its data."""
        pieces: list[bytes] = []
        size = crc = 0
        start = self.forward.at
        for piece in _inflated(self.forward):
            size += len(piece)
            crc = zlib.crc32(piece, crc)
            if size > self.allowance:
                raise Unreadable(
                    f"the wheel inflates to more than {MOST_INFLATION} times its size: a ZIP bomb"
                )
            if size <= LARGEST_HELD:
                pieces.append(piece)
        self.allowance -= size
        completed = replace(entry, crc=crc, compressed=self.forward.at - start, size=size)
        path = install_path(entry.name)
        if size > LARGEST_HELD or path.endswith("/"):
            return completed
        data = b"".join(pieces)
        if is_metadata(path) or is_source(path):
            plain = ZipEntry(path, b"", 0, STORED, crc, size, size, 0)
            self._hold(path, PackedMember(plain, data))
        else:
            self.opened.add(path)
            self.facts[path] = facts_of_bytes(path, data)
        return completed

    def _skip_descriptor(self) -> None:
        """Skip CRC and sizes, with or without a signature, of 4 or 8 bytes each (4.3.9)."""
        ahead = self.forward.peek(_LONGEST_DESCRIPTOR + 4)
        for length in (16, 24, 12, 20):
            marked = ahead.startswith(_DESCRIPTOR_MARK)
            if marked == (length in (16, 24)) and _NEXT.match(ahead, length):
                self.forward.exactly(length)
                return
        raise Unreadable("no readable ZIP archive: a member does not end where its sizes say")

    def compare(self, tree: WheelTree) -> None:
        """Raise `Unreadable` if the directory contradicts the headers of members."""
        entries = {entry.offset: entry for entry in tree.entries}
        for offset, passed in self.passed.items():
            entry = entries.get(offset)
            if entry is None:
                raise Unreadable(f"{passed.name} is not in the wheel's directory")
            if entry is not None and (
                (entry.raw, entry.crc, entry.size, entry.compressed)
                != (passed.raw, passed.crc, passed.size, passed.compressed)
            ):
                raise Unreadable(f"the wheel's directory contradicts the header of {entry.name}")
        for offset, entry in entries.items():
            if offset not in self.passed:
                raise Unreadable(f"{entry.name} is not where the wheel's directory says")


def _inflated(forward: Forward) -> Iterator[bytes]:
    """Yield the content of a deflated member of unknown size; leaves `forward` behind it."""
    decompressor = zlib.decompressobj(-zlib.MAX_WBITS)
    while not decompressor.eof:
        data = decompressor.unconsumed_tail or forward.read(INPUT)
        try:
            piece = decompressor.decompress(data, PIECE)
        except zlib.error as error:
            raise Unreadable(f"broken member of the wheel: {error}") from error
        if piece:
            yield piece
        elif not data:
            raise Unreadable("broken member of the wheel: it ends early")
    forward.back(decompressor.unused_data)


def _large(extra: bytes) -> tuple[int, int]:
    """Size and compressed size from the zip64 extra field of a local header (4.5.3)."""
    at = 0
    while at + 4 <= len(extra):
        kind = int.from_bytes(extra[at : at + 2], "little")
        length = int.from_bytes(extra[at + 2 : at + 4], "little")
        if kind == _ZIP_64 and length >= 16:
            numbers = extra[at + 4 : at + 20]
            return int.from_bytes(numbers[:8], "little"), int.from_bytes(numbers[8:], "little")
        at += 4 + length
    raise Unreadable("no readable ZIP archive: the zip64 sizes of a member are missing")
