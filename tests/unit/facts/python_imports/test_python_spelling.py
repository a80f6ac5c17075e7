"""The many ways in which honest code writes a load, and code that only looks like one."""

from __future__ import annotations

from pathlib import Path

import pytest

from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.trees.archive import DirectoryTree

LIBRARY = "libcudart.so.12"


def read(root: Path, init: str, **files: str) -> Inventory:
    """The inventory of a site-packages with `pkg`, whose modules are `init` and `files`."""
    modules = {"__init__": init, **files}
    metadata = root / "pkg-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\n")
    (metadata / "RECORD").write_text("".join(f"pkg/{name}.py,,\n" for name in modules))
    (root / "pkg").mkdir()
    for name, source in modules.items():
        (root / f"pkg/{name}.py").write_text(source)
    with DirectoryTree(root) as tree:
        return collect(tree)


def at_import(inventory: Inventory) -> set[str]:
    """What an import loads, and fails without."""
    loads = (one for one in inventory.python_loads if one.reach == "import")
    return {name for one in loads for name in one.names}


@pytest.mark.parametrize(
    "source",
    [
        "from ctypes import CDLL as L\nL('libcudart.so.12')",
        "from ctypes import PyDLL as L\nL('libcudart.so.12')",
        "import ctypes\nload = ctypes.CDLL\nload('libcudart.so.12')",
        "import ctypes as c\nload = c.CDLL\nother = load\nother('libcudart.so.12')",
        "import ctypes\ndef f():\n    load = ctypes.CDLL\n    return load('libcudart.so.12')\nf()",
        "import ctypes\ndef f(load=ctypes.CDLL):\n    return load('libcudart.so.12')\nf()",
        "import ctypes\na, load = 1, ctypes.CDLL\nload('libcudart.so.12')",
        "from ctypes import cdll\ncdll['libcudart.so.12']",
        "from ctypes import cdll\nlib = cdll['libcudart.so.12'].cudaGetDevice",
        "import ctypes\nctypes.cdll['libcudart.so.12']",
        "from ctypes import *\ncdll['libcudart.so.12']",
        "from ctypes import cdll as libraries\nlibraries['libcudart.so.12']",
        "from ctypes import cdll as libraries\nlibraries.LoadLibrary('libcudart.so.12')",
        "import ctypes\nlibraries = ctypes.cdll\nlibraries['libcudart.so.12']",
        "import ctypes\nname = 'libcudart.so.12'\ngetattr(ctypes.cdll, name)",
        "import ctypes\nctypes.pydll['libcudart.so.12']",
        "import ctypes\nctypes.LibraryLoader(ctypes.CDLL)['libcudart.so.12']",
        "import ctypes\nctypes.cdll.LoadLibrary(name='libcudart.so.12')",
        "import ctypes\nload = ctypes.cdll.LoadLibrary\nload('libcudart.so.12')",
        "import ctypes\nctypes.CDLL(mode=ctypes.RTLD_GLOBAL, name='libcudart.so.12')",
        "import ctypes\nctypes.CDLL(use_errno=True, mode=1, name='libcudart.so.12')",
        "import ctypes\ngetattr(ctypes, 'CDLL')('libcudart.so.12')",
        "import ctypes\nfrom functools import partial\n"
        "load = partial(ctypes.CDLL, mode=1)\nload('libcudart.so.12')",
        "import ctypes, functools\n"
        "load = functools.partial(ctypes.CDLL, 'libcudart.so.12')\nload()",
        "import ctypes\nlist(map(ctypes.CDLL, ['libcudart.so.12']))",
        "import ctypes, os\nload = ctypes.WinDLL if os.name == 'nt' else ctypes.CDLL\n"
        "load('libcudart.so.12')",
        "import ctypes, x\nload = x.load or ctypes.CDLL\nload('libcudart.so.12')",
        "import ctypes\nclass Lib(ctypes.CDLL):\n    pass\nLib('libcudart.so.12')",
        "import ctypes\nclass Lib(ctypes.CDLL):\n    def __init__(self):\n"
        "        super().__init__('libcudart.so.12')\nLib()",
        "import ctypes\n(load := ctypes.CDLL)('libcudart.so.12')",
        "import ctypes\nfor load in (ctypes.CDLL, ctypes.PyDLL):\n    load('libcudart.so.12')",
        "import ctypes\nclass A:\n    def __init__(self):\n        self.load = ctypes.CDLL\n"
        "        self.load('libcudart.so.12')\nA()",
        "import cffi\ncffi.FFI().dlopen('libcudart.so.12')",
        "from cffi import FFI\nffi = FFI()\nffi.dlopen(flags=2, name='libcudart.so.12')",
        "from _ctypes import dlopen as d\nd('libcudart.so.12', 2)",
        "import ctypes\nctypes._dlopen('libcudart.so.12')",
        "import ctypes, os\nif os.environ.get('SKIP') != '1':\n    ctypes.CDLL('libcudart.so.12')",
        "import ctypes, os\nif 'SKIP' not in os.environ:\n    ctypes.CDLL('libcudart.so.12')",
        "import ctypes, os\nif os.getenv('LOAD', '1') == '1':\n    ctypes.CDLL('libcudart.so.12')",
        "import ctypes, os\nif not os.environ.get('SKIP'):\n    ctypes.CDLL('libcudart.so.12')",
        "import ctypes, os\nctypes.CDLL(os.environ.get('CUDART') or 'libcudart.so.12')",
    ],
)
def test_a_load_is_one_however_it_is_written(tmp_path: Path, source: str) -> None:
    assert LIBRARY in at_import(read(tmp_path, source + "\n"))


