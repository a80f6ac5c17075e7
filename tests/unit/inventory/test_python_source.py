"""Python files as they are held in memory."""

from __future__ import annotations

import pickle

import pytest

from buildmatrix.inventory.python_source import MOST_SIGNS, Unparsable, outline, parse


@pytest.mark.parametrize("line", [b"a\n", b"f(a,a)\n", b"x=-1\n"])
def test_a_file_whose_syntax_tree_would_fill_the_memory_is_not_parsed(line: bytes) -> None:
    with pytest.raises(Unparsable, match="too large"):
        parse(line * (MOST_SIGNS + 1))


def test_a_large_file_of_text_is_parsed() -> None:
    assert parse(b"x = '''" + b"A long description of an operator, " * 10_000 + b"'''\n").body


def test_outlines_of_other_processes_share_their_names() -> None:
    source = b"import torch.nn\nfrom numpy import array\n"
    own = outline(source)
    there = pickle.loads(pickle.dumps(own))
    assert there == own
    assert all(one is other for one, other in zip(there.imports, own.imports, strict=True))
