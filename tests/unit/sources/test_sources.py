"""What a SOURCE is taken for, by what it says and by its looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from buildmatrix.errors import UsageError
from buildmatrix.sources.kinds import is_declared, report_file
from buildmatrix.sources.locked import own_target
from buildmatrix.sources.source import Source, parse
from buildmatrix.spec.load import load_spec

SPEC = """\
[project]
name = "demo"
version = "1.0"
[defaults]
python = "3.12"
requirements = ["base.in"]
[backend.cpu]
runtime = "any"
base = "python:3.12-slim-bookworm"
"""
LOCK = 'lock-version = "1.0"\npackages = []\n[tool.buildmatrix]\ntarget = "%s"\n'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("text", ["venv", "venv/bin/python", "venv/bin/python3.12"])
def test_an_environment_is_known_by_its_folder_and_its_interpreter(here: Path, text: str) -> None:
    (here / "venv/bin").mkdir(parents=True)
    (here / "venv/pyvenv.cfg").write_text("home = /usr/bin\n")
    for name in ("python", "python3.12"):
        (here / "venv/bin" / name).symlink_to("/usr/bin/python3")
    assert parse(text) == parse(f"dir:{text}") == Source("dir", "venv")


def test_an_interpreter_of_no_environment_is_told_from_other_files(here: Path) -> None:
    (here / "python3").write_bytes(b"\x7fELF")
    with pytest.raises(UsageError, match="belongs to no virtual environment"):
        parse("./python3")


@pytest.mark.parametrize(
    ("kind", "command"),
    [("lock", "audit"), ("requirements", "audit"), ("pyproject", "audit"), ("report", "report")],
)
def test_what_is_no_tree_says_which_command_reads_it(kind: str, command: str) -> None:
    with pytest.raises(UsageError, match=f"see `buildmatrix {command}`"):
        parse(f"{kind}:x")


@pytest.mark.parametrize(
    "text",
    [
        *("lock:x", "requirements:x", "pyproject:x", "pypi:torch==2.9", "torch==2.9"),
        *("uv.lock", "pylock.cpu.toml", "base.in", "base.txt", "pyproject.toml"),
        *("https://example.com/acme-1.0-py3-none-any.whl", "wheel:https://example.com/a.whl"),
    ],
)
def test_what_declares_what_is_installed_is_read_on_the_index(here: Path, text: str) -> None:
    assert is_declared(text)


@pytest.mark.parametrize(
    "text",
    ["numpy>=2", "numpy[extra] != 2", "pyproject.toml[gpu,web]:dev", "uv.lock:-dev", "no.txt"],
)
def test_what_audit_takes_is_declared_for_every_command(here: Path, text: str) -> None:
    assert is_declared(text)


@pytest.mark.parametrize(
    "text",
    [
        *("acme:1", "./base", "wheel:acme.whl", "dir:uv.lock", "dir:base.txt", "docker:base.in"),
        *("cpu-py312", "target:cpu-py312", f"python@sha256:{'0' * 64}"),
    ],
)
def test_what_lies_there_is_not(text: str) -> None:
    assert not is_declared(text)


def test_a_report_is_known_by_its_kind_and_by_its_name(here: Path) -> None:
    assert report_file("report:r") == Path("r")
    assert report_file("r.json") is None
    (here / "r.json").touch()
    assert report_file("r.json") == Path("r.json")
    with pytest.raises(UsageError, match="names nothing"):
        report_file("report:")


def test_a_lock_of_the_specification_is_read_for_its_own_target(here: Path) -> None:
    (here / "base.in").write_text("acme\n")
    (here / "buildmatrix.toml").write_text(SPEC)
    spec = load_spec(here / "buildmatrix.toml")
    (id,) = [target.id for target in spec.targets]
    for name, target in (("pylock.own.toml", id), ("pylock.other.toml", "rocm7-py312")):
        (here / name).write_text(LOCK % target)
    assert own_target("lock:pylock.own.toml", spec) == own_target("pylock.own.toml", spec) == id
    assert own_target("pylock.other.toml", spec) is None
    assert own_target("requirements:base.in", spec) is None
    assert own_target("pylock.own.toml", None) is None
