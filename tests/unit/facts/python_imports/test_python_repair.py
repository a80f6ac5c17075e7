"""Python for other interpreters than the one that runs the scanner, and what is no Python."""

from __future__ import annotations

import ast
import py_compile
from pathlib import Path

import pytest

from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.python_imports.repair import read_tree, repair
from buildmatrix.facts.trees.archive import DirectoryTree

LOAD = "import ctypes\nctypes.CDLL('libcudart.so.12')\n"


def read(root: Path, init: str | bytes, **files: str | bytes) -> Inventory:
    """The inventory of a site-packages with `pkg`, whose modules are `init` and `files`."""
    modules = {"__init__": init, **files}
    metadata = root / "pkg-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\n")
    (metadata / "RECORD").write_text("".join(f"pkg/{name}.py,,\n" for name in modules))
    (root / "pkg").mkdir()
    for name, source in modules.items():
        data = source if isinstance(source, bytes) else source.encode()
        (root / f"pkg/{name}.py").write_bytes(data)
    with DirectoryTree(root) as tree:
        return collect(tree)


def at_import(inventory: Inventory) -> set[str]:
    """What an import loads, and fails without."""
    loads = (one for one in inventory.python_loads if one.reach == "import")
    return {name for one in loads for name in one.names}


#: Statements of other Pythons, and what they become; as many lines as before.
OTHERS = {
    "type": ("type X = int", "pass"),
    "type with parameters": ("type X[T: int] = (\n    list[T]  # x\n)", "pass"),
    "def": ("def f[T: (int, str) = int, *Ts](x: T):\n    pass", "def f(x: T):\n    pass"),
    "def over lines": ("def f[\n    T,  # x\n](x):\n    pass", "def f(x):\n    pass"),
    "async def": ("async def f[T](x):\n    pass", "async def f(x):\n    pass"),
    "class": ("class A[T](B):\n    pass", "class A(B):\n    pass"),
    "class alone": ("class A[T]:\n    pass", "class A:\n    pass"),
    "quotes in f-strings": ('x = f"{d["k"]}"', "x = '' + d['k'] + ''"),
    "backslash in f-strings": (r'x = f"{"\n".join(y)}!"', r"x = '' + '\n'.join(y) + '!'"),
    "f-strings in f-strings": ('x = f"{f"{f"{y}"}"}"', "x = '' + ('' + ('' + y + '') + '') + ''"),
    "f-strings over lines": ('x = f"{\n    y  # why\n}"', "x = '' + y + ''"),
    "formats": ('x = f"{a!r:>{w["w"]}} {b=} {{}}"', "x = '' + a + ' ' + b + ' {}'"),
    "strings beside f-strings": (
        "x = ('a' f\"{d[\"k\"]}\"\n     'b')",
        "x = 'a' + '' + d['k'] + '' + 'b'",
    ),
    "raw f-strings": (r'x = rf"\d{d["k"]}"', r"x = r'\d' + d['k'] + ''"),
    "names in f-strings": (r'x = f"\N{BULLET}{d["k"]}"', r"x = '\N{BULLET}' + d['k'] + ''"),
    "quotes at the end of a piece": (
        'x = f@@@a="{d["k"]}" b@@@'.replace("@", '"'),
        "x = 'a=\"' + d['k'] + '\" b'",
    ),
    "t-strings": ('x = t"{y}"', "x = '' + y + ''"),
    "except": (
        "try:\n    x\nexcept A, B:\n    raise",
        "try:\n    x\nexcept (A, B):\n    raise",
    ),
    "lazy import": ("lazy import a.b as c", "if 0:\n    import a.b as c"),
    "lazy from": ("lazy from a import b", "if 0:\n    from a import b"),
    "tabs": ("if x:\n\ty = 1\n        z = 1\ntype X = int", "if x:\n    y = 1\n    z = 1\npass"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_syntax_of_other_pythons_is_read_on_every_interpreter(name: str) -> None:
    source, expected = OTHERS[name]
    read = repair(f"{source}\nlast = 1\n".encode())
    assert read is not None
    assert read.lost == ()
    assert ast.dump(read.tree) == ast.dump(ast.parse(f"{expected}\nlast = 1\n"))
    assert read.tree.body[-1].lineno == source.count("\n") + 2


def test_what_parses_is_the_same_after_it_was_repaired() -> None:
    for path in sorted(Path(ast.__file__).parent.glob("[c-e]*.py")):
        source = path.read_bytes()
        if b'f"' in source or b"f'" in source:
            continue  # f-strings become sums
        read = repair(source)
        assert read is not None
        assert read.lost == ()
        assert ast.dump(read.tree, include_attributes=False) == ast.dump(ast.parse(source)), path


@pytest.mark.parametrize("name", OTHERS)
def test_an_import_is_followed_through_the_syntax_of_other_pythons(
    tmp_path: Path, name: str
) -> None:
    inventory = read(tmp_path, f"{OTHERS[name][0]}\n{LOAD}")
    assert at_import(inventory) == {"libcudart.so.12"}
    assert inventory.unread == inventory.unparsed == ()


@pytest.mark.parametrize(
    "source",
    [
        "def load[T](name: T):\n    ctypes.CDLL(name)\nload('libcudart.so.12')",
        'ctypes.CDLL(f"lib{"cudart"}.so{"."}12")',
        'ctypes.CDLL(t"lib{"cudart"}.so.12")',
        "try:\n    ctypes.CDLL('libcudart.so.12')\nexcept KeyError, ValueError:\n    pass",
    ],
)
def test_loads_in_the_syntax_of_other_pythons_are_loads(tmp_path: Path, source: str) -> None:
    inventory = read(tmp_path, f"import ctypes\n{source}\ntype X = int\n")
    assert at_import(inventory) == {"libcudart.so.12"}


def test_a_guard_in_the_syntax_of_other_pythons_is_one(tmp_path: Path) -> None:
    source = "try:\n    ctypes.CDLL('libx.so')\nexcept OSError, KeyError:\n    pass\n"
    inventory = read(tmp_path, f"import ctypes\n{source}")
    assert [one.reach for one in inventory.python_loads] == ["guarded"]


def test_statements_of_python_2_are_left_out(tmp_path: Path) -> None:
    inventory = read(tmp_path, f"print 'x'\nif a <> b:\n    exec 'x' in y\n{LOAD}")
    assert at_import(inventory) == {"libcudart.so.12"}
    (unread,) = inventory.unread
    assert "lines 1, 2" in unread.why


def test_statements_that_are_no_python_are_left_out_and_told(tmp_path: Path) -> None:
    source = f"def f((a, b)):\n    return a\nclass A:\n    x = = 1\n    y = 1\n{LOAD}"
    inventory = read(tmp_path, source)
    assert at_import(inventory) == {"libcudart.so.12"}
    (unread,) = inventory.unread
    assert unread.path == "pkg/__init__.py"
    assert "lines 1, 4" in unread.why


def test_only_what_an_import_gets_to_is_unread(tmp_path: Path) -> None:
    broken = "CDLL = = 1\n"
    inventory = read(
        tmp_path,
        "from . import a\n"
        "try:\n    from . import b\nexcept Exception:\n    pass\n"
        "def f():\n    from . import c\n",
        a="from . import needed\n",
        needed=broken,
        b=broken,
        c=broken,
        alone=broken,
        harmless="x = = 1\n",
    )
    assert [one.path for one in inventory.unread] == ["pkg/needed.py"]
    assert {(one.path, one.owner, one.reach) for one in inventory.unparsed} == {
        ("pkg/needed.py", "pkg==1.0", "import"),
        ("pkg/b.py", "pkg==1.0", "guarded"),
        ("pkg/c.py", "pkg==1.0", "lazy"),
        ("pkg/alone.py", "pkg==1.0", "lazy"),
    }


def test_many_statements_do_not_hide_a_load(tmp_path: Path) -> None:
    inventory = read(tmp_path, "x = {1: 2}\n" * 60_000 + LOAD)
    assert at_import(inventory) == {"libcudart.so.12"}
    assert inventory.unread == ()


def test_a_load_under_another_name_is_found_among_many_statements(tmp_path: Path) -> None:
    load = "from ctypes import CDLL as L\nload = L\n" + "x = {1: 2}\n" * 60_000
    inventory = read(tmp_path, load + "L('libcudart.so.12')\n")
    assert at_import(inventory) == {"libcudart.so.12"}


def test_more_than_is_looked_at_is_unread_whatever_it_holds(tmp_path: Path) -> None:
    inventory = read(tmp_path, "x = 'x'\n" * (9 << 17) + LOAD)
    (unread,) = inventory.unread
    assert "only its beginning was searched" in unread.why


def test_statements_that_are_never_found_cost_no_more_than_a_few_times_the_file() -> None:
    nested = "".join(f"{' ' * depth}if x:\n" for depth in range(90)) + " " * 90 + "x = = 1\n"
    read = read_tree((nested * 40 + "y = 1\n").encode())
    assert read.lost
    assert isinstance(read.tree.body[-1], ast.Assign)


def compiled(root: Path, **modules: str) -> Inventory:
    """The inventory of `pkg` with these modules, compiled and without their source."""
    read(root, modules["__init__"], **{k: v for k, v in modules.items() if k != "__init__"})
    for name in modules:
        source = root / f"pkg/{name}.py"
        py_compile.compile(str(source), cfile=str(source.with_suffix(".pyc")), doraise=True)
        source.unlink()
    listed = "".join(f"pkg/{name}.pyc,,\n" for name in modules)
    (root / "pkg-1.0.dist-info/RECORD").write_text(listed)
    with DirectoryTree(root) as tree:
        return collect(tree)


def test_compiled_python_that_may_load_a_library_is_unread(tmp_path: Path) -> None:
    inventory = compiled(tmp_path, __init__="from . import inner\n", inner=LOAD)
    assert [(one.path, one.why) for one in inventory.unread] == [
        ("pkg/__init__.pyc", "compiled Python without its source")
    ]


def test_compiled_python_that_loads_nothing_is_no_matter(tmp_path: Path) -> None:
    inventory = compiled(tmp_path, __init__="import os\n", inner="x = 1\n")
    assert inventory.unread == inventory.unparsed == ()


def test_compiled_python_beside_its_source_says_nothing(tmp_path: Path) -> None:
    read(tmp_path, LOAD)
    (tmp_path / "pkg/__init__.pyc").write_bytes(b"CDLL")
    with DirectoryTree(tmp_path) as tree:
        inventory = collect(tree)
    assert at_import(inventory) == {"libcudart.so.12"}
    assert inventory.unread == ()