@pytest.mark.parametrize(
    "source",
    [
        "class A:\n    def f(self):\n        self.cdll.cudaGetDevice()\nA().f()",
        "import ctypes\nctypes.windll.kernel32",
        "import ctypes\nload = ctypes.WinDLL\nload('libcudart.so.12')",
        "import ctypes\nload = ctypes.windll.LoadLibrary\nload('libcudart.so.12')",
        "import ctypes\ncdll = {}\ncdll['libcudart.so.12']",
        "from .inner import cdll\ncdll['libcudart.so.12']",
        "import ctypes\ndef load(name):\n    pass\ndef f():\n    load = ctypes.CDLL\n"
        "load('libcudart.so.12')",
        "import ctypes\nlibs = ctypes.cdll\nlibs.extra = 1",
        "import ctypes\nL = ctypes.CDLL(None)\nL('libcudart.so.12')",
    ],
)
def test_what_only_looks_like_a_load_is_none(tmp_path: Path, source: str) -> None:
    inventory = read(tmp_path, source + "\n", inner="cdll = {}\n")
    assert at_import(inventory) == set()


def test_a_name_for_a_load_is_followed_into_other_modules(tmp_path: Path) -> None:
    inventory = read(
        tmp_path,
        "from .use import lib\n",
        use="from ._compat import load\nlib = load('libcudart.so.12')\n",
        _compat="import ctypes\nload = ctypes.CDLL\n",
    )
    assert at_import(inventory) == {LIBRARY}


@pytest.mark.parametrize(
    "source",
    [
        "import importlib\nimportlib.import_module(name='pkg.inner')",
        "import importlib\nimportlib.import_module(package='pkg', name='.inner')",
        "from importlib import import_module as im\nim('pkg.inner')",
        "import importlib\nload = importlib.import_module\nload('.inner', __package__)",
        "import importlib\nload = importlib.import_module\nload(f'{__name__}.inner')",
        "__import__('pkg.inner')",
        "__import__(name='pkg.inner')",
        "imp = __import__\nimp('pkg.inner')",
    ],
)
def test_an_import_by_a_function_is_followed_however_it_is_written(
    tmp_path: Path, source: str
) -> None:
    inner = "import ctypes\nctypes.CDLL('libcudart.so.12')\n"
    assert at_import(read(tmp_path, source + "\n", inner=inner)) == {LIBRARY}


def test_the_result_of_a_search_is_what_is_loaded(tmp_path: Path) -> None:
    source = (
        "import ctypes\nfrom ctypes.util import find_library as find\n"
        "path = find('cudart')\nlib = ctypes.CDLL(path)\n"
    )
    assert at_import(read(tmp_path, source)) == {"libcudart.so*"}
