"""Paths by their hashes: what was put in is there, and nothing else, as far as one can see."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from buildmatrix.fleet.stacks import PathHashes

#: Also what is no Unicode: half a surrogate pair, as Python has it for other bytes of a name.
PATHS = st.frozensets(st.text(st.characters(codec="utf-8") | st.sampled_from("/.\udc80\udcff")))


@given(PATHS, PATHS)
def test_what_is_in_it_is_there(some: frozenset[str], others: frozenset[str]) -> None:
    hashes = PathHashes.of(some)
    assert all(path in hashes for path in some)
    assert {path for path in others if path in hashes} == others & some
    assert PathHashes.of(sorted(some, reverse=True)) == hashes
    assert len(hashes.data) == 8 * len(some)


def test_a_hash_is_the_same_everywhere() -> None:
    # As `b2sum --length 64` of GNU coreutils has it.
    assert PathHashes.of(["usr/lib/libc.so.6"]).data.hex() == "5752d50eb922c88a"
