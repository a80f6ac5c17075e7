"""The scanner as it travels into a builder: one file, a bare Python, nothing installed."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from uv import find_uv_bin

from buildmatrix.facts.inventory.archive import PACKAGES, build_scanner_archive
from buildmatrix.images import store

#: Files of a site-packages folder whose facts take all that is travelling.
INSTALLED = {
    "pkg/__init__.py": "from .calls import x\nfrom .loads import y\n",
    "pkg/calls.py": "import numpy\ndef f():\n    return 1\nx = [f()]\nnumpy.f(x)\n",
    "pkg/loads.py": "from ctypes import CDLL\ny = CDLL('libfirst.so.1')\n",
    "pkg-1.0.dist-info/METADATA": (
        "Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\nRequires-Dist: numpy\n"
    ),
    "pkg-1.0.dist-info/RECORD": "pkg/__init__.py,,\npkg/calls.py,,\npkg/loads.py,,\n",
}


@pytest.fixture(scope="module")
def scanner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scanner") / "scan.pyz"
    path.write_bytes(build_scanner_archive())
    return path


def scan(scanner: Path, *arguments: str | Path, python: str = sys.executable) -> tuple[int, str]:
    done = subprocess.run(
        [python, "-I", "-S", scanner, *arguments], capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stderr


def test_its_bytes_depend_on_the_sources_only() -> None:
    data = build_scanner_archive()
    assert data == build_scanner_archive()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
        assert names == sorted(names)
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}


def test_what_travels_is_what_the_import_check_names(pytestconfig: pytest.Config) -> None:
    project = tomllib.loads((pytestconfig.rootpath / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(one for one in contracts if "buildmatrix.facts" in one.get("layers", ()))
    travels = next(one for one in contracts if one["name"].startswith("The scan core travels"))
    packages = {f"buildmatrix.{name.replace('/', '.')}" for name in PACKAGES}
    assert set(travels["source_modules"]) == packages
    below = layers["layers"][layers["layers"].index("buildmatrix.facts") + 1 :]
    facts = pytestconfig.rootpath / "src/buildmatrix/facts"
    at_home = {f"buildmatrix.facts.{path.stem}" for path in facts.glob("[a-z]*")} - packages
    assert at_home
    assert {*below, *at_home} <= {*travels["forbidden_modules"]}


def test_it_runs_without_site_packages_and_its_output_is_an_inventory(
    scanner: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy(os.path.realpath("/proc/self/exe"), root / "python")
    code, messages = scan(scanner, root, tmp_path / "out.json")
    assert code == 0, messages
    inventory = store.read(tmp_path / "out.json")
    assert [binary.path for binary in inventory.binaries] == ["python"]
    assert "libc.so.6" in inventory.binaries[0].elf.needed


def interpreters() -> dict[tuple[int, int], str]:
    """Version → path of every CPython of this machine; at least the one that runs the tests."""
    listing = subprocess.run(
        [find_uv_bin(), "python", "list", "--only-installed", "--output-format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    # Those that pyenv keeps, of which uv sees the chosen one.
    kept = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.*"))
    found = {
        **{(3, int(one.name.split(".")[1])): str(one / "bin/python") for one in kept},
    } | {
        (one["version_parts"]["major"], one["version_parts"]["minor"]): one["path"]
        for one in json.loads(listing.stdout)
        if one["implementation"] == "cpython"
    }
    return {**found, sys.version_info[:2]: sys.executable}


def test_every_python_of_this_machine_runs_it_or_is_told_which_one_it_takes(
    scanner: Path, tmp_path: Path
) -> None:
    site = tmp_path / "root/site-packages"
    for name, text in INSTALLED.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    for version, python in interpreters().items():
        output = tmp_path / f"{python.replace('/', '-')}.json"
        code, messages = scan(scanner, tmp_path / "root", output, python=python)
        if version >= (3, 10):
            assert code == 0, (python, messages)
            facts = json.loads(output.read_text())
            assert "unread" not in facts, python
            assert [one["names"] for one in facts["python_loads"]] == [["libfirst.so.1"]], python
            assert [(one["module"], one["how"]) for one in facts["python_imports"]] == [
                ("numpy", "called")
            ], python
        else:
            assert code == 5, (python, messages)
            assert f"needs Python 3.10 or later; this is {version[0]}.{version[1]}" in messages


def test_unread_entries_are_no_failure_of_the_scanner(scanner: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.so").write_bytes(b"\x7fELF\x02\x01\x01")
    code, _ = scan(scanner, tmp_path, tmp_path / "out.json")
    assert code == 0
    assert len(json.loads((tmp_path / "out.json").read_text())["unread"]) == 1


def test_a_root_that_cannot_be_read_is_told(scanner: Path, tmp_path: Path) -> None:
    code, messages = scan(scanner, tmp_path / "missing", tmp_path / "out.json")
    assert code == 3
    assert "missing cannot be read: no such file or directory" in messages
    assert not (tmp_path / "out.json").exists()


def test_an_output_that_cannot_be_written_is_told(scanner: Path, tmp_path: Path) -> None:
    code, messages = scan(scanner, tmp_path, tmp_path / "missing/out.json")
    assert code == 3
    assert "cannot be written" in messages


def test_wrong_usage_is_told(scanner: Path) -> None:
    assert scan(scanner) == (2, "usage: scan.pyz ROOT OUTPUT.json\n")
