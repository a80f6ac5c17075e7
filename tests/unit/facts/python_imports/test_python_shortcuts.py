"""What is done in a faster way than the obvious one gives the same answers."""

from __future__ import annotations

import ast
import inspect
import tokenize

from hypothesis import given
from hypothesis import strategies as st

from buildmatrix.facts.python_imports import source as python_source
from buildmatrix.facts.python_imports.parser import children, walk
from buildmatrix.facts.python_imports.source import make_outline
from buildmatrix.facts.python_imports.statements import join_names

TOKENS = (
    "from a import b", "import os", "\n", "  ", ";", "#", "(", ")", "\\\n", ",", "import", "\r\n",
    "from . import x", "import_module('q')", "__import__('r')", "try:\n", "except ImportError:\n",
    "x = 1", "import a.b as c", "\f", "if x:", "from.b import(c)", "from a.b ", "\r",
    "from importlib import import_module",
)  # fmt: skip
WORDS = (
    "CDLL", "PyDLL", "WinDLL", "DLL", "load", "Load", "_library", "Library", "_op_library", "oad",
    "_dynamic", "_nvidia_dynamic_lib", "dlopen", "find_library", "register_fake",
)  # fmt: skip
#: Nodes that are left out of a walk.
DUMB = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)


@given(st.lists(st.sampled_from(TOKENS), max_size=14).map("".join))
def test_no_import_of_a_file_that_python_reads_is_missed(text: str) -> None:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    expected = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            expected.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            expected.update((base, *(join_names(base, alias.name) for alias in node.names)))
    assert expected <= set(make_outline(text.encode()).imports)


def test_a_line_of_many_words_is_looked_at_once() -> None:
    """Each would take minutes, if every word was looked for from the start of its line."""
    for text in (b" " * 500_000 + b"ximport " * 500_000, b"from a " + b"b ximport;" * 400_000):
        assert make_outline(text).imports == ()
    assert make_outline(b"x" * 4_000_000 + b"coding").imports == ()


@given(st.lists(st.sampled_from(WORDS), max_size=5).map("".join))
def test_a_file_loads_when_a_word_of_a_load_stands_in_it(text: str) -> None:
    words = python_source._LOADING_WORDS
    assert make_outline(text.encode()).loads == any(word in text.encode() for word in words)


def test_a_walk_meets_all_nodes_that_say_something_in_the_order_of_ast() -> None:
    for module in (ast, inspect, tokenize, st):
        tree = ast.parse(inspect.getsource(module))
        assert list(walk(tree)) == [one for one in ast.walk(tree) if not isinstance(one, DUMB)]
        for node in ast.walk(tree):
            expected = [one for one in ast.iter_child_nodes(node) if not isinstance(one, DUMB)]
            assert children(node) == expected
