"""Packages of conda, installed without a builder: as rattler does, and nothing outside."""

from __future__ import annotations

import asyncio
import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import rattler
from conda_channel import PLACEHOLDER, Content, locked, make_package, serve
from oci_world import SYSTEM, make_base, sha256
from wheel_cases import make_wheel

from buildmatrix import cli
from buildmatrix.base.errors import UndecidedError
from buildmatrix.engines.oci.conda import InstalledCondaPackage
from buildmatrix.facts.trees.base import Unreadable
from buildmatrix.locks.model import CondaPackage, LockedFile

#: A shared library for x86-64 without anything in it.
ELF = struct.pack(
    "<4s4B8x2HI3QI6H", b"\x7fELF", 2, 1, 1, 0, 3, 62, 1, 0, 0, 0, 0, 64, 56, 0, 64, 0, 0
)
NATIVE = {
    "bin/tool": Content(
        f"#!{PLACEHOLDER}/bin/sh\nexec {PLACEHOLDER}/lib\n".encode(), "", 0o755, "text"
    ),
    "lib/libdemo.so.1": Content(
        ELF + f"{PLACEHOLDER}/lib:{PLACEHOLDER}/share\0end\0".encode(), "", 0o755, "binary"
    ),
    "lib/libdemo.so": Content(link="libdemo.so.1"),
    "share/demo/data.txt": Content(b"plain\n"),
}
PURE = {
    "site-packages/demo/__init__.py": Content(b"def main(): pass\n"),
    "site-packages/demo-1.0.dist-info/METADATA": Content(b"Name: demo\nVersion: 1.0\n"),
    "python-scripts/demo-script": Content(b"#!/bin/sh\n", mode=0o755),
}


def locked_package(file: Path) -> CondaPackage:
    name, version, build = file.name.removesuffix(".conda").removesuffix(".tar.bz2").rsplit("-", 2)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return CondaPackage(
        name=f"conda:{name}",
        version=f"{version}+{build}",
        index=None,
        wheels=(),
        source_only=False,
        via=(),
        file=LockedFile(file.name, f"https://conda.example.com/linux-64/{file.name}", digest),
    )


def ours(file: Path) -> dict[str, tuple[str, bytes, bool]]:
    with InstalledCondaPackage(file, locked_package(file), "3.12") as package:
        return {
            item.entry.path.removeprefix("opt/venv/"): (
                item.entry.target,
                b"".join(item.content()),
                bool(item.entry.mode & 0o100) and item.entry.kind == "file",
            )
            for item in package.files
        }


async def install(files: Sequence[Path], prefix: Path, cache: Path) -> None:
    records = [await rattler.RepoDataRecord.from_package_archive(file) for file in files]
    await rattler.install(
        records,
        target_prefix=prefix,
        cache_dir=cache,
        alternative_target_prefix="/opt/venv",
        show_progress=False,
        execute_link_scripts=False,
    )


def theirs(tmp_path: Path, *files: Path) -> dict[str, tuple[str, bytes, bool]]:
    prefix = tmp_path / "prefix"
    asyncio.run(install(files, prefix, tmp_path / "cache"))
    found = {}
    for path in sorted(prefix.rglob("*")):
        name = path.relative_to(prefix).as_posix()
        if path.is_symlink():
            found[name] = (str(path.readlink()), b"", False)
        elif path.is_file() and "__pycache__" not in name:
            found[name] = ("", path.read_bytes(), bool(path.stat().st_mode & 0o100))
    return found


def installed(files: Mapping[str, tuple[str, bytes, bool]]) -> dict[str, tuple[str, bytes, bool]]:
    """Without records, and rattler's mark of a folder that backups may leave out."""
    return {
        name: file
        for name, file in files.items()
        if not name.startswith("conda-meta/") and name != "CACHEDIR.TAG"
    }


@pytest.mark.parametrize("ending", [".conda", ".tar.bz2"])
def test_a_package_with_a_prefix_is_installed_as_rattler_installs_it(
    tmp_path: Path, ending: str
) -> None:
    file = make_package(tmp_path / "channel", "demo-1.0-h0_0", NATIVE, ending=ending)
    found = ours(file)
    assert installed(found) == installed(theirs(tmp_path, file))
    assert found["bin/tool"] == ("", b"#!/opt/venv/bin/sh\nexec /opt/venv/lib\n", True)
    library = found["lib/libdemo.so.1"][1]
    assert library.startswith(ELF + b"/opt/venv/lib:/opt/venv/share\0\0")
    assert library.endswith(b"\0end\0")
    assert len(library) == len(NATIVE["lib/libdemo.so.1"].data)


