"""The last bytes of a deflated member, without those before them.

Deflate is made to be read from its start. But it is a row of blocks, each of which brings its own
codes, so who finds where a block begins can read on from there; only what its back references take
from the 32 KiB before stays unknown. Nothing marks the beginning: every bit is tried. Bits that
happen to look like one are given away by their first symbols, or because they do not lead to the
end of the member.

The same idea: Kerbiriou and Chikhi, "Parallel decompression of gzip-compressed files and random
access to DNA sequences" (2019). Format: RFC 1951.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

from buildmatrix.elf.ending import UNKNOWN

#: Inflated bytes that are held of one member.
MOST = 8 << 20
#: Places that are tried in one member (a tenth of a second in real ones), and those of them that
#: are followed beyond their first symbols.
MOST_TRIED = 50_000
MOST_FOLLOWED = 64
#: Compressed bytes that hold the codes of a block.
_CODES = 400
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
_FIRST = bytes(one for one in range(256) if one & 6 == 4 and one >> 3 <= 29)
_SECOND = bytes(one for one in range(256) if 16 <= one & 31 <= 29)
_THIRD = bytes(range(1, 256, 2))
_BEGINNING = re.compile(b"(?=[%b][%b][%b])" % tuple(map(re.escape, (_FIRST, _SECOND, _THIRD))))


class Ending:
    """The end of a file; see `elf.ending.End`."""

    def __init__(self, *copies: bytes) -> None:
        self._copies = copies

    def __len__(self) -> int:
        return len(self._copies[0])

    def codes(self, start: int, stop: int) -> list[int]:
        """See `elf.ending.End.codes`."""
        parts = [copy[max(0, start) : max(0, stop)] for copy in self._copies]
        if parts.count(parts[0]) == len(parts):
            return list(parts[0])
        return [
            low if low == other else UNKNOWN + (high << 8 | low)
            for low, high, other in zip(*parts, strict=True)
        ]


def inflate_end(data: bytes) -> Ending | None:
    """What `data`, the last bytes of a deflated member, inflates to from some block on.

    None where no block begins in it, as far as can be told.
    """
    followed = 0
    for shifted in _places(data):
        try:
            zlib.decompressobj(-zlib.MAX_WBITS, _BEFORE[0]).decompress(shifted[:_CODES], 1)
        except zlib.error:
            continue
        followed += 1
        if followed > MOST_FOLLOWED:
            break
        copies = [copy for copy in (_to_end(shifted, one) for one in _BEFORE) if copy is not None]
        if len(copies) == len(_BEFORE):
            return Ending(*copies)
    return None


def _places(data: bytes) -> Iterator[memoryview]:
    """`data` from each bit on at which a block may begin, in order."""
    bits = int.from_bytes(data, "little")
    shifted = [(bits >> shift).to_bytes(len(data), "little") for shift in range(8)]
    places = sorted(
        (match.start(), shift)
        for shift, one in enumerate(shifted)
        for match in _BEGINNING.finditer(one)
    )
    for at, shift in places[:MOST_TRIED]:
        yield memoryview(shifted[shift])[at:]


def _to_end(data: memoryview, before: bytes) -> bytes | None:
    """What `data` inflates to, where it ends with the member."""
    stream = zlib.decompressobj(-zlib.MAX_WBITS, before)
    try:
        found = stream.decompress(data, MOST)
    except zlib.error:
        return None
    # Shifted by some bits, the last byte may be an empty one.
    return found if stream.eof and len(stream.unused_data) <= 1 else None
