"""Search for many needles at once.

CPython has no search for several strings, and one pass over gigabytes for each of thirty needles
takes seconds. `ahocorasick_rs` (the extra `fast`) compares all needles in one pass, with vector
instructions, at 3 GB per second. It is optional: the scanner in a builder has the standard library
alone.

Without it, needles that share a byte, their anchor, share a pass: a regular expression that begins
with one literal byte skips all others at one per cycle of the processor, and compares the bytes
around the anchor without leaving C. For a long needle, `bytes.find` is faster still: it leaps by
the needle's length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

try:
    from ahocorasick_rs import BytesAhoCorasick, MatchKind
except ImportError:
    IS_FAST = False
else:
    IS_FAST = True

#: Needles at least as long are searched for by `bytes.find`.
_LONG = 32
#: Bytes after or before an anchor that a regular expression compares.
_COMPARED = 8
#: Bytes searched at once by `ahocorasick_rs`: it returns a list of all matches.
_AT_ONCE = 64 << 10


class Sieve:
    """Finds `needles`, which are at most `AFTER` bytes long and not empty.

    `anchors` are bytes that many needles have and most data has rarely, the best one first; what
    has none of them gets a pass of its own.
    """

    def __init__(self, needles: Iterable[bytes], anchors: bytes) -> None:
        needles = tuple(needles)
        self._fast = _FastSieve(needles) if IS_FAST and needles else None
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
        if self._fast is not None:
            return sorted(self._fast.hits(data, start, stop))
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


class _FastSieve:
    """The same by `ahocorasick_rs`, which finds needles that do not overlap."""

    def __init__(self, needles: Sequence[bytes]) -> None:
        self._needles = needles
        self._automaton = BytesAhoCorasick(needles, MatchKind.LeftmostFirst)
        self._longest = max(map(len, needles))
        #: For each needle, those that may begin in it, with their distance from its start.
        self._inside = [
            [
                (at, other)
                for at in range(len(needle))
                for other in needles
                if (at or other != needle)
                and (needle.startswith(other, at) or other.startswith(needle[at:]))
            ]
            for needle in needles
        ]

    def hits(self, data: bytes, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        for low in range(start, stop, _AT_ONCE):
            yield from self._part_hits(data, low, min(low + _AT_ONCE, stop))

    def _part_hits(self, data: bytes, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        window = memoryview(data)[start : stop + self._longest - 1]
        for number, offset, _ in self._automaton.find_matches_as_indexes(window):
            begin = start + offset
            if begin < stop:
                yield begin, self._needles[number]
            for distance, needle in self._inside[number]:
                at = begin + distance
                if at < stop and data.startswith(needle, at):
                    yield at, needle


def make_word_search(words: Sequence[bytes]) -> Callable[[bytes], bool]:
    """Return a function that tells if data has one of `words`."""
    if not IS_FAST:
        return lambda data: any(word in data for word in words)
    find = BytesAhoCorasick(words, MatchKind.LeftmostFirst).find_matches_as_indexes
    overlap = max(map(len, words)) - 1

    def has_word(data: bytes) -> bool:
        if len(data) <= _AT_ONCE:
            return bool(find(data))
        parts = memoryview(data)
        return any(
            find(parts[at : at + _AT_ONCE + overlap]) for at in range(0, len(data), _AT_ONCE)
        )

    return has_word
