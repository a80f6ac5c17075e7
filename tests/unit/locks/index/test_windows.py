"""The parts of a file that are in memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from buildmatrix.locks.index.ranges import Windows

FILE = bytes(range(256)) * 4
_spans = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 300)), max_size=30)


@given(_spans, st.integers(0, 600))
def test_whatever_is_held_is_what_the_file_has_there(
    spans: list[tuple[int, int]], limit: int
) -> None:
    windows = Windows(limit)
    for start, length in spans:
        windows.add(start, FILE[start : start + length])
        assert sum(map(len, windows._parts.values())) <= limit
    for offset in range(0, len(FILE), 7):
        for end in (offset, offset + 1, offset + 100, len(FILE)):
            held = windows.at(offset, end)
            assert FILE[offset:end].startswith(held)
            assert offset < windows.next(offset, end) or end <= offset


@given(_spans)
def test_nothing_is_forgotten_below_the_limit(spans: list[tuple[int, int]]) -> None:
    windows = Windows(1 << 20)
    known: set[int] = set()
    for start, length in spans:
        part = FILE[start : start + length]
        windows.add(start, part)
        known.update(range(start, start + len(part)))
    for offset in range(len(FILE)):
        assert bool(windows.at(offset, offset + 1)) == (offset in known)


def test_what_was_not_used_for_longest_goes_first() -> None:
    windows = Windows(200)
    windows.add(0, FILE[:100])
    windows.add(500, FILE[500:600])
    assert windows.at(0, 10)
    windows.add(300, FILE[300:400])
    assert windows.at(0, 10)
    assert not windows.at(500, 510)
