"""What is read off the syntax trees of packages that are laid out like real ones."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.model import EntryPoint, Inventory, PythonLoad
from buildmatrix.facts.python_imports import program as python_program
from buildmatrix.facts.trees.archive import DirectoryTree

SITE = "lib/python3.11/site-packages"
ELF = struct.pack(
    "<4s4B8x2HI3QI6H", b"\x7fELF", 2, 1, 1, 0, 3, 62, 1, 0, 0, 0, 0, 64, 56, 0, 64, 0, 0
)


def read(root: Path, files: dict[str, str | bytes], *, entry_points: str = "") -> Inventory:
    """The inventory of a site-packages that holds one distribution with `files`."""
    metadata = "pkg-1.0.dist-info"
    everything: dict[str, str | bytes] = {
        **files,
        f"{metadata}/METADATA": "Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\n",
        f"{metadata}/RECORD": "".join(f"{path},,\n" for path in files),
    }
    if entry_points:
        everything[f"{metadata}/entry_points.txt"] = entry_points
    for path, data in everything.items():
        place = root / SITE / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data.encode() if isinstance(data, str) else data)
    with DirectoryTree(root) as tree:
        return collect(tree)


def reach(inventory: Inventory) -> dict[str, str]:
    return {binary.path.removeprefix(f"{SITE}/"): binary.reach for binary in inventory.binaries}


def only(inventory: Inventory) -> PythonLoad:
    (load,) = inventory.python_loads
    return load


def names(load: PythonLoad) -> tuple[str, ...]:
    return tuple(name.replace(f"/{SITE}", "") for name in load.names)


def test_an_extension_that_the_package_imports_without_a_guard_is_reached(tmp_path: Path) -> None:
    inventory = read(
        tmp_path,
        {
            "pkg/__init__.py": "from . import inner\n",
            "pkg/inner.py": "from pkg._c import thing\n",
            "pkg/_c.cpython-311-x86_64-linux-gnu.so": ELF,
        },
    )
    (binary,) = inventory.binaries
    assert (binary.reach, binary.reached_from) == ("import", f"{SITE}/pkg/inner.py:1")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from . import _c\n", "import"),
        ("import pkg._c\n", "import"),
        ("import importlib\nimportlib.import_module('pkg._c')\n", "import"),
        ("try:\n    from . import _c\nexcept ImportError:\n    _c = None\n", "guarded"),
        ("try:\n    from . import _c\nexcept:\n    pass\n", "guarded"),
        ("try:\n    from . import _c\nexcept (KeyError, Exception):\n    pass\n", "guarded"),
        ("try:\n    from . import _c\nexcept KeyError:\n    pass\n", "import"),
        ("try:\n    from . import _c\nexcept ModuleNotFoundError:\n    pass\n", "import"),
        ("try:\n    from . import _c\nexcept ImportError:\n    raise\n", "import"),
        (
            "try:\n    from . import _c\nexcept ImportError as e:\n    raise OSError from e\n",
            "import",
        ),
        (
            "try:\n    from . import _c\n    kept = None\nexcept Exception as e:\n    kept = e\n"
            "if kept:\n    raise kept\n",
            "import",
        ),
        (
            "import contextlib\nwith contextlib.suppress(ImportError):\n    from . import _c\n",
            "guarded",
        ),
        ("import os\nif os.environ.get('X'):\n    from . import _c\n", "guarded"),
        ("import sys\nif sys.platform == 'win32':\n    from . import _c\n", "lazy"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import _c\n", "lazy"),
        ("def f():\n    from . import _c\n", "lazy"),
        ("def f():\n    from . import _c\nf()\n", "import"),
        ("class A:\n    from . import _c\n", "import"),
    ],
)
def test_guards_and_functions_decide_how_far_an_import_gets(
    tmp_path: Path, source: str, expected: str
) -> None:
    inventory = read(tmp_path, {"pkg/__init__.py": source, "pkg/_c.abi3.so": ELF})
    assert reach(inventory) == {"pkg/_c.abi3.so": expected}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    if name == 'cpp':\n        from . import cpp\n        return cpp\n", "import"),
        ("    if name == 'cpp':\n        return import_module('.cpp', __name__)\n", "import"),
        ("    if name in _LAZY:\n        return import_module('.' + name, __name__)\n", "import"),
        ("    if name not in _LAZY:\n        raise AttributeError(name)\n"
         "    return import_module(f'{__name__}.{name}')\n", "import"),
        ("    try:\n        return import_module(_LAZY[name])\n"
         "    except KeyError:\n        raise AttributeError(name) from None\n", "import"),
        ("    try:\n        from . import cpp\n    except ImportError:\n        pass\n", "guarded"),
        ("    if os.environ.get('X'):\n        from . import cpp\n", "guarded"),
        ("    raise AttributeError(name)\n", "lazy"),
    ],
)  # fmt: skip
def test_a_submodule_that_a_modules_getattr_imports_is_one_that_users_import(
    tmp_path: Path, body: str, expected: str
) -> None:
    source = "import os\nfrom importlib import import_module\n_LAZY = {'cpp': 'pkg.cpp'}\n"
    files = {
        "pkg/__init__.py": f"{source}def __getattr__(name):\n{body}"
        + "    raise AttributeError(name)\n",
        "pkg/cpp/__init__.py": "from ._c import run\n",
        "pkg/cpp/_c.abi3.so": ELF,
        "pkg/other.py": "",
    }
    assert reach(read(tmp_path, files)) == {"pkg/cpp/_c.abi3.so": expected}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    native = importlib.import_module('pkg')\n", "import"),
        ("    native = importlib.import_module(__name__)\n", "import"),
        ("    try:\n        importlib.import_module('pkg')\n"
         "    except ImportError:\n        pass\n", "guarded"),
    ],
)  # fmt: skip
def test_a_package_that_imports_its_own_name_loads_the_extension_in_it(
    tmp_path: Path, body: str, expected: str
) -> None:
    """As cv2 does, which puts its folder into `sys.path` before."""
    source = f"import importlib\ndef bootstrap():\n{body}bootstrap()\n"
    files = {"pkg/__init__.py": source, "pkg/pkg.abi3.so": ELF, "pkg/lib/libx.so.1": ELF}
    assert reach(read(tmp_path, files)) == {
        "pkg/pkg.abi3.so": expected,
        "pkg/lib/libx.so.1": "unknown",
    }


def test_a_library_that_nothing_names_is_unknown(tmp_path: Path) -> None:
    inventory = read(tmp_path, {"pkg/__init__.py": "", "pkg/lib/libx.so.1": ELF})
    assert reach(inventory) == {"pkg/lib/libx.so.1": "unknown"}


def test_a_library_is_followed_through_functions_paths_and_constants(tmp_path: Path) -> None:
    # As torchaudio does it.
    inventory = read(
        tmp_path,
        {
            "pkg/__init__.py": "from . import _extension\n",
            "pkg/_extension/__init__.py": (
                "from .utils import _load\nif _load('_one'):\n    _load('libtwo')\n"
            ),
            "pkg/_extension/utils.py": (
                "import os\nfrom pathlib import Path\nimport torch\n"
                "LIB = Path(__file__).parent.parent / 'lib'\n"
                "def _load(lib):\n"
                "    suffix = '.pyd' if os.name == 'nt' else '.so'\n"
                "    paths = list(LIB.glob(f'{lib}*{suffix}'))\n"
                "    if not paths:\n        return False\n"
                "    torch.ops.load_library(paths[0])\n    return True\n"
            ),
            "pkg/lib/_one.abi3.so": ELF,
            "pkg/lib/libtwo.so": ELF,
            "pkg/lib/libthree.so": ELF,
        },
    )
    assert reach(inventory) == {
        "pkg/lib/_one.abi3.so": "import",
        "pkg/lib/libtwo.so": "guarded",
        "pkg/lib/libthree.so": "unknown",
    }
    load = only(inventory)
    assert (load.call, load.reach) == ("load_library", "import")
    assert names(load) == ("/pkg/lib/_one*.so", "/pkg/lib/libtwo*.so")


def test_an_exception_that_becomes_another_one_is_followed_to_who_catches_that(
    tmp_path: Path,
) -> None:
    # As xformers does it.
    inventory = read(
        tmp_path,
        {
            "pkg/__init__.py": (
                "import importlib, os, torch\n"
                "class Invalid(Exception):\n    pass\n"
                "def register():\n"
                "    finder = importlib.machinery.FileFinder(os.path.dirname(__file__), ())\n"
                "    spec = finder.find_spec('_C')\n"
                "    try:\n        torch.ops.load_library(spec.origin)\n"
                "    except OSError as exc:\n        raise Invalid() from exc\n"
                "try:\n    register()\nexcept Invalid as e:\n    print(e)\n"
            ),
            "pkg/_C.so": ELF,
        },
    )
    assert reach(inventory) == {"pkg/_C.so": "guarded"}


def test_a_guard_is_no_guard_where_its_result_is_used_anyway(tmp_path: Path) -> None:
    # As amdsmi does it: pure Python, and no import without the library.
    inventory = read(
        tmp_path,
        {
            "pkg/__init__.py": "from .wrapper import *\n",
            "pkg/wrapper.py": (
                "import ctypes\n_libraries = {}\n"
                "def find():\n"
                "    places = []\n    places.append('libamd_smi.so')\n"
                "    err = OSError()\n"
                "    for place in places:\n"
                "        try:\n            return ctypes.CDLL(place)\n"
                "        except OSError as e:\n            err = e\n"
                "    raise err\n"
                "try:\n    _libraries['smi'] = find()\n"
                "except OSError as e:\n    print(e)\n"
                "init = _libraries['smi'].init\n"
            ),
        },
    )
    load = only(inventory)
    assert (load.names, load.reach) == (("libamd_smi.so",), "import")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'libcuda.so.1'", ("libcuda.so.1",)),
        ("'nvcuda.dll' if sys.platform == 'win32' else 'libcuda.so.1'", ("libcuda.so.1",)),
        ("NAME", ("libcuda.so.1",)),
        ("f'lib{STEM}.so.{VERSION}'", ("libcuda.so.1",)),
        ("'lib%s.so.%d' % (STEM, VERSION)", ("libcuda.so.1",)),
        ("'lib{}.so.{v}'.format(STEM, v=VERSION)", ("libcuda.so.1",)),
        ("'lib' + STEM + '.so.1'", ("libcuda.so.1",)),
        ("ctypes.util.find_library('cuda')", ("libcuda.so*",)),
        ("os.path.join(os.environ['HOME'], 'libcuda.so')", ("*/libcuda.so",)),
        ("os.getenv('LIB', 'libcuda.so')", ("libcuda.so",)),
        ("[one for one in ('liba.so', 'libb.so')][0]", ("liba.so", "libb.so")),
        ("os.path.join(os.path.dirname(__file__), 'libx.so')", ("/pkg/libx.so",)),
        ("join(dirname(__file__), f'lib/{NAME}')", ("/pkg/lib/libcuda.so.1",)),
        ("basename('/opt/vendor/lib/libcuda.so')", ("libcuda.so",)),
        ("sys.argv[1]", ()),
        ("missing(3)", ()),
    ],
)
def test_names_are_read_off_constants_and_the_rest_is_computed(
    tmp_path: Path, expression: str, expected: tuple[str, ...]
) -> None:
    source = (
        "import ctypes, os, sys; from os.path import basename, dirname, join\n"
        "NAME = 'libcuda.so.1'\nSTEM = 'cuda'\nVERSION = 1\n"
        f"def load():\n    return ctypes.CDLL({expression})\n"
    )
    inventory = read(tmp_path, {"pkg/__init__.py": source})
    load = next(one for one in inventory.python_loads if one.call == "CDLL")
    assert (load.line, load.reach) == (6, "lazy")
    assert names(load) == expected
    assert load.owner == "pkg==1.0"


def test_each_variable_of_a_loop_over_tuples_stands_for_its_own_column(tmp_path: Path) -> None:
    source = (
        "import ctypes\nTABLE = [('cublas', 'libcublas.so.12'), ('cudnn', 'libcudnn.so.9')]\n"
        "for folder, name in TABLE:\n    ctypes.CDLL(f'/opt/{name}')\n"
    )
    load = only(read(tmp_path, {"pkg/__init__.py": source}))
    assert load.names == ("/opt/libcublas.so.12", "/opt/libcudnn.so.9")
    assert load.reach == "import"


@pytest.mark.parametrize("source", ["ctypes.CDLL(None)", "ctypes.windll.LoadLibrary('a.dll')"])
def test_the_process_itself_and_windows_are_no_loads(tmp_path: Path, source: str) -> None:
    inventory = read(tmp_path, {"pkg/__init__.py": f"import ctypes\n{source}\n"})
    assert inventory.python_loads == ()


def test_an_operator_that_a_library_must_have_registered_is_told(tmp_path: Path) -> None:
    source = "import torch\n@torch.library.register_fake('pkg::nms')\ndef fake(x):\n    return x\n"
    load = only(read(tmp_path, {"pkg/__init__.py": source}))
    assert (load.call, load.names, load.reach) == ("register_fake", ("pkg::nms",), "import")
    defining = "import torch\ntorch.library.define('pkg::nms', '(Tensor x) -> Tensor')\n" + source
    assert read(tmp_path, {"pkg/__init__.py": defining}).python_loads == ()


@pytest.mark.parametrize(
    "source",
    [
        b"\xff\xfe CDLL",
        b"CDLL(" + b"(" * 100_000,
        b"CDLL = " + b"-" * 200_000 + b"1\n",
        b"x\0CDLL",
    ],
    ids=["no-utf-8", "parentheses", "signs", "nul"],
)
def test_a_file_that_an_import_needs_and_that_does_not_parse_is_unread(
    tmp_path: Path, source: bytes
) -> None:
    inventory = read(tmp_path, {"pkg/__init__.py": source})
    (unread,) = inventory.unread
    assert unread.path == f"{SITE}/pkg/__init__.py"
    assert unread.why
    assert [(one.path, one.reach) for one in inventory.unparsed] == [(unread.path, "import")]


def test_imports_in_a_circle_and_long_elif_chains_come_to_an_end(tmp_path: Path) -> None:
    chain = "if a == 0:\n    pass\n" + "".join(
        f"elif a == {n}:\n    import ctypes\n" for n in range(3000)
    )
    inventory = read(
        tmp_path,
        {
            "pkg/__init__.py": "from . import a\n",
            "pkg/a.py": "from . import b\nfrom ._c import x\n",
            "pkg/b.py": "from . import a\nimport pkg\nctypes.CDLL('libx.so')\n",
            "pkg/c.py": chain + "ctypes.CDLL('liby.so')\n",
            "pkg/_c.abi3.so": ELF,
        },
    )
    assert reach(inventory) == {"pkg/_c.abi3.so": "import"}


def test_a_module_that_is_nested_too_deep_to_be_followed_is_unread(tmp_path: Path) -> None:
    chain = "if a == 0:\n    pass\n" + "".join(f"elif a == {n}:\n    x = {n}\n" for n in range(900))
    files: dict[str, str | bytes] = {
        "pkg/__init__.py": f"{chain}from ._c import x\n",
        "pkg/_c.abi3.so": ELF,
    }
    inventory = read(tmp_path, files)
    assert [(one.path, one.why) for one in inventory.unread] == [
        (f"{SITE}/pkg/__init__.py", "nested too deep to be followed")
    ]
    assert [one.reach for one in inventory.unparsed] == ["import"]


def test_too_much_source_is_told_and_nothing_is_called_lazy_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_program, "MOST_SOURCE", 200)
    inventory = read(
        tmp_path,
        {
            "pkg/__init__.py": "from .b import f\nf()\n" + "#" * 300,
            "pkg/b.py": "import ctypes\ndef f():\n    ctypes.CDLL('libx.so')\n",
        },
    )
    assert {one.path for one in inventory.unparsed} == {f"{SITE}/pkg==1.0"}
    assert "too much source" in inventory.unparsed[0].why
    assert inventory.unread == ()
    assert [load.reach for load in inventory.python_loads] == ["unknown"]


def test_a_file_that_loads_and_for_which_there_was_too_much_source_is_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_program, "MOST_SOURCE", 200)
    files: dict[str, str | bytes] = {
        "pkg/__init__.py": "from . import b\n",
        "pkg/b.py": "import ctypes\nctypes.CDLL('libx.so')\n" + "#" * 300,
    }
    assert [one.path for one in read(tmp_path, files).unread] == [f"{SITE}/pkg/b.py"]


def test_source_is_shared_out_to_those_with_little_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_program, "MOST_SOURCE_IN_ALL", 600)
    for name, source in (("a", "#" * 3000), ("z", "")):
        metadata = tmp_path / SITE / f"{name}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "RECORD").write_text(f"{name}.py,,\n")
        load = "import ctypes\nctypes.CDLL('libx.so')\n"
        (tmp_path / SITE / f"{name}.py").write_text(load + source)
    with DirectoryTree(tmp_path) as tree:
        inventory = collect(tree)
    assert [one.path for one in inventory.python_loads] == [f"{SITE}/z.py"]
    assert [one.path for one in inventory.unread] == [f"{SITE}/a.py"]


def test_entry_points_are_facts_of_a_distribution(tmp_path: Path) -> None:
    inventory = read(
        tmp_path,
        {"pkg/__init__.py": ""},
        entry_points=(
            "# a comment\n[torch.backends]\npkg = pkg:_autoload\n\n[jax_plugins]\nx=pkg.x\n"
        ),
    )
    (distribution,) = inventory.distributions
    assert distribution.entry_points == (
        EntryPoint("torch.backends", "pkg", "pkg:_autoload"),
        EntryPoint("jax_plugins", "x", "pkg.x"),
    )


def test_a_file_that_is_too_large_to_be_parsed_is_told(tmp_path: Path) -> None:
    source = "import ctypes\nctypes.CDLL('libx.so')\n" + "#" * (1 << 20)
    (unread,) = read(tmp_path, {"pkg/__init__.py": source}).unread
    assert "too large" in unread.why