def test_a_package_for_every_python_is_installed_as_rattler_installs_it(tmp_path: Path) -> None:
    python = make_package(tmp_path / "channel", "python-3.12.7-0", {"bin/python3.12": Content(ELF)})
    file = make_package(
        tmp_path / "channel",
        "demo-1.0-py_0",
        PURE,
        subdir="noarch",
        noarch="python",
        entry_points=["demo = demo:main"],
    )
    expected = installed(theirs(tmp_path, python, file))
    expected.pop("bin/python3.12")
    found = installed(ours(file))
    # The launchers have other lines and do the same.
    launchers = found.pop("bin/demo"), expected.pop("bin/demo")
    for _, text, is_executable in launchers:
        assert is_executable
        assert text.splitlines()[0] in (b"#!/opt/venv/bin/python", b"#!/opt/venv/bin/python3.12")
        assert b"from demo import main" in text
    assert found == expected
    assert "lib/python3.12/site-packages/demo/__init__.py" in found


def test_the_record_lists_files_as_they_are_installed(tmp_path: Path) -> None:
    file = make_package(tmp_path / "channel", "demo-1.0-h0_0", NATIVE, depends=["libfoo >=1"])
    found = ours(file)
    record = json.loads(found["conda-meta/demo-1.0-h0_0.json"][1])
    assert (record["name"], record["depends"]) == ("demo", ["libfoo >=1"])
    assert set(record["files"]) == set(installed(found))
    for row in record["paths_data"]["paths"]:
        if row["path_type"] == "hardlink":
            data = found[row["_path"]][1]
            expected = row.get("sha256_in_prefix") or row["sha256"]
            assert hashlib.sha256(data).hexdigest() == expected


@pytest.mark.parametrize(
    ("files", "changes", "why"),
    [
        ({"../x": Content()}, {}, "leads out of the environment"),
        ({"/etc/x": Content()}, {}, "leads out of the environment"),
        ({"a/./x": Content()}, {}, "leads out of the environment"),
        ({"lib": Content(link="/etc")}, {}, "leads out of the environment"),
        ({"lib": Content(link="x"), "lib/a": Content()}, {}, "lies in a file"),
        ({"a/.wh.x": Content()}, {}, "would delete files of others"),
        ({}, {"paths": [{"_path": "gone"}]}, "it lists 'gone', and does not hold it"),
        ({}, {"paths": [{"_path": "info/index.json"}]}, "and does not hold it"),
        ({"a": Content()}, {"paths": [{"_path": "a"}] * 2}, "twice"),
        (PURE, {"noarch": "python", "entry_points": ["../x = a:b"]}, "cannot be made of"),
        ({"bin/.demo-post-link.sh": Content()}, {}, "has to be run: build with `--engine docker`"),
        ({}, {"version": "2.0"}, "it holds demo 2.0+0, and the lock says conda:demo 1.0+0"),
        (
            {"a": Content(b"/p/x\0")},
            {"paths": [{"_path": "a", "prefix_placeholder": "/p", "file_mode": "binary"}]},
            "its prefix '/p' is too short",
        ),
    ],
)
def test_hostile_packages_are_refused_in_one_sentence(
    tmp_path: Path, files: Mapping[str, Content], changes: dict[str, object], why: str
) -> None:
    file = make_package(tmp_path, "demo-1.0-0", files, **changes)  # type: ignore[arg-type]
    with pytest.raises(UndecidedError) as caught:
        InstalledCondaPackage(file, locked_package(file), "3.12")
    assert why in caught.value.message


