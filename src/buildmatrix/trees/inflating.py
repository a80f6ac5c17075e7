"""Members of an archive with bounded memory: once from start to end, or with random access.

Deflate can only be read from its start. `Sequential` does that and checks the CRC at the end.
`Inflating` gives random access to a large member: a first pass inflates it, checks its CRC and
keeps a copy of the decompressor every few megabytes; after that, any place is reached by inflating
from the copy before it. What a reader walks through in order is inflated a second time, and what it
leaps over (device code) is not.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

from buildmatrix.trees.base import Unreadable
from buildmatrix.trees.zipdirectory import DEFLATED, Entry

#: Bytes of inflated data that are handled, and kept, at once.
BLOCK = 1 << 20
#: Blocks kept, the least recently used one dropped first.
KEPT = 8
#: Distance of the decompressor's copies, which take some 50 KiB each, and their largest number.
SPACING = 2 << 20
MOST_COPIES = 256
#: Compressed bytes read at once; a copy of the decompressor may hold on to as many.
INPUT = 16 << 10
#: A member may be inflated this many times over; readers that go back and forth stop here.
MOST_PASSES = 8


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


@dataclass(frozen=True, slots=True)
class _State:
    """A decompressor in the middle of its work."""

    #: Offsets of the next byte that it gives and takes.
    given: int
    taken: int
    decompressor: zlib._Decompress


class Inflating:
    """A deflated member of `size` bytes; `compressed(offset, length)` reads what it is made of.

    `read` raises `Unreadable` for a member that lies about its size or its CRC.
    """

    def __init__(
        self, compressed: Callable[[int, int], bytes], compressed_size: int, size: int, crc: int
    ) -> None:
        self._compressed = compressed
        self._compressed_size = compressed_size
        self._size = size
        self._crc = crc
        self._blocks: dict[int, bytes] = {}
        self._copies: list[_State] = []
        self._state = _State(0, 0, zlib.decompressobj(-zlib.MAX_WBITS))
        #: Bytes inflated so far; more than the size when parts were inflated again.
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `trees.base.Source`."""
        end = min(offset + length, self._size)
        if not 0 <= offset < end:
            return b""
        if not self._copies and end > BLOCK:
            self._check()
        first = offset // BLOCK
        last = (end - 1) // BLOCK
        data = b"".join([self._block(number) for number in range(first, last + 1)])
        return data[offset - first * BLOCK : end - first * BLOCK]

    def _check(self) -> None:
        """Inflate everything once. The last block is kept: tables of ELF files lie there."""
        spacing = max(SPACING, self._size // MOST_COPIES)
        state = _State(0, 0, zlib.decompressobj(-zlib.MAX_WBITS))
        self._copies.append(_State(0, 0, state.decompressor.copy()))
        crc = 0
        while state.given < self._size:
            data, state = self._inflate(state, min(BLOCK, self._size - state.given))
            crc = zlib.crc32(data, crc)
            if state.given >= self._copies[-1].given + spacing:
                copy = state.decompressor.copy()
                self._copies.append(_State(state.given, state.taken, copy))
            if state.given == self._size:
                self._keep((self._size - 1) // BLOCK, data)
        extra, _ = self._inflate(state, 1, at_end=True)
        if extra or crc != self._crc:
            raise Unreadable("broken member of the wheel: bad CRC-32, or more bytes than it says")

    def _block(self, number: int) -> bytes:
        data = self._blocks.pop(number, None)
        if data is None:
            data = self._find(number * BLOCK)
        self._keep(number, data)
        return data

    def _keep(self, number: int, data: bytes) -> None:
        if len(self._blocks) >= KEPT:
            del self._blocks[next(iter(self._blocks))]
        self._blocks[number] = data

    def _find(self, start: int) -> bytes:
        """The block at `start`."""
        before = [copy for copy in self._copies if copy.given <= start]
        if before and not before[-1].given <= self._state.given <= start:
            copy = before[-1]
            self._state = _State(copy.given, copy.taken, copy.decompressor.copy())
        while self._state.given < start:
            step = min(BLOCK, start - self._state.given)
            _, self._state = self._inflate(self._state, step)
        data, self._state = self._inflate(self._state, min(BLOCK, self._size - start))
        return data

    def _inflate(self, state: _State, wanted: int, *, at_end: bool = False) -> tuple[bytes, _State]:
        """The next `wanted` bytes, or fewer only `at_end`, and the state behind them."""
        if self.bytes_read > MOST_PASSES * self._size + BLOCK:
            raise Unreadable(f"its parts are needed in an order that takes {MOST_PASSES} passes")
        decompressor = state.decompressor
        taken = state.taken
        pieces: list[bytes] = []
        missing = wanted
        while missing and not decompressor.eof:
            data = self._compressed(taken, min(INPUT, self._compressed_size - taken))
            try:
                piece = decompressor.decompress(data, missing)
            except zlib.error as error:
                raise Unreadable(f"broken member of the wheel: {error}") from error
            taken += len(data) - len(decompressor.unconsumed_tail) - len(decompressor.unused_data)
            if not data and not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
        self.bytes_read += wanted - missing
        given = state.given + wanted - missing
        if missing and not at_end:
            raise Unreadable(f"ends after {given} of {self._size} bytes")
        return b"".join(pieces), _State(given, taken, decompressor)
