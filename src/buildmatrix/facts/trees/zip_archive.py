"""ZIP archives: the central directory, and members inflated in bounded memory."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from tempfile import SpooledTemporaryFile
from typing import Protocol

from buildmatrix.facts.trees.base import ByteSource, Closing, Readable, Unreadable

# Central directory.
#
# Source: the ZIP application note 6.3 (4.3.12 to 4.3.16, 4.5.3 for zip64). Ambiguities are resolved
# as by Python's `zipfile`, which installers use. Everything else must be consistent: tools would
# read an archive with contradictions differently.


#: Bytes of the central directory; that of tensorflow, with 20,000 entries, has 3 MB.
LARGEST_DIRECTORY = 16 << 20
#: Bytes of the first read: for most wheels the directory and the metadata.
TAIL = 64 << 10

STORED = 0
DEFLATED = 8
ENCRYPTED = 0x1
_UTF_8 = 0x800
#: Upper byte of "version made by": the upper half of the attributes is a mode.
_UNIX = 3

#: Signature, disk, disk of the directory, entries here and in all, size, offset, comment.
_END = Struct("<4s4H2IH")
_END_MARK = b"PK\x05\x06"
#: Signature, disk, offset of the zip64 end record, disks.
_LOCATOR = Struct("<4sIQI")
_LOCATOR_MARK = b"PK\x06\x07"
#: Signature, size of the record, versions, disks, entries here and in all, size, offset.
_END_64 = Struct("<4sQ2H2I4Q")
_END_64_MARK = b"PK\x06\x06"
#: Signature, versions, flags, method, time, date, CRC, sizes, lengths of name, extra field and
#: comment, disk, attributes, offset of the local header.
_ENTRY = Struct("<4s6H3I5H2I")
_ENTRY_MARK = b"PK\x01\x02"
#: Signature, version, flags, method, time, date, CRC, sizes, lengths of name and extra field.
LOCAL = Struct("<4s5H3I2H")
LOCAL_MARK = b"PK\x03\x04"
_EXTRA = Struct("<2H")
_ZIP_64 = 1
_IN_EXTRA = 0xFFFF_FFFF


class Bytes(ByteSource, Protocol):
    """Random access to a source of known size."""

    @property
    def size(self) -> int:
        """Total bytes."""
        ...


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """Entry of a member in the directory."""

    name: str
    #: Name as stored; the local header must repeat it.
    raw: bytes
    flags: int
    method: int
    crc: int
    compressed: int
    size: int
    #: Offset of its local header in the file, and upper bound of the end of its content: the next
    #: member or the directory.
    offset: int
    end: int = 0
    #: Unix type and permissions; 0 if the archive was made on another system.
    mode: int = 0


@dataclass(frozen=True, slots=True)
class _EndRecord:
    """Fields of the end record, and its offset or that of the zip64 one before it."""

    at: int
    count: int
    size: int
    offset: int


def read_directory(source: Bytes) -> tuple[ZipEntry, ...]:
    """Return all entries in the order of the directory, including folders.

    Raises `Unreadable` for anything but a consistent ZIP archive, or OSError.
    """
    tail_at = max(0, source.size - TAIL)
    tail = source.read(tail_at, source.size - tail_at)
    if tail_at and _END_MARK not in tail:
        # The longest comment shifts a part of the end record before the tail.
        tail_at = max(0, tail_at - _END.size)
        tail = source.read(tail_at, _END.size) + tail
    if len(tail) < source.size - tail_at:
        raise Unreadable("no readable ZIP archive: it is shorter than it says")
    end = _read_end(source, tail, tail_at)
    if end.size > LARGEST_DIRECTORY:
        raise Unreadable(f"no readable ZIP archive: its directory says it has {end.size} bytes")
    start = end.at - end.size
    # As in zipfile: bytes before the archive (a self-extracting program) shift all offsets.
    moved = start - end.offset
    if start < 0 or moved < 0:
        raise Unreadable("no readable ZIP archive: its directory lies outside of it")
    data = tail[max(0, start - tail_at) : end.at - tail_at] if end.at > tail_at else b""
    if start < tail_at:
        before = source.read(start, min(tail_at, end.at) - start)
        data = before + data
    if len(data) < end.size:
        raise Unreadable("no readable ZIP archive: its directory is cut short")
    entries = list(_parse_entries(data, end.count, moved))
    starts = sorted({fields[-1] for fields, _ in entries})
    following = dict(zip(starts, [*starts, start][1:], strict=True))
    return tuple(ZipEntry(*fields, following[fields[-1]], mode) for fields, mode in entries)


def _read_end(source: Bytes, tail: bytes, tail_at: int) -> _EndRecord:
    at = len(tail) - _END.size
    if at < 0 or not tail.startswith(_END_MARK, at) or tail[-2:] != b"\0\0":
        at = tail.rfind(_END_MARK)
    if at < 0 or at + _END.size > len(tail):
        raise Unreadable("no readable ZIP archive: it has no end record, so it is cut short")
    _, disk, first_disk, count_on_disk, count, size, offset, _ = _END.unpack_from(tail, at)
    end = _EndRecord(tail_at + at, count, size, offset)
    locator_at = end.at - _LOCATOR.size
    locator = _read_at(source, tail, tail_at, locator_at, _LOCATOR.size) if locator_at >= 0 else b""
    if locator.startswith(_LOCATOR_MARK):
        _, disk, _, disks = _LOCATOR.unpack(locator)
        record_at = locator_at - _END_64.size
        record = _read_at(source, tail, tail_at, record_at, _END_64.size) if record_at >= 0 else b""
        if disk or disks > 1 or not record.startswith(_END_64_MARK):
            raise Unreadable("no readable ZIP archive: its zip64 end record is missing")
        _, _, _, _, disk, first_disk, count_on_disk, count, size, offset = _END_64.unpack(record)
        end = _EndRecord(record_at, count, size, offset)
    if disk or first_disk or count_on_disk != count:
        raise Unreadable("no readable ZIP archive: it is a part of one on several disks")
    return end


def _read_at(source: Bytes, tail: bytes, tail_at: int, offset: int, length: int) -> bytes:
    if offset >= tail_at:
        return tail[offset - tail_at : offset - tail_at + length]
    return source.read(offset, length)


def _parse_entries(
    data: bytes, count: int, moved: int
) -> Iterator[tuple[tuple[str, bytes, int, int, int, int, int, int], int]]:
    """Yield the fields of each `ZipEntry` up to its offset, and its mode.

    `moved` is added to all offsets, for data before the archive.
    """
    at = entries = 0
    while at < len(data):
        if at + _ENTRY.size > len(data) or not data.startswith(_ENTRY_MARK, at):
            raise Unreadable("no readable ZIP archive: its directory is damaged")
        (
            _, made_by, _, flags, method, _, _, crc, compressed, size,
            name_length, extra_length, comment_length, _, _, attributes, offset,
        ) = _ENTRY.unpack_from(data, at)  # fmt: skip
        name_at = at + _ENTRY.size
        extra_at = name_at + name_length
        at = extra_at + extra_length + comment_length
        if at > len(data):
            raise Unreadable("no readable ZIP archive: its directory is damaged")
        raw = data[name_at:extra_at]
        if _IN_EXTRA in (compressed, size, offset):
            extra = data[extra_at : extra_at + extra_length]
            size, compressed, offset = _read_zip64(extra, size, compressed, offset)
        entries += 1
        mode = attributes >> 16 if made_by >> 8 == _UNIX else 0
        name = _decode_name(raw, flags)
        yield (name, raw, flags, method, crc, compressed, size, offset + moved), mode
    if entries != count:
        raise Unreadable(
            f"no readable ZIP archive: its directory has {entries} entries and says {count}"
        )


def _decode_name(raw: bytes, flags: int) -> str:
    if b"\0" in raw:
        raise Unreadable("no readable ZIP archive: the name of a member holds a NUL")
    try:
        return raw.decode("utf-8" if flags & _UTF_8 else "cp437")
    except UnicodeDecodeError:
        raise Unreadable(
            "no readable ZIP archive: the name of a member is not the UTF-8 that it says it is"
        ) from None


def _read_zip64(extra: bytes, size: int, compressed: int, offset: int) -> tuple[int, int, int]:
    """Return values above 32 bits from the zip64 extra field (4.5.3)."""
    at = 0
    while at + _EXTRA.size <= len(extra):
        kind, length = _EXTRA.unpack_from(extra, at)
        at += _EXTRA.size
        if kind == _ZIP_64:
            numbers = extra[at : at + length]
            values = []
            for value in (size, compressed, offset):
                if value == _IN_EXTRA:
                    if len(numbers) < 8:
                        break
                    value, numbers = int.from_bytes(numbers[:8], "little"), numbers[8:]
                values.append(value)
            if len(values) == 3:
                return values[0], values[1], values[2]
            break
        at += length
    raise Unreadable("no readable ZIP archive: the zip64 sizes of a member are missing")


# Members. Deflate can only be read from its start: `Sequential` reads a member and checks its CRC
# at the end, `Inflated` adds random access.


#: Decompressed bytes to process at once.
BLOCK = 1 << 20
#: Decompressed bytes of a file to hold in memory.
LARGEST_HELD = 8 << 20
#: Bytes to decompress for the beginning of a member: enough for every magic number and for the
#: headers of most libraries.
HEAD = 64 << 10
#: Compressed bytes to read at once.
INPUT = 16 << 10


class Sequential:
    """Sequential reader of a member; `compressed(offset, length)` reads its stored bytes.

    `read` raises `Unreadable` for a member with another size or CRC than its entry: before the
    last byte is returned.
    """

    def __init__(self, compressed: Callable[[int, int], bytes], entry: ZipEntry) -> None:
        self._compressed = compressed
        self._entry = entry
        deflated = entry.method == DEFLATED
        self._decompressor = zlib.decompressobj(-zlib.MAX_WBITS) if deflated else None
        self._crc = 0
        #: Compressed bytes read, and decompressed bytes returned.
        self.consumed = 0
        self.produced = 0

    def read(self, length: int) -> bytes:
        """Return the next bytes, at least one and at most `length`; none only at the end."""
        length = min(length, self._entry.size - self.produced)
        data = self._read_next(length) if length > 0 else b""
        self.produced += len(data)
        if length > 0 and not data:
            raise Unreadable(f"ends after {self.produced} of {self._entry.size} bytes")
        self._crc = zlib.crc32(data, self._crc)
        if self.produced == self._entry.size and (
            self._read_next(1) or self._crc != self._entry.crc
        ):
            raise Unreadable("broken member of the wheel: bad CRC-32, or more bytes than it says")
        return data

    def _read_next(self, length: int) -> bytes:
        decompressor = self._decompressor
        if decompressor is None:
            data = self._compressed(self.consumed, length)
            self.consumed += len(data)
            return data
        while not decompressor.eof:
            data = decompressor.unconsumed_tail
            if not data:
                data = self._compressed(self.consumed, INPUT)
                self.consumed += len(data)
            try:
                piece = decompressor.decompress(data, length)
            except zlib.error as error:
                raise Unreadable(f"broken member of the wheel: {error}") from error
            if piece or not data:
                return piece
        return b""


class Inflated(Closing):
    """`RandomAccess` to a file of `size` bytes, decompressed once from `stream`.

    Keeps up to `LARGEST_HELD` bytes in memory, more in an unnamed file in TMPDIR. The head is
    decompressed first, and then, if the file fits into memory, all of it, so that the CRC was
    checked before other bytes are returned. A larger file, or one with `ahead` False, is
    decompressed as far as needed and only verified by `finish`.
    """

    def __init__(self, stream: Readable, size: int, *, ahead: bool = True) -> None:
        self._stream = stream
        self._size = size
        self._ahead = ahead and size <= LARGEST_HELD
        self._file = SpooledTemporaryFile(LARGEST_HELD, prefix="buildmatrix-")  # noqa: SIM115
        #: Bytes decompressed.
        self.bytes_read = 0

    def close(self) -> None:
        """See `Closing.close`."""
        self._file.close()

    def read(self, offset: int, length: int) -> bytes:
        """See `RandomAccess.read`."""
        end = min(offset + length, self._size)
        if not 0 <= offset < end:
            return b""
        if end > self.bytes_read:
            self._inflate(max(end, HEAD) if end <= HEAD or not self._ahead else self._size)
        self._file.seek(offset)
        return self._file.read(end - offset)

    def finish(self) -> None:
        """Decompress the rest. Raises `Unreadable` for an invalid member."""
        self._inflate(self._size)

    def _inflate(self, end: int) -> None:
        """Decompress up to offset `end`."""
        end = min(end, self._size)
        self._file.seek(self.bytes_read)
        while self.bytes_read < end:
            piece = self._stream.read(min(BLOCK, end - self.bytes_read))
            if not piece:
                raise Unreadable("it ends early")
            self._file.write(piece)
            self.bytes_read += len(piece)
