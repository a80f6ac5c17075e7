"""Searches bytes for many needles in a few passes.

CPython has no search for several strings, and one pass over gigabytes for each of thirty needles
takes seconds. Needles that share a byte, their anchor, share a pass: a regular expression that
begins with one literal byte passes over all others at one per cycle of the processor, and what
stands around the anchor is looked at without leaving C. A long needle alone is found faster still
by `bytes.find`, which leaps by its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

#: Needles at least as long are searched for by `bytes.find`.
_LONG = 32
#: Bytes after or before an anchor that a regular expression compares.
_COMPARED = 8


class Sieve:
    """Finds `needles`, which are no more than `regions.AFTER` bytes long and not empty.

    `anchors` are bytes that many needles have and most data has rarely, the best one first; what
    has none of them gets a pass of its own.
    """

    def __init__(self, needles: Iterable[bytes], anchors: bytes) -> None:
        shared: dict[int, list[bytes]] = {}
        self._long: list[bytes] = []
        self._passes: list[tuple[re.Pattern[bytes], tuple[tuple[bytes, int], ...]]] = []
        for needle in needles:
            anchor = next((one for one in anchors if one in needle), None)
            if anchor is not None:
                shared.setdefault(anchor, []).append(needle)
            elif len(needle) < _LONG:
                self._passes.append((re.compile(re.escape(needle)), ((needle, 0),)))
            else:
                self._long.append(needle)
        for anchor, group in shared.items():
            around = b"|".join(_around(one, one.index(anchor)) for one in group)
            pattern = re.compile(re.escape(bytes((anchor,))) + b"(?:" + around + b")")
            places = tuple((one, one.index(anchor)) for one in group)
            self._passes.append((pattern, places))

    def hits(self, data: bytes, start: int, stop: int) -> list[tuple[int, bytes]]:
        """Where needles begin in `data[start:stop]`, in order; all of their bytes are in `data`."""
        return sorted(self._hits(data, start, stop))

    def _hits(self, data: bytes, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        for pattern, places in self._passes:
            first = start + min(at for _, at in places)
            last = stop + max(len(needle) for needle, _ in places)
            for match in pattern.finditer(data, first, last):
                anchor = match.start()
                for needle, at in places:
                    begin = anchor - at
                    if start <= begin < stop and data.startswith(needle, begin):
                        yield begin, needle
        for needle in self._long:
            end = stop + len(needle) - 1
            begin = data.find(needle, start, end)
            while begin >= 0:
                yield begin, needle
                begin = data.find(needle, begin + 1, end)


def _around(needle: bytes, at: int) -> bytes:
    """What must stand around the anchor, and consumes nothing: needles may overlap."""
    after, before = needle[at + 1 :][:_COMPARED], needle[: at + 1][-_COMPARED:]
    if len(after) + 1 >= len(before):
        return b"(?=" + re.escape(after) + b")"
    return b"(?<=" + re.escape(before) + b")"
