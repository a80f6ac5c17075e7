"""Search for many needles in a few passes.

CPython has no search for several strings, and one pass over gigabytes for each of thirty needles
takes seconds. Needles that share a byte, their anchor, share a pass: a regular expression that
begins with one literal byte skips all others at one per cycle of the processor, and compares the
bytes around the anchor without leaving C. For a long needle, `bytes.find` is faster still: it leaps
by the needle's length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

#: Needles at least as long are searched for by `bytes.find`.
_LONG = 32
#: Bytes after or before an anchor that a regular expression compares.
_COMPARED = 8


class Sieve:
    """Finds `needles`, which are at most `AFTER` bytes long and not empty.

    `anchors` are bytes that many needles have and most data has rarely, the best one first; what
    has none of them gets a pass of its own.
    """

    def __init__(self, needles: Iterable[bytes], anchors: bytes) -> None:
        shared: dict[int, list[bytes]] = {}
        self._long: list[bytes] = []
        self._passes: list[_Pass] = []
        for needle in needles:
            anchor = next((item for item in anchors if item in needle), None)
            if anchor is not None:
                shared.setdefault(anchor, []).append(needle)
            elif len(needle) < _LONG:
                self._passes.append(
                    _Pass(re.escape(needle[:1]) + _around(needle, 0), [(needle, 0)])
                )
            else:
                self._long.append(needle)
        for anchor, group in shared.items():
            places = [(needle, needle.index(anchor)) for needle in group]
            around = b"|".join(_around(needle, at) for needle, at in places)
            self._passes.append(_Pass(re.escape(bytes((anchor,))) + b"(?:%b)" % around, places))

    def hits(self, data: bytes, start: int, stop: int) -> list[tuple[int, bytes]]:
        """Return needles that begin in `data[start:stop]`, with positions, in order."""
        return sorted(self._hits(data, start, stop))

    def _hits(self, data: bytes, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        for item in self._passes:
            for match in item.pattern.finditer(data, start + item.nearest, stop + item.farthest):
                anchor = match.start()
                for needle, at in item.places:
                    begin = anchor - at
                    if start <= begin < stop and data.startswith(needle, begin):
                        yield begin, needle
        for needle in self._long:
            end = stop + len(needle) - 1
            begin = data.find(needle, start, end)
            while begin >= 0:
                yield begin, needle
                begin = data.find(needle, begin + 1, end)


class _Pass:
    """One pattern for several needles, with where in each of them the match begins."""

    def __init__(self, pattern: bytes, places: Sequence[tuple[bytes, int]]) -> None:
        self.pattern = re.compile(pattern)
        self.places = places
        #: Where a match may begin, from where a needle does; and where a needle ends.
        self.nearest = min(at for _, at in places)
        self.farthest = max(len(needle) for needle, _ in places)


def _around(needle: bytes, at: int) -> bytes:
    """Return a pattern for bytes around the anchor. It consumes none: needles may overlap."""
    after, before = needle[at + 1 :][:_COMPARED], needle[: at + 1][-_COMPARED:]
    if len(after) + 1 >= len(before):
        return b"(?=" + re.escape(after) + b")"
    return b"(?<=" + re.escape(before) + b")"
