"""Python files as they are held in memory."""

from __future__ import annotations

import pickle

import pytest

from buildmatrix.facts.python_imports import skeleton as python_excerpt
from buildmatrix.facts.python_imports.parser import MOST_SIGNS, Unparsable, parse
from buildmatrix.facts.python_imports.skeleton import make_excerpt
from buildmatrix.facts.python_imports.source import ANY_MODULE, LARGEST_SOURCE, make_outline


@pytest.mark.parametrize("line", [b"a\n", b"f(a,a)\n", b"x=-1\n"])
def test_a_file_whose_syntax_tree_would_fill_the_memory_is_not_parsed(line: bytes) -> None:
    with pytest.raises(Unparsable, match="too large"):
        parse(line * (MOST_SIGNS + 1))


def test_a_large_file_of_text_is_parsed() -> None:
    assert parse(b"x = '''" + b"A long description of an operator, " * 10_000 + b"'''\n").body


def test_outlines_of_other_processes_share_their_names() -> None:
    source = b"import torch.nn\nfrom numpy import array\n"
    own = make_outline(source)
    there = pickle.loads(pickle.dumps(own))
    assert there == own
    assert all(one is other for one, other in zip(there.imports, own.imports, strict=True))


# Large generated files: an excerpt is parsed

#: As the bindings of Vulkan have it: one load between tens of thousands of constants.
LOADING = (
    "from ._cache import ffi\n"
    "@ffi.callback\ndef _never(x):\n    return x\n"
    "NAMES = ('libvulkan.so.1', 'vulkan-1.dll')\n"
    "def _load():\n    for name in NAMES:\n        try:\n            return ffi.dlopen(name)\n"
    "        except OSError:\n            pass\n    raise OSError('''\nno Vulkan\n''')\n"
)
CONSTANTS = "".join(f"VK_CONSTANT_NUMBER_{number} = {number}\n" for number in range(40_000))


def test_of_a_large_file_what_loads_is_parsed_in_its_own_lines() -> None:
    source = f"{CONSTANTS}{LOADING}{CONSTANTS}lib = _load()\n".encode()
    assert len(source) > 2 * LARGEST_SOURCE
    found = make_excerpt(source)
    assert found.count(b"\n") == source.count(b"\n")
    assert len(found.replace(b"\n", b"")) < 500
    kept = [type(one).__name__ for one in parse(found).body]
    assert kept == ["ImportFrom", "Assign", "FunctionDef", "Assign"]
    last = parse(found).body[-1]
    assert last.lineno == source.count(b"\n")


def test_of_a_large_file_that_is_all_loads_nothing_is_parsed() -> None:
    assert make_excerpt(b"ctypes.CDLL('liba.so.1')\n" * 50_000) == b""


def test_a_file_of_too_many_statements_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_excerpt, "MOST_STATEMENTS", 10)
    assert make_excerpt(b"x = 1\n" * 11) == b""
    assert make_excerpt(b"dlopen('a')\n" * 10)


# Imports whose names are put together


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (b"import_module(f'{__name__}.x')\n", True),
        (b"for one in names:\n    import_module(one)\n", True),
        (b"def load(name):\n    return import_module(name)\n\nlib = load('x')\n", True),
        (b"def load(name):\n    return import_module(name)\n", False),
        (b"def __getattr__(name):\n    if name in ALL:\n        return __import__(name)\n", False),
        (b"import_module('pkg.x')\n", False),
    ],
)
def test_imports_of_any_module_are_told_of_where_an_import_may_run_them(
    source: bytes, told: bool
) -> None:
    assert (ANY_MODULE in make_outline(source).imports) is told
