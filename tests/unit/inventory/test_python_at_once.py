"""What an import of a file runs in turn, by the looks of its statements."""

import pytest

from buildmatrix.inventory.python_source import imported_at_once


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
        pytest.param(b"no_import_module('a')\n", [], id="the end of a longer name"),
        pytest.param(b"import_module(\n    'a'\n)\n__import__(b)\n", ["a", "*"], id="put together"),
        pytest.param(
            b"import_module\nimport_module('a')\nimport_module('b')", ["a", "b"], id="each place"
        ),
    ],
)
def test_what_an_import_imports_at_once(source: bytes, expected: list[str]) -> None:
    assert list(imported_at_once(source)) == expected
