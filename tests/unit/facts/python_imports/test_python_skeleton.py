"""Python without the bodies of its functions, against the parser, on real and hostile source."""

from __future__ import annotations

import ast
import sysconfig
from pathlib import Path

import pytest
from test_python_loading import ELF, reach, read

from buildmatrix.facts.inventory import python_outside
from buildmatrix.facts.python_imports.parser import parse, walk
from buildmatrix.facts.python_imports.skeleton import (
    OmittedBodies,
    fill_body,
    make_skeleton,
    parse_skeleton,
)

#: Modules that every Python has: many strings, nested functions, decorators, and comments.
MODULES = ("argparse", "ast", "enum", "functools", "inspect", "textwrap", "typing", "unittest/mock")


def described(tree: ast.Module) -> list[tuple[str, object, object]]:
    """All nodes, and where they begin."""
    return [
        (ast.dump(one) if isinstance(one, ast.expr) else type(one).__name__, line, column)
        for one in walk(tree)
        for line, column in [(getattr(one, "lineno", None), getattr(one, "col_offset", None))]
    ]


@pytest.mark.parametrize("name", MODULES)
def test_a_skeleton_with_its_bodies_is_what_the_parser_gives(name: str) -> None:
    source = (Path(sysconfig.get_path("stdlib")) / f"{name}.py").read_bytes()
    found = make_skeleton(source)
    assert found is not None
    assert len(found.functions) > 5
    assert found.text.count(b"\n") == source.count(b"\n")
    tree, left_out = parse(found.text), OmittedBodies(source, found.functions)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            text = left_out.take(node)
            if text is not None:
                fill_body(node, parse(text))
    assert described(tree) == described(parse(source))


@pytest.mark.parametrize(
    "source",
    [
        # What looks like the end of a body, and like a body, in strings.
        b'def f():\n    x = """\ndef g():\n    y = 1\n"""\nimport a\n',
        b"def f():\n    x = 'a\\\nimport b'\nimport a\n",
        b'def f(x=")", y=(1, (2, [3])), *, z="""\n"""):\n    # """\n    return x\nimport a\n',
        b"def f(): return '''\n    '''\nimport a\n",
        b'def f():\n    x = rf"{y}" f"""{z["a"]}\n{{{1}"""\n    return 1\nimport a\n',
        b"def f():\n    x = 1 + \\\n2\n    return x\nimport a\n",
    ],
)
def test_statements_behind_a_body_are_still_there(source: bytes) -> None:
    found = parse_skeleton(source)
    tree = found[0] if found is not None else parse(source)
    assert [type(one) for one in tree.body] == [type(one) for one in parse(source).body]
    assert isinstance(tree.body[-1], ast.Import)


@pytest.mark.parametrize(
    "source",
    [
        b"def f():\n\treturn 1\n",
        b"def f():\r    return 1\rimport a\n",
        b"# coding: shift_jis\ndef f():\n    return 1\n",
        # The quotes of the string inside of it (PEP 701): where it ends depends on the version.
        b'def f():\n    x = f"{y["a"]}"\n    return 1\n',
        b'def f():\n    x = f"\\{y["a"]}"\n    return 1\n',
        b'def f():\n    x = f"}}{y:{z["a"]}}"\n    return 1\n',
        # Brackets that end with less indent than the body has, and strings without an end.
        b"def f():\n    x = (1,\n2)\n    return x\n",
        b'def f():\n    x = """\n    return x\n',
        # What a `try` means depends on what functions do with its names.
        b"def f():\n    return 1\ntry:\n    import a\nexcept ImportError as e:\n    b = e\n",
    ],
)
def test_a_file_is_parsed_whole_where_its_bytes_leave_a_doubt(source: bytes) -> None:
    assert parse_skeleton(source) is None


def test_a_body_with_an_import_is_never_left_out() -> None:
    bodies = (
        b"    import a\n",
        b"    x = 1; import a\n",
        b"    if x:import a\n",
        b"    from .a import b\n",
    )
    for body in bodies:
        assert parse_skeleton(b"def f():\n    pass\n" + body) is None
    assert parse_skeleton(b'def f():\n    """Be important."""\n') is not None


def test_hostile_source_has_its_skeleton_in_time_that_grows_with_its_length() -> None:
    # Each of them takes minutes where a pattern is tried again from every place.
    for piece in (
        b"def f(",
        b"def f(()\n",
        b"def f(x='",
        b'"',
        b"f'{",
        b"    (",
        b"def f():\n 1\n",
    ):
        make_skeleton(piece * (1_000_000 // len(piece)))


def test_a_body_is_followed_when_an_import_calls_it(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "pkg/__init__.py": "from .a import A, late\nA()\n",
        "pkg/a.py": "from .b import load\nclass A:\n    def __init__(self):\n        first()\n"
        "def first():\n    second()\ndef second():\n    load()\ndef late():\n    other()\n",
        "pkg/b.py": "def load():\n    from . import _c\ndef other():\n    from . import _d\n",
        "pkg/_c.abi3.so": ELF,
        "pkg/_d.abi3.so": ELF,
    }
    assert reach(read(tmp_path, files)) == {"pkg/_c.abi3.so": "import", "pkg/_d.abi3.so": "lazy"}


def test_a_called_body_that_does_not_parse_is_unread(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "pkg/__init__.py": "from ._c import x\ndef f():\n    no python here\n    return 1\nf()\n",
        "pkg/_c.abi3.so": ELF,
    }
    unread = read(tmp_path, files).unread
    assert [(one.path.rpartition("/")[2], "line 3" in one.why) for one in unread] == [
        ("__init__.py", True)
    ]


def test_too_much_source_for_calls_into_other_distributions_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_outside, "MOST_SOURCE", 10)
    metadata = "Metadata-Version: 2.1\nName: other\nVersion: 1.0\n"
    files: dict[str, str | bytes] = {
        "pkg/__init__.py": "import other._c\nother._c.f()\n",
        "other/_c.abi3.so": ELF,
        "other-1.0.dist-info/METADATA": metadata,
        "other-1.0.dist-info/RECORD": "other/_c.abi3.so,,\n",
    }
    inventory = read(tmp_path, files)
    assert ["calls into other" in one.why for one in inventory.unparsed] == [True]
