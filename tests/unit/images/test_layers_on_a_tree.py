"""Whether what is known of a tree holds with layers on it, also where hashes of paths coincide."""

from __future__ import annotations

import hashlib
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from buildmatrix.facts.inventory.listing import RecordedLookups
from buildmatrix.fleet import stacks
from buildmatrix.fleet.stacks import BaseTreeIndex, PlainLayer

#: Of few names, so that trees and layers meet.
PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)
SOME = st.sets(PATHS, max_size=4)


def few_hashes(path: str) -> bytes:
    """One of four, so that many paths share it."""
    return bytes(7) + bytes([hashlib.sha256(path.encode()).digest()[0] % 4])


@given(names=SOME, absent=SOME, listed=SOME, files=SOME, folders=SOME)
# `a` was looked for, and has the hash of the folder `b`.
@example(names={"b/c"}, absent={"a"}, listed=set(), files=set(), folders={"a"})
def test_paths_that_share_a_hash_never_make_a_tree_take_more(
    names: set[str], absent: set[str], listed: set[str], files: set[str], folders: set[str]
) -> None:
    asked = RecordedLookups(names, absent, listed)
    layer = PlainLayer(tuple((path, 1) for path in sorted(files)), tuple(sorted(folders)))
    takes = BaseTreeIndex.of(asked, ()).accepts([layer], lambda _: False)
    with mock.patch.object(stacks, "_hash", few_hashes):
        takes_with_few = BaseTreeIndex.of(asked, ()).accepts([layer], lambda _: False)
    assert takes or not takes_with_few
