from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from buildmatrix.facts.elf import sieve

NEEDLES = [
    b".so", b"\x00.s.so", b"aaa", b"aba", b"C", b"xC", b"OC" + b"x" * 20, b"\x7fELF", b"L" * 40,
    b"no anchor is in here, and it is long", b"\xff\x00",
]  # fmt: skip
PIECES = st.sampled_from([*NEEDLES, *(one[:-1] for one in NEEDLES), b"a", b"\x00", b".", b"ab"])


def make_sieves() -> list[sieve.Sieve]:
    """Sieves with and without `ahocorasick_rs`, which the development environment has."""
    assert sieve.IS_FAST
    made = [sieve.Sieve(NEEDLES, b"")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sieve, "IS_FAST", False)
        return made + [sieve.Sieve(NEEDLES, anchors) for anchors in (b"", b".CL", b"a\x00", b"xL")]


SIEVES = make_sieves()


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
    for one in SIEVES:
        assert one.hits(data, start, stop) == plainly(data, start, stop)


@pytest.mark.parametrize("size", [0, 5, 65_530, 65_536, 65_540, 200_000])
@pytest.mark.parametrize("is_fast", [True, False])
def test_a_word_is_found_wherever_it_stands(
    size: int, is_fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sieve, "IS_FAST", is_fast)
    has_word = sieve.make_word_search((b"dlopen", b"load_library"))
    for behind in (b"", b"x" * 70_000):
        assert not has_word(b"-" * size + b"load_librar" + behind)
        assert has_word(b"-" * size + b"load_library" + behind)


def test_needles_around_the_ends_of_parts_are_found_once() -> None:
    data = b"".join(b"-" * (65_530 + shift) + b"ab" + b"aba" * 3 for shift in range(9))
    for one in SIEVES:
        assert one.hits(data, 7, len(data)) == plainly(data, 7, len(data))
