"""Members of an archive in bounded memory. Deflate can only be read from its start.

`Sequential` does that and checks the CRC at the end; `Inflated` lets who reads go back.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from tempfile import SpooledTemporaryFile
from typing import Protocol

from buildmatrix.trees.base import Closing, Unreadable
from buildmatrix.trees.zipdirectory import DEFLATED, ZipEntry

#: Bytes of inflated data that are handled at once.
BLOCK = 1 << 20
#: Bytes of a file that is held in memory.
LARGEST_HELD = 8 << 20
#: What is inflated to look at the beginning of a member: enough for every magic number and for the
#: headers of most libraries.
HEAD = 64 << 10
#: Compressed bytes read at once.
INPUT = 16 << 10


class Inflating(Protocol):
    """The bytes of one file, inflated from its start to its end."""

    def read(self, length: int, /) -> bytes:
        """The next bytes, at least one and at most `length`; nothing only at the end."""
        ...


class Sequential:
    """A member of an archive from its start to its end; `compressed(offset, length)` reads it.

    `read` raises `Unreadable` for a member that ends early, goes on behind its size, or whose CRC
    is another one than its entry's: that is known with its last byte, which is not handed out.
    """

    def __init__(self, compressed: Callable[[int, int], bytes], entry: ZipEntry) -> None:
        self._compressed = compressed
        self._entry = entry
        deflated = entry.method == DEFLATED
        self._decompressor = zlib.decompressobj(-zlib.MAX_WBITS) if deflated else None
        self._crc = 0
        #: Bytes of the archive that were taken, and bytes that were given for them.
        self.consumed = 0
        self.produced = 0

    def read(self, length: int) -> bytes:
        """The next bytes, at least one and at most `length`; nothing only at the end."""
        length = min(length, self._entry.size - self.produced)
        data = self._next(length) if length > 0 else b""
        self.produced += len(data)
        if length > 0 and not data:
            raise Unreadable(f"ends after {self.produced} of {self._entry.size} bytes")
        self._crc = zlib.crc32(data, self._crc)
        if self.produced == self._entry.size and (self._next(1) or self._crc != self._entry.crc):
            raise Unreadable("broken member of the wheel: bad CRC-32, or more bytes than it says")
        return data

    def _next(self, length: int) -> bytes:
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
    """A `trees.base.RandomAccess` of a file of `size` bytes that `stream` inflates, each byte once.

    What was inflated is kept: up to `LARGEST_HELD` bytes in memory, more in an unnamed file where
    TMPDIR says. The head is inflated at first, and then all of a file that fits into memory: its
    CRC was checked before any other byte is handed out. A larger one, or one that is not to be
    inflated `ahead`, is inflated as far as it is read: that counts only after `finish`.
    """

    def __init__(self, stream: Inflating, size: int, *, ahead: bool = True) -> None:
        self._stream = stream
        self._size = size
        self._ahead = ahead and size <= LARGEST_HELD
        self._file = SpooledTemporaryFile(LARGEST_HELD, prefix="buildmatrix-")  # noqa: SIM115
        #: Bytes inflated.
        self.bytes_read = 0

    def close(self) -> None:
        """See `Closing.close`."""
        self._file.close()

    def read(self, offset: int, length: int) -> bytes:
        """See `trees.base.RandomAccess`."""
        end = min(offset + length, self._size)
        if not 0 <= offset < end:
            return b""
        if end > self.bytes_read:
            self._inflate(max(end, HEAD) if end <= HEAD or not self._ahead else self._size)
        self._file.seek(offset)
        return self._file.read(end - offset)

    def finish(self) -> None:
        """Inflate the rest. Raises `Unreadable` for a member that lies."""
        self._inflate(self._size)

    def _inflate(self, end: int) -> None:
        """Inflate up to the byte `end`."""
        end = min(end, self._size)
        self._file.seek(self.bytes_read)
        while self.bytes_read < end:
            piece = self._stream.read(min(BLOCK, end - self.bytes_read))
            self._file.write(piece)
            self.bytes_read += len(piece)
