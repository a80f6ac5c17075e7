from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from buildmatrix.facts.elf.sieve import Sieve

NEEDLES = [
    b".so", b"\x00.s.so", b"aaa", b"aba", b"C", b"xC", b"OC" + b"x" * 20, b"\x7fELF", b"L" * 40,
    b"no anchor is in here, and it is long", b"\xff\x00",
]  # fmt: skip
PIECES = st.sampled_from([*NEEDLES, *(one[:-1] for one in NEEDLES), b"a", b"\x00", b".", b"ab"])


def plainly(data: bytes, start: int, stop: int) -> list[tuple[int, bytes]]:
    found = [(at, one) for at in range(start, stop) for one in NEEDLES if data.startswith(one, at)]
    return sorted(found)


@given(st.lists(PIECES, max_size=12).map(b"".join), st.integers(0, 60), st.integers(0, 90))
@example(b"C" * 30, 3, 9)
@example(b"ababa", 0, 3)
@example(b"L" * 90, 0, 90)
def test_a_sieve_finds_what_a_search_for_each_needle_finds(
    data: bytes, start: int, stop: int
) -> None:
    start, stop = min(start, len(data)), min(stop, len(data))
    for anchors in (b"", b".CL", b"a\x00", b"xL"):
        assert Sieve(NEEDLES, anchors).hits(data, start, stop) == plainly(data, start, stop)
