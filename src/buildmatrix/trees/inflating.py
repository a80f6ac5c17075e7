"""Members of an archive in bounded memory. Deflate can only be read from its start.

`Sequential` does that and checks the CRC at the end. `Held` has a small member in memory. `Passing`
lets who reads a large one mostly forward, as readers of headers and tables do, read it like any
other file.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Protocol

from buildmatrix.trees.base import Unreadable
from buildmatrix.trees.zipdirectory import DEFLATED, Entry

#: Bytes of inflated data that are handled, and kept, at once.
BLOCK = 1 << 20
#: Blocks kept, the oldest dropped first: as far as that, readers may go back.
KEPT = 4
#: What is inflated to look at the beginning of a member: enough for every magic number and for the
#: headers of most libraries.
HEAD = 64 << 10
#: Compressed bytes read at once.
INPUT = 16 << 10
#: A member may be inflated this many times over; readers that go back and forth stop here.
MOST_PASSES = 8


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

    def __init__(self, compressed: Callable[[int, int], bytes], entry: Entry) -> None:
        self._compressed = compressed
        self._entry = entry
        deflated = entry.method == DEFLATED
        self._decompressor = zlib.decompressobj(-zlib.MAX_WBITS) if deflated else None
        self._crc = 0
        #: Bytes of the archive that were taken, and bytes that were given for them.
        self.taken = 0
        self.given = 0

    def read(self, length: int) -> bytes:
        """The next bytes, at least one and at most `length`; nothing only at the end."""
        length = min(length, self._entry.size - self.given)
        data = self._next(length) if length > 0 else b""
        self.given += len(data)
        if length > 0 and not data:
            raise Unreadable(f"ends after {self.given} of {self._entry.size} bytes")
        self._crc = zlib.crc32(data, self._crc)
        if self.given == self._entry.size and (self._next(1) or self._crc != self._entry.crc):
            raise Unreadable("broken member of the wheel: bad CRC-32, or more bytes than it says")
        return data

    def _next(self, length: int) -> bytes:
        decompressor = self._decompressor
        if decompressor is None:
            data = self._compressed(self.taken, length)
            self.taken += len(data)
            return data
        while not decompressor.eof:
            data = decompressor.unconsumed_tail
            if not data:
                data = self._compressed(self.taken, INPUT)
                self.taken += len(data)
            try:
                piece = decompressor.decompress(data, length)
            except zlib.error as error:
                raise Unreadable(f"broken member of the wheel: {error}") from error
            if piece or not data:
                return piece
        return b""


class Held:
    """A `trees.base.Source` of a member of `size` bytes that is inflated into memory.

    The head at first, and all of it, with its CRC checked, for who reads further.
    """

    def __init__(self, stream: Inflating, size: int) -> None:
        self._stream = stream
        self._size = size
        self._data = bytearray()
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `trees.base.Source`."""
        end = min(offset + length, self._size)
        if end > len(self._data):
            self._inflate(HEAD if end <= HEAD else self._size)
        return bytes(memoryview(self._data)[max(offset, 0) : max(end, 0)])

    def _inflate(self, wanted: int) -> None:
        wanted = min(wanted, self._size)
        while len(self._data) < wanted:
            chunk = self._stream.read(min(BLOCK, wanted - len(self._data)))
            self._data += chunk
            self.bytes_read += len(chunk)


class Passing:
    """A `trees.base.Source` of a member that passes by from its start to its end.

    `begin` starts it. A reader that goes back behind the last blocks has the member begin again,
    and gets `Unreadable` where it needs that more than `MOST_PASSES` times, or where `begin` knows
    of no second time. A member that lies about its size or its CRC is told with its last byte:
    what was read of it counts only after `finish`.
    """

    def __init__(self, begin: Callable[[], Inflating], size: int) -> None:
        self._begin = begin
        self._size = size
        self._stream = begin()
        self._passes = 1
        self._head = b""
        self._blocks: dict[int, bytes] = {}
        #: Number of the block that follows.
        self._next = 0
        #: Bytes inflated; more than the size when the member had to begin again.
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `trees.base.Source`."""
        end = min(offset + length, self._size)
        if not 0 <= offset < end:
            return b""
        if end <= HEAD and 0 not in self._blocks:
            return self._beginning()[offset:end]
        first = offset // BLOCK
        last = (end - 1) // BLOCK
        data = b"".join([self._block(number) for number in range(first, last + 1)])
        return data[offset - first * BLOCK : end - first * BLOCK]

    def finish(self) -> None:
        """Let the rest pass by. Raises `Unreadable` for a member that lies."""
        while self._next * BLOCK < self._size:
            self._advance()

    def _beginning(self) -> bytes:
        if self._next:
            self._restart()
        if not self._head:
            self._head = self._take(min(HEAD, self._size))
        return self._head

    def _block(self, number: int) -> bytes:
        if number < self._next and number not in self._blocks:
            self._restart()
        while self._next <= number:
            self._advance()
        return self._blocks[number]

    def _advance(self) -> None:
        """The next block."""
        if len(self._blocks) >= KEPT:
            del self._blocks[next(iter(self._blocks))]
        start = self._next * BLOCK
        head, self._head = self._head, b""
        rest = self._take(min(BLOCK, self._size - start) - len(head))
        self._blocks[self._next] = head + rest
        self._next += 1

    def _take(self, length: int) -> bytes:
        """The next `length` bytes of the member."""
        pieces: list[bytes] = []
        while length > 0:
            piece = self._stream.read(length)
            pieces.append(piece)
            length -= len(piece)
            self.bytes_read += len(piece)
        return b"".join(pieces)

    def _restart(self) -> None:
        if self._passes == MOST_PASSES:
            raise Unreadable(
                f"its parts are needed in an order that takes over {MOST_PASSES} passes"
            )
        self._passes += 1
        self._stream = self._begin()
        self._head, self._blocks, self._next = b"", {}, 0
