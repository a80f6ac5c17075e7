"""What a distribution's Python code imports from others, laid out like real packages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from test_python_loading import ELF

from buildmatrix.inventory.collect import collect
from buildmatrix.inventory.model import PythonImport
from buildmatrix.trees.directory import DirectoryTree

CUDART = "cuda/bindings/runtime.cpython-311-x86_64-linux-gnu.so"


def imports(
    root: Path, distributions: Mapping[str, Mapping[str, str | bytes]], requires: str = ""
) -> list[PythonImport]:
    """Imports in a site-packages; name → files. `requires` is a requirement of the first one."""
    for number, (name, files) in enumerate(distributions.items()):
        metadata = f"{name.replace('-', '_')}-1.0.dist-info"
        asked = f"Requires-Dist: {requires}\n" if requires and not number else ""
        everything = {
            **files,
            f"{metadata}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{asked}",
            f"{metadata}/RECORD": "".join(f"{path},,\n" for path in files),
        }
        for path, data in everything.items():
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data if isinstance(data, bytes) else data.encode())
    with DirectoryTree(root) as tree:
        return list(collect(tree).python_imports)


def manners(found: list[PythonImport]) -> set[tuple[str, str]]:
    return {(one.how, one.module) for one in found}


NUMBA_CUDA = {
    "pkg/__init__.py": "from .debuginfo import supported\n",
    "pkg/debuginfo.py": (
        "from cuda.bindings import runtime\n"
        "def _check():\n"
        "    _, version = runtime.getLocalRuntimeVersion()\n"
        "    return version > 13010\n"
        "supported = _check()\n"
    ),
}


def test_a_call_at_import_into_a_compiled_module_of_another_distribution(tmp_path: Path) -> None:
    found = imports(tmp_path, {"pkg": NUMBA_CUDA, "cuda-bindings": {CUDART: ELF}})
    assert (
        PythonImport(
            "pkg/debuginfo.py",
            3,
            "cuda.bindings.runtime",
            "called",
            "pkg==1.0",
            "cuda-bindings==1.0",
        )
        in found
    )
    assert ("imported", "cuda.bindings.runtime") in manners(found)


def test_a_wheel_alone_is_asked_for_calls_of_what_it_requires(tmp_path: Path) -> None:
    (one,) = imports(tmp_path / "a", {"pkg": NUMBA_CUDA}, "cuda-bindings<14,>=12.9")
    assert (one.how, one.module, one.provider) == ("called", "cuda.bindings.runtime", None)
    assert imports(tmp_path / "b", {"pkg": NUMBA_CUDA}, "packaging") == []


def test_calls_that_an_import_does_not_make_or_survives_are_none(tmp_path: Path) -> None:
    sources = {
        "inside a function": "def later():\n    runtime.cudaFree(0)\n",
        "caught": "try:\n    runtime.cudaFree(0)\nexcept Exception:\n    pass\n",
        "suppressed": "with suppress(Exception):\n    runtime.cudaFree(0)\n",
        "on a condition": "if DEBUG:\n    runtime.cudaFree(0)\n",
        "a class": "error = runtime.CudaError(0)\n",
        "of itself": "from . import other\nother.start()\n",
    }
    for number, (what, source) in enumerate(sources.items()):
        text = f"from cuda.bindings import runtime\n{source}"
        files = {"pkg/__init__.py": text, "pkg/other.py": "def start(): pass\n"}
        found = imports(tmp_path / str(number), {"pkg": files, "cuda-bindings": {CUDART: ELF}})
        assert [one.how for one in found] == ["imported"], what


def test_a_module_that_no_import_reaches_for_sure_is_not_looked_at(tmp_path: Path) -> None:
    files = {**NUMBA_CUDA, "pkg/__init__.py": "def gpu():\n    from . import debuginfo\n"}
    assert imports(tmp_path, {"pkg": files, "cuda-bindings": {CUDART: ELF}}) == []


def test_an_import_in_a_try_of_the_module_is_tried_and_told_once(tmp_path: Path) -> None:
    shim = (
        '"""Bindings."""\n'
        "try:\n"
        "    import amdsmi\n"
        "    from amdsmi import (\n"
        "        AmdSmiInitFlags,\n"
        "    )\n"
        "    # a comment\n"
        "\n"
        "except ImportError:\n"
        "    amdsmi = None\n"
    )
    (one,) = imports(tmp_path, {"pkg": {"pkg/__init__.py": "", "pkg/vendored/shim.py": shim}})
    assert (one.how, one.module, one.path, one.line) == (
        "tried",
        "amdsmi",
        "pkg/vendored/shim.py",
        3,
    )


def test_a_try_that_only_raises_with_better_words_is_no_attempt(tmp_path: Path) -> None:
    source = "try:\n    import amdsmi\nexcept ImportError:\n    raise ImportError('install it')\n"
    assert imports(tmp_path, {"pkg": {"pkg/__init__.py": source}}) == []


def test_tests_and_the_standard_library_are_left_out(tmp_path: Path) -> None:
    tried = "try:\n    import {}\nexcept ImportError:\n    pass\n"
    files = {
        "pkg/__init__.py": tried.format("tomllib"),
        "pkg/tests/test_gpu.py": tried.format("amdsmi"),
    }
    assert imports(tmp_path, {"pkg": files}) == []


def test_files_that_no_import_can_name_are_read_all_the_same(tmp_path: Path) -> None:
    # PyInstaller's hooks are called after the module that they are for; a package hides a module.
    tried = "try:\n    import {}\nexcept ImportError:\n    pass\n"
    sources = {
        "pkg/__init__.py": "",
        "pkg/hook-pkg.one.py": tried.format("cupy"),
        "pkg/hook-pkg.two.py": tried.format("cudf"),
        "pkg/part.py": tried.format("rmm"),
        "pkg/part/__init__.py": tried.format("cuml"),
    }
    found = imports(tmp_path, {"pkg": sources})
    assert {(one.path, one.module) for one in found} == {
        ("pkg/hook-pkg.one.py", "cupy"),
        ("pkg/hook-pkg.two.py", "cudf"),
        ("pkg/part.py", "rmm"),
        ("pkg/part/__init__.py", "cuml"),
    }
