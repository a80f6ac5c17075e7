"""What a distribution's Python code imports from others, laid out like real packages."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from random import Random
from struct import pack

import pytest
from test_python_loading import ELF

from buildmatrix import cli
from buildmatrix.facts.binaries.devicefile import read_portable_links
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.model import PythonImport
from buildmatrix.facts.inventory.python_outside import MOST_MISSING
from buildmatrix.facts.trees.archive import BytesSource, DirectoryTree

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
    found = imports(tmp_path / "a", {"pkg": NUMBA_CUDA}, "cuda-bindings<14,>=12.9")
    assert all(one.provider is None for one in found)
    assert manners(found) == {("missing", "cuda.bindings"), ("called", "cuda.bindings.runtime")}
    found = imports(tmp_path / "b", {"pkg": NUMBA_CUDA}, "packaging")
    assert manners(found) == {("missing", "cuda.bindings")}


CHECKED = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import absent\n"


@pytest.mark.parametrize(
    "files",
    [
        {"pkg/__init__.py": "try:\n    import absent\nexcept ImportError:\n    pass\n"},
        {"pkg/__init__.py": CHECKED},
        {"pkg/__init__.py": "def later():\n    import absent\n"},
        {"pkg/__init__.py": '"""Use it:\n\nimport absent\n"""\n'},
        {"pkg/__init__.py": "TEXT = '''\\\nimport absent\n'''\n"},
        # Modules that an import of the distribution does not run.
        {"pkg/__init__.py": "", "pkg/gpu.py": "import absent\n"},
        {"pkg/__init__.py": "", "_pkg_plugin.py": "import absent\n"},
        {"pkg/x.py": "x = 1\n", "other/__init__.py": "import absent\n"},
        {"one/__init__.py": "", "one/cli/__init__.py": "import absent\n"},
        {"pkg/__init__.py": "", "pkg/data/one/__init__.py": "import absent\n"},
        {"pkg.py": "", "tests/__init__.py": "import absent\n", "conftest.py": "import absent\n"},
        {"one.py": "import absent\n", "two.py": "import absent\n"},
        # The standard library of some version, and what lies in the distribution.
        {"pkg/__init__.py": "import distutils\nimport annotationlib\nimport __main__\n"},
        {"pkg/__init__.py": "import absent\n", "pkg/_vendor/absent.py": "x = 1\n"},
        {"pkg/__init__.py": "import absent\n", "pkg/libs/absent.cpython-311-x86_64.so": ELF},
    ],
)
def test_a_module_that_may_be_there_or_is_not_imported_is_not_missing(
    tmp_path: Path, files: Mapping[str, str | bytes]
) -> None:
    assert [one for one in imports(tmp_path, {"pkg": files}) if one.how == "missing"] == []


def test_a_module_that_nothing_has_is_missing_and_told_once(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": "import os\nfrom .a import x\n",
        "pkg/a.py": "'''It's.'''\nfrom absent.deep import y\nimport absent\nimport numpy\n",
    }
    (one,) = imports(tmp_path / "a", {"pkg": files}, "numpy>=1")
    assert one == PythonImport("pkg/a.py", 2, "absent.deep", "missing", "pkg==1.0")
    found = imports(tmp_path / "b", {"pkg": files}, "numpy; extra == 'fast'")
    assert manners(found) == {("missing", "absent.deep"), ("missing", "numpy")}
    # A namespace that others have a part of.
    found = imports(tmp_path / "c", {"pkg": files, "x": {"absent/other/y.py": ""}}, "numpy")
    assert manners(found) == set()
    dotted = {"space/pkg/__init__.py": "import absent\n"}
    assert manners(imports(tmp_path / "d", {"space-pkg": dotted})) == {("missing", "absent")}


def test_a_module_beside_the_distributions_is_not_missing(tmp_path: Path) -> None:
    site = "opt/venv/lib/python3.11/site-packages"
    for place in (f"{site}/absent.py", "opt/vendor/lib/absent.so", "usr/lib/x/absent/__init__.py"):
        root = tmp_path / place.replace("/", "-")
        (root / place).parent.mkdir(parents=True)
        (root / place).write_bytes(ELF if place.endswith(".so") else b"")
        imports(root / site, {"pkg": {"pkg/__init__.py": "import absent\nimport gone\n"}})
        with DirectoryTree(root) as tree:
            found = list(collect(tree).python_imports)
        assert manners(found) == {("missing", "gone")}, place


def test_a_module_in_a_folder_that_a_pth_file_names_is_found(tmp_path: Path) -> None:
    site = tmp_path / "lib/python3.11/site-packages"
    (tmp_path / "bin").mkdir(parents=True)
    (tmp_path / "bin/python3.11").write_bytes(ELF)
    files = {"pkg/__init__.py": "import cutlass.base\nimport gone\n"}
    behind = {"behind/packages/cutlass/base.py": "import os\n"}
    for pth, missing in (("behind/packages\n", {"gone"}), ("behind\n", {"cutlass.base", "gone"})):
        imports(site, {"pkg": files, "dsl": {**behind, "dsl.pth": pth}})
        with DirectoryTree(tmp_path) as tree:
            statements = collect(tree).python_imports
        assert {one.module for one in statements if one.how == "missing"} == missing
        providers = {(one.module, one.provider) for one in statements if one.how == "imported"}
        assert providers == ({("cutlass.base", "dsl==1.0")} if missing == {"gone"} else set())


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


@pytest.mark.parametrize("name", ["_c.cp311-win_amd64.pyd", "_c.cpython-311-darwin.so"])
def test_an_own_module_that_is_for_another_system_is_missing(tmp_path: Path, name: str) -> None:
    code = portable(["nvcuda.dll", "torch_cuda.dll"]) if name.endswith("pyd") else MACHO
    files: dict[str, str | bytes] = {
        "pkg/__init__.py": "from ._c import run\n",
        f"pkg/{name}": code,
    }
    (one,) = imports(tmp_path / "a", {"pkg": files})
    assert one == PythonImport("pkg/__init__.py", 1, "pkg._c", "missing", "pkg==1.0", "pkg==1.0")
    with DirectoryTree(tmp_path / "a") as tree:
        (artefact,) = collect(tree).artefacts
    links = ("nvcuda.dll", "torch_cuda.dll") if name.endswith("pyd") else ()
    assert (artefact.kind, artefact.links) == ("pe" if links else "macho", links)
    # Beside code of this system, and where something else is there or the failure is caught.
    for number, more in enumerate(
        ({"pkg/_c.abi3.so": ELF}, {"pkg/_c.py": "run = 1\n"}, {"pkg/__init__.py": GUARDED})
    ):
        assert imports(tmp_path / str(number), {"pkg": {**files, **more}}) == []


@pytest.mark.parametrize("name", ["tide.dll", "tide.dylib"])
@pytest.mark.parametrize("is_guarded", [True, False])
def test_a_library_for_another_system_breaks_an_import_that_loads_it(
    tmp_path: Path, name: str, is_guarded: bool
) -> None:
    code = portable(["nvcuda.dll"]) if name.endswith("dll") else MACHO
    load = f"ctypes.CDLL(os.path.join(os.path.dirname(__file__), {name!r}))\n"
    if is_guarded:
        load = f"if sys.platform != 'linux':\n    {load}"
    wheel = tmp_path / "pkg-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pkg-1.0.dist-info/METADATA", "Name: pkg\nVersion: 1.0\n")
        archive.writestr("pkg-1.0.dist-info/RECORD", f"pkg/__init__.py,,\npkg/{name},,\n")
        archive.writestr("pkg/__init__.py", f"import ctypes, os, sys\n{load}")
        archive.writestr(f"pkg/{name}", code + Random(28).randbytes(300_000))
    lock = tmp_path / "requirements.txt"
    lock.write_text(f"pkg @ {wheel.as_uri()}\n")
    for source in (["scan", f"wheel:{wheel}"], ["audit", str(lock), "--python=3.11"]):
        report = tmp_path / "report.json"
        with pytest.raises(SystemExit) as stop:
            cli.main([*source, "--backend=cpu", f"--format=json={report}"])
        (verdict,) = json.loads(report.read_text())["distributions"]
        assert (verdict["verdict"], stop.value.code) == (("ok", 0) if is_guarded else ("broken", 1))
        assert verdict["vendors"] == (["nvidia"] if not is_guarded and name == "tide.dll" else [])
        assert (f"pkg/{name} is for" in verdict["reason"]) is not is_guarded


GUARDED = "try:\n    from ._c import run\nexcept ImportError:\n    run = None\n"
MACHO = b"\xcf\xfa\xed\xfe" + bytes(400)


def portable(links: list[str]) -> bytes:
    """A library of Windows that links others."""
    data = b"".join(name.encode() + b"\0" for name in links)
    table, at = b"", 0x2000 + 20 * (len(links) + 1)
    for name in links:
        table += pack("<5I", 0, 0, 0, at, 0)
        at += len(name) + 1
    section = table + bytes(20) + data
    optional = b"\x0b\x02" + bytes(110) + pack("<4I", 0, 0, 0x2000, len(table)) + bytes(112)
    header = b"PE\0\0" + pack("<2H3I2H", 0x8664, 1, 0, 0, 0, len(optional), 0x2022)
    place = pack("<8s6I2HI", b".rdata", len(section), 0x2000, len(section), 1024, 0, 0, 0, 0, 0)
    head = (b"MZ" + bytes(58) + pack("<I", 64) + header + optional + place).ljust(1024, b"\0")
    return head + section


def test_damaged_libraries_of_windows_link_nothing() -> None:
    whole = portable(["nvcuda.dll"])
    assert read_portable_links(BytesSource(whole)) == ("nvcuda.dll",)
    seed = Random(21)
    for length in range(0, len(whole), 7):
        read_portable_links(BytesSource(whole[:length]))
        broken = bytearray(whole)
        for _ in range(20):
            broken[seed.randrange(len(broken))] = seed.randrange(256)
        assert len(read_portable_links(BytesSource(bytes(broken)))) <= 500


def test_not_all_of_many_missing_modules_are_looked_for(tmp_path: Path) -> None:
    text = "".join(f"import absent{number}\n" for number in range(4000))
    found = imports(tmp_path, {"pkg": {"pkg/__init__.py": text}})
    assert [one.line for one in found] == list(range(1, MOST_MISSING + 1))
