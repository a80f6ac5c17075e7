"""What an import of a file runs in turn, by the looks of its statements."""

import tracemalloc

import pytest

from buildmatrix.facts.python_imports.source import find_run_imports, may_call_at_import


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(b"import a\nfrom b import c\n", ["a", "b", "b.c"], id="plain"),
        pytest.param(
            b'"""\nfrom a import (\n"""\nimport hidden\n',
            ["a", "hidden"],
            id="behind a bracket in a text",
        ),
        pytest.param(
            b"def f():\n    import a\ndef g():\n    import b\ng()\n",
            ["b"],
            id="in a called function",
        ),
        pytest.param(
            b"from importlib import import_module as load\nload('a')\nload(name='b')\n",
            ["importlib", "importlib.import_module", "a", "b"],
            id="by another name",
        ),
        pytest.param(
            b"run = importlib.import_module  # so\r\nrun('a')\n",
            ["a"],
            id="by another name of its own",
        ),
        pytest.param(
            b"def f():\n    import a\n# f()\n", [], id="in a function that a comment calls"
        ),
        pytest.param(
            b"class C:\n  def f(self):\n    import a\n  import b\n  x = f(0)\n",
            ["b", "a"],
            id="in a function of a class",
        ),
        pytest.param(
            b"if t.TYPE_CHECKING:\n    import a\nelse:\n    import b\n",
            ["b"],
            id="for type checkers",
        ),
        pytest.param(
            b"async def f(\n    x,\n):\n    import a\n\n# at the margin\n    import b\nimport c\n",
            ["c"],
            id="behind a bracket and a comment",
        ),
        pytest.param(b"no_import_module('a')\n", [], id="the end of a longer name"),
        pytest.param(b"import_module(\n    'a'\n)\n__import__(b)\n", ["a", "*"], id="put together"),
        pytest.param(
            b"import_module\nimport_module('a')\nimport_module('b')", ["a", "b"], id="each place"
        ),
    ],
)
def test_what_an_import_imports_at_once(source: bytes, expected: list[str]) -> None:
    assert list(find_run_imports(source)) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(b"import a\na.f()\n", True, id="of the module"),
        pytest.param(b"import a.b\na.b.f()\n", True, id="of a module in it"),
        pytest.param(b"import a.b as c\nc.f()\n", True, id="by another name"),
        pytest.param(b"from a import (\n  f,\n  g as h)\nh ()\n", True, id="of what is in it"),
        pytest.param(b"from a import f\nx = (f\n     .g())\n", True, id="over two lines"),
        pytest.param(b"from a import f\nx = f \\\n  ()\n", True, id="over a continued line"),
        pytest.param(b"import a\nclass C:\n  x = a.f()\n", True, id="in a class"),
        pytest.param(b"import a\n@a.f(1)\ndef g(): pass\n", True, id="around a function"),
        pytest.param(b"import a\ndef g():\n  a.f()\ng()\n", True, id="in what is called"),
        pytest.param(b"import a\ndef g():\n  a.f()\n", False, id="in what is not called"),
        pytest.param(b"import a\nclass C:\n  def g(self):\n    a.f()\n", False, id="in a method"),
        pytest.param(b"import b\nb.f()\n", False, id="of another module"),
        pytest.param(b"import a\nx = a\n", False, id="nothing"),
    ],
)
def test_only_what_may_be_called_at_once_is_worth_parsing(source: bytes, expected: bool) -> None:
    assert may_call_at_import(source, lambda name: name.partition(".")[0] == "a") == expected


@pytest.mark.parametrize(
    ("source", "called"),
    [
        pytest.param(b"import a.b\na.b.f()\n", "a.b.f", id="of a module in a folder"),
        pytest.param(b"import a\na.b.c.f()\n", "a.b.c.f", id="of what another one imported"),
        pytest.param(b"import a.b as c\nc.d.f()\n", "a.b.d.f", id="by another name"),
        pytest.param(b"from . import a\na.f()\n", ".a.f", id="of a module beside it"),
        pytest.param(
            b"from a import b\n(b\n  # then\n  .c . f\n ())\n", "a.b.c.f", id="over many lines"
        ),
    ],
)
def test_what_is_called_is_asked_for_by_its_whole_name(source: bytes, called: str) -> None:
    assert may_call_at_import(source, lambda name: name == called)


@pytest.mark.parametrize("piece", [b"a. ", b"a.", b"a ", b"a#\n", b"a\\\n", b"a"])
def test_hostile_chains_of_names_take_time_and_memory_that_grow_with_their_length(
    piece: bytes,
) -> None:
    source = piece * (500_000 // len(piece))
    tracemalloc.start()
    try:
        assert not may_call_at_import(source, lambda _: True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * len(source)