@pytest.mark.parametrize("data", [b"", b"PK\x05\x06" + bytes(18), b"BZh9", b"no archive at all"])
def test_what_is_no_package_is_refused(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "demo-1.0-0.conda"
    file.write_bytes(data)
    with pytest.raises((UndecidedError, Unreadable)):
        InstalledCondaPackage(file, locked_package(file), "3.12")


def test_a_bomb_is_not_inflated(tmp_path: Path) -> None:
    file = make_package(tmp_path, "demo-1.0-0", {"a": Content(bytes(320 << 20))})
    with pytest.raises(Unreadable, match="a bomb"):
        InstalledCondaPackage(file, locked_package(file), "3.12")


# From a channel to an image


MANIFEST = """\
[workspace]
channels = ["demo"]
platforms = ["linux-64"]

[dependencies]
python = "3.12.*"

[feature.cuda.dependencies]
pytorch = { version = "*", build = "cuda*" }

[environments]
cuda = ["cuda"]
"""
SPEC = """\
[project]
name = "inferno"
version = "1.0"
[defaults]
python = ["3.12"]
lock = "pixi.lock"
base = "python:3.11-slim-bookworm"
[backend.cuda]
runtime = "12.9"
environment = "cuda"
[backend.cpu]
runtime = "any"
[backend.rocm]
runtime = "7.2"
environment = "cuda"
"""


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        cli.main(["--no-progress", *arguments])
    assert isinstance(stop.value.code, int)
    return stop.value.code


def test_images_of_environments_of_a_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    channel, project = tmp_path / "channel", tmp_path / "project"
    project.mkdir()
    files = [
        make_package(channel, "python-3.12.7-0", {"bin/python3.12": Content(ELF, mode=0o755)}),
        make_package(channel, "pytorch-2.8.0-cuda129_0", NATIVE, depends=["cuda-cudart"]),
        make_package(channel, "cuda-cudart-12.9.79-0", {"lib/libcudart.so.12": Content(ELF)}),
    ]
    make_wheel(channel / "wheels", "small", {"small.py": b"y = 2\n"})
    (wheel,) = (channel / "wheels").glob("*.whl")
    plain = [item for item in SYSTEM if "python" not in item.entry.path]
    base = make_base(tmp_path / "base", plain)
    base.layout.publish(base.descriptor, [base.reference])
    monkeypatch.chdir(project)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (project / "pixi.toml").write_text(MANIFEST)
    (project / "buildmatrix.toml").write_text(SPEC)
    with serve(channel) as url:
        entries = [locked(url, file) for file in files]
        entries[1] += "  depends:\n  - cuda-cudart\n"
        version = wheel.name.split("-")[1]
        address = f"- pypi: {url}/wheels/{wheel.name}\n  name: small\n  version: '{version}'\n"
        entries.append(f"{address}  sha256: {sha256(wheel)}\n")
        lines = ["version: 6", "environments:"]
        for name, number in (("default", 1), ("cuda", 4)):
            lines += [f"  {name}:", "    packages:", "      linux-64:"]
            lines += [f"      {entry.splitlines()[0]}" for entry in entries[:number]]
        (project / "pixi.lock").write_text("\n".join([*lines, "packages:", *entries]))
        assert run("lock") == 0
        assert run("lock", "--check") == 0
        code = run(
            *("build", "--engine=oci", f"--mirror=oci:{base.layout.folder}", "--level=none"),
            *("--no-vulnerabilities", "--format=json", "--output=report.json", "--no-smoke"),
        )
    report = json.loads((project / "report.json").read_text())
    gates = {item["id"].partition("-")[0]: item["gates"] for item in report["targets"]}
    built = {"lock": "passed", "build": "passed", "scan": "passed", "smoke": "not-run"}
    assert (gates["cuda12.9"], gates["cpu"]) == (built, built)
    # The environment for CUDA, as another backend's: nothing is downloaded, and a line is blamed.
    assert (code, gates["rocm7.2"]["lock"], gates["rocm7.2"]["build"]) == (1, "failed", "not-run")
    errors = [item for item in report["findings"] if item["severity"] == "error"]
    assert {item["target"] for item in errors} == {"rocm7.2-py312-default"}
    assert {item["rule"]: item["chain"][0] for item in errors} == {
        "BM101": "pixi.toml:9",
        "BM102": "pixi.toml:9",
    }
    capsys.readouterr()
    assert run("why", "cuda12.9-py312-default", "libcudart.so.12") == 0
    answer = capsys.readouterr().out
    assert "cuda-cudart 12.9.79" in answer
    assert "opt/venv/lib/libcudart.so.12" in answer
    # Wheels are beside the packages of conda.
    assert run("why", "cuda12.9-py312-default", "small") == 0
    assert "small 1.0" in capsys.readouterr().out
