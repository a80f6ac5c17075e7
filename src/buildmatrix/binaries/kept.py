"""The parts of a file that passes by once: what its tables say is found in them afterwards."""

from __future__ import annotations

import zlib
from collections.abc import Callable

#: Bytes that are kept or dropped together.
BLOCK = 64 << 10


class Kept:
    """A `ByteSource` of those blocks of a file that `wanted(start, end)` asks to keep.

    It is asked when the first byte of a block passes by. Blocks behind the first `plain` bytes are
    kept compressed: string tables shrink to a tenth. `most` bytes of memory are used.
    """

    def __init__(self, most: int, wanted: Callable[[int, int], bool], plain: int = 0) -> None:
        self._most = most
        self._wanted = wanted
        self._plain = plain
        self._blocks: dict[int, bytes] = {}
        self._packed: dict[int, bytes] = {}
        self._used = 0
        #: The last two blocks, wanted or not.
        self._last: dict[int, bytes] = {}
        #: The block that was unpacked last.
        self._unpacked = (-1, b"")
        #: Parts that were read elsewhere, by where they begin.
        self._ahead: dict[int, bytes] = {}
        #: Bytes that have passed by.
        self.passed = 0
        #: Whether a read asked for bytes that are not there: dropped ones, or some to come.
        self.missing = False

    @property
    def full(self) -> bool:
        """Whether no more can be kept."""
        return self._used >= self._most

    def review(self) -> None:
        """Drop the blocks that are not wanted any more."""
        for blocks in (self._blocks, self._packed):
            for number in list(blocks):
                if not self._wanted(number * BLOCK, (number + 1) * BLOCK):
                    self._used -= len(blocks.pop(number))

    def add(self, data: bytes) -> None:
        """The bytes that follow those that have passed by."""
        at = 0
        while at < len(data):
            number, inside = divmod(self.passed, BLOCK)
            piece = data[at : at + BLOCK - inside]
            if inside:
                self._last[number] += piece
            else:
                self._last.pop(number - 2, None)
                self._last[number] = piece
            if number in self._blocks or (
                not inside and not self.full and self._wanted(self.passed, self.passed + BLOCK)
            ):
                self._keep(number)
            at += len(piece)
            self.passed += len(piece)

    def lend(self, start: int, data: bytes) -> None:
        """The bytes from `start` on, which have not passed by and are not counted."""
        self._ahead[start] = data

    def hold(self) -> None:
        """Keep the last two blocks as well."""
        if not self.full:
            for number in self._last:
                self._keep(number)

    def _keep(self, number: int) -> None:
        data = self._last[number]
        self._used += len(data) - len(self._blocks.pop(number, b""))
        if len(data) < BLOCK or number * BLOCK < self._plain:
            self._blocks[number] = data
            return
        packed = zlib.compress(data, 1)
        self._used += len(packed) - len(data) - len(self._packed.get(number, b""))
        self._packed[number] = packed

    def has(self, start: int, end: int) -> bool:
        """Whether all bytes between `start` and `end` are there."""
        if any(at <= start and end <= at + len(data) for at, data in self._ahead.items()):
            return True
        return end <= self.passed and all(
            number in self._blocks or number in self._packed
            for number in range(start // BLOCK, -(-end // BLOCK))
        )

    def read(self, offset: int, length: int) -> bytes:
        """See `ByteSource.read`; ends before the first byte that is not there."""
        parts: list[bytes] = []
        end = offset + length
        while offset < end:
            number, inside = divmod(offset, BLOCK)
            piece = self._block(number)[inside : inside + end - offset]
            if not piece:
                piece = self._lent(offset, end)
            if not piece:
                self.missing = True
                break
            parts.append(piece)
            offset += len(piece)
        return b"".join(parts)

    def _lent(self, offset: int, end: int) -> bytes:
        for start, data in self._ahead.items():
            if start <= offset < start + len(data):
                return data[offset - start : end - start]
        return b""

    def _block(self, number: int) -> bytes:
        if number not in self._packed:
            return self._blocks.get(number, b"")
        if self._unpacked[0] != number:
            self._unpacked = (number, zlib.decompress(self._packed[number]))
        return self._unpacked[1]
