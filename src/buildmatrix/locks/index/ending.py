"""The last bytes of a deflated member, with or without those before them."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Callable, Iterator
from functools import partial

from buildmatrix.facts.binaries.stream import UNKNOWN

# Bytes that arrive in order: the end of a file of a server is not known before its beginning


class Forward:
    """Reads from `chunks`, forward only."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._held = b""
        #: How much of `_held` was handed out.
        self._used = 0
        #: Bytes that were handed out.
        self.at = 0

    def read(self, length: int) -> bytes:
        """The next bytes, at least one and at most `length`; none at the end."""
        if length <= 0:
            return b""
        while self._used == len(self._held):
            chunk = next(self._chunks, None)
            if chunk is None:
                return b""
            self._held, self._used = chunk, 0
        data = self._held[self._used : self._used + length]
        self._used += len(data)
        self.at += len(data)
        return data

    def exactly(self, length: int) -> bytes:
        """The next `length` bytes; fewer only at the end."""
        pieces = []
        while length > 0 and (piece := self.read(length)):
            pieces.append(piece)
            length -= len(piece)
        return b"".join(pieces)

    def peek(self, length: int) -> bytes:
        """The next `length` bytes, which are read again; fewer only at the end."""
        data = self.exactly(length)
        self.back(data)
        return data

    def back(self, data: bytes) -> None:
        """Takes back what was read last."""
        if self._used >= len(data):
            self._used -= len(data)
        else:
            self._held, self._used = data + self._held[self._used :], 0
        self.at -= len(data)

    def close(self) -> None:
        """No more is wanted."""
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()


# The last bytes of a deflated member, without those before them.
#
# Deflate is made to be read from its start. But it is a row of blocks, each of which brings its own
# codes, so who finds where a block begins can read on from there; only what its back references
# take from the 32 KiB before stays unknown. Nothing marks the beginning: every bit is tried. Bits
# that happen to look like one are given away by their first symbols, or because they do not lead to
# the end of the member.
#
# The same idea: Kerbiriou and Chikhi, "Parallel decompression of gzip-compressed files and random
# access to DNA sequences" (2019). Format: RFC 1951.


#: Inflated bytes of one end, and those of them that are held: the last ones, with the sections and
#: their names.
MOST = 8 << 20
HELD = 4 << 20
#: Inflated bytes of a middle: fewer prove no beginning of a block.
LEAST_MIDDLE = 32 << 10
#: Places that are tried in one member (a tenth of a second in real ones), and those of them that
#: are followed beyond their first symbols.
MOST_TRIED = 50_000
MOST_FOLLOWED = 64
#: Compressed bytes that hold the codes of a block.
_CODES = 400
#: Compressed bytes in which places are looked for at a time, inflated ones that come at a time.
_STEP = 4 << 10
_PIECE = 256 << 10
_WINDOW = range(1 << zlib.MAX_WBITS)
#: What stands in for the bytes before. The place of each is told by the first two together; the
#: third has no byte in common with the first.
_BEFORE = (
    bytes(place & 0xFF for place in _WINDOW),
    bytes(place >> 8 for place in _WINDOW),
    bytes(place & 0xFF ^ 0xFF for place in _WINDOW),
)
#: How a block with codes of its own begins: 1 bit for the last one, 2 for its kind, the numbers
#: of codes (3.2.7). Libraries use many: blocks with few are passed over, another one follows.
_FIRST = bytes(byte for byte in range(256) if byte & 6 == 4 and byte >> 3 <= 29)
_SECOND = bytes(byte for byte in range(256) if 16 <= byte & 31 <= 29)
_THIRD = bytes(range(1, 256, 2))
_BEGINNING = re.compile(b"(?=[%b][%b][%b])" % tuple(map(re.escape, (_FIRST, _SECOND, _THIRD))))
#: What is packed already is stored in blocks (3.2.4): three bits of zero, zeros up to the next
#: byte, the length and its complement. Those of archives have thousands of bytes.
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


#: It takes a processor and some megabytes: several threads would get nothing but memory from it.
_one_at_a_time = threading.Lock()


def inflate_end(data: bytes, most: int = MOST, held: int = HELD) -> Ending | None:
    """What `data`, the last bytes of a deflated member, inflates to from some block on.

    None where no block begins in it, as far as can be told, and where it inflates to more than
    `most` bytes. The last `held` bytes of it at most.
    """
    return _inflate(data, partial(_to_end, most=most, last=held))


def inflate_middle(data: bytes) -> Ending | None:
    """What `data`, some bytes of a deflated member, inflates to from some block on.

    None where no block begins in it, as far as can be told. The first `HELD` bytes of it at most.
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
    """`data` from each bit on at which a block may begin, in order."""
    bits = int.from_bytes(data, "little")
    shifted = [(bits >> shift).to_bytes(len(data), "little") for shift in range(8)]
    tried = 0
    for start in range(0, len(data), _STEP):
        places = sorted(
            (match.start(), shift)
            for shift, copy in enumerate(shifted)
            # What begins in this step may end behind it.
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
    """The first bytes that `data` inflates to, where the member goes on behind it."""
    stream = zlib.decompressobj(-zlib.MAX_WBITS, before)
    try:
        held = stream.decompress(data, HELD)
    except zlib.error:
        return None
    return None if stream.eof or len(held) < LEAST_MIDDLE else held


def _stored(data: bytes, start: int) -> Iterator[int]:
    """Where in the step from `start` on the length of a stored block may stand."""
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
    """The last bytes that `data` inflates to, where it ends with the member."""
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
