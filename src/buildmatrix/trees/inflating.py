"""Members of archives in bounded memory. Deflate can only be read from its start.

`Sequential` reads a member and checks its CRC at the end; `Inflated` adds random access.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from tempfile import SpooledTemporaryFile
from typing import Protocol

from buildmatrix.trees.base import Closing, Unreadable
from buildmatrix.trees.zipdirectory import DEFLATED, ZipEntry

#: Decompressed bytes to process at once.
BLOCK = 1 << 20
#: Decompressed bytes of a file to hold in memory.
LARGEST_HELD = 8 << 20
#: Bytes to decompress for the beginning of a member: enough for every magic number and for the
#: headers of most libraries.
HEAD = 64 << 10
#: Compressed bytes to read at once.
INPUT = 16 << 10


class SequentialReader(Protocol):
    """Sequential reader of one file's decompressed bytes."""

    def read(self, length: int, /) -> bytes:
        """Return the next bytes, at least one and at most `length`; none only at the end."""
        ...


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

    def __init__(self, stream: SequentialReader, size: int, *, ahead: bool = True) -> None:
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
            self._file.write(piece)
            self.bytes_read += len(piece)
