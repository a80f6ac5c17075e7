"""Ends and middles of deflated members, inflated without the bytes before them."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Callable, Iterator
from functools import partial

from buildmatrix.facts.binaries.stream import UNKNOWN

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
        for shifted in _places(data):
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


def _places(data: bytes) -> Iterator[memoryview]:
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
        yield from (memoryview(b"\0" + data[at:]) for at in _stored(data, start))
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


def _stored(data: bytes, start: int) -> Iterator[int]:
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
