"""What a SOURCE is taken for, by what it says and by its looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from buildmatrix.base.errors import UsageError
from buildmatrix.engines.model import Engine
from buildmatrix.matrix.load import load_spec
from buildmatrix.matrix.model import Spec
from buildmatrix.sources.images import NamedImage
from buildmatrix.sources.local import (
    DeclaredWheel,
    Directory,
    SavedReport,
    WheelFile,
    WheelOnServer,
)
from buildmatrix.sources.model import Argument, Command, Declared, ReadingOptions, Source
from buildmatrix.sources.parse import parse as parse_argument
from buildmatrix.sources.target import BuiltTarget
from buildmatrix.sources.wheels_on_index import own_target

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
LOCK = 'lock-version = "1.0"\npackages = []\n'


def parse(text: str, command: Command = "scan") -> Source:
    return parse_argument(Argument(text, command))


def no_engine() -> Engine:
    raise AssertionError("no engine is needed")


def is_declared(text: str) -> bool:
    return isinstance(parse(text, "why"), Declared)


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
    assert parse(text) == parse(f"dir:{text}") == parse(f"env:{text}") == Directory("venv")


def test_an_interpreter_of_no_environment_is_told_from_other_files(here: Path) -> None:
    (here / "python3").write_bytes(b"\x7fELF")
    with pytest.raises(UsageError, match="is not in a virtual environment"):
        parse("./python3")


@pytest.mark.parametrize(
    ("kind", "command"),
    [("lock", "audit"), ("requirements", "audit"), ("pyproject", "audit"), ("report", "report")],
)
def test_what_is_no_tree_says_which_command_reads_it(kind: str, command: str) -> None:
    with pytest.raises(UsageError, match=f"or run `buildmatrix {command}`"):
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
        *("acme:1", "wheel:acme.whl", "dir:uv.lock", "dir:base.txt", "docker:base.in"),
        *("cpu-py312", "target:cpu-py312", f"python@sha256:{'0' * 64}"),
    ],
)
def test_what_lies_there_is_not(text: str) -> None:
    assert not is_declared(text)


@pytest.mark.parametrize("name", ["uv.lock", "base.txt", "pyproject.toml", "numpy==2", "a.whl"])
def test_a_folder_is_a_folder_whatever_its_name_says(here: Path, name: str) -> None:
    (here / name).mkdir()
    assert parse(name, "why") == Directory(name)


def test_a_report_is_known_by_its_kind_and_by_its_name(here: Path) -> None:
    assert parse("report:r", "diff") == SavedReport("r")
    assert parse("r.json", "diff") == NamedImage("r.json")
    (here / "r.json").touch()
    assert parse("r.json", "diff") == SavedReport("r.json")
    with pytest.raises(UsageError, match="names nothing"):
        parse("report:", "diff")


def test_a_wheel_is_read_by_scan_and_resolved_by_audit(here: Path) -> None:
    (here / "a-1-py3-none-any.whl").touch()
    url = "https://example.com/a-1-py3-none-any.whl"
    kinds: dict[Command, tuple[type[Source], type[Source]]] = {
        "scan": (WheelFile, WheelOnServer),
        "audit": (DeclaredWheel, DeclaredWheel),
        "why": (WheelFile, DeclaredWheel),
        "diff": (WheelFile, DeclaredWheel),
    }
    for command, expected in kinds.items():
        for prefix in ("", "wheel:"):
            found = [parse(prefix + text, command) for text in ("a-1-py3-none-any.whl", url)]
            assert tuple(map(type, found)) == expected


def test_what_only_audit_or_only_scan_reads_is_refused_by_the_other() -> None:
    with pytest.raises(UsageError, match="run `buildmatrix scan docker:acme:1`"):
        parse("docker:acme:1", "audit")
    with pytest.raises(UsageError, match=r"pypi:.*, or run `buildmatrix report`"):
        parse("report:r.json", "audit")
    with pytest.raises(UsageError, match=r"or run `buildmatrix (scan|why)`"):
        parse("target:cpu-py312", "audit")


@pytest.mark.parametrize("text", ["uv.lock:-dev,docs", "pyproject.toml[b,a]:test", "base.in"])
def test_a_source_can_be_written_again_for_another_folder(text: str) -> None:
    first = parse(text, "audit")
    assert isinstance(first, Declared)
    assert parse(first.at(first.name), "audit") == first


def test_an_identifier_is_never_a_path(here: Path) -> None:
    for id in ("../cpu", "..", "a/../cpu"):
        source = parse(f"target:{id}", "why")
        assert isinstance(source, BuiltTarget)
        assert source.cache_location(ReadingOptions(no_engine)) is None


def test_a_lock_of_the_specification_is_read_for_its_own_target(here: Path) -> None:
    (here / "base.in").write_text("acme\n")
    settings = 'lock = "locks/pylock.own.toml"\n[backend'
    (here / "buildmatrix.toml").write_text(SPEC.replace("[backend", settings, 1))
    spec: Spec | None = load_spec(here / "buildmatrix.toml")
    assert spec is not None
    (id,) = [target.id for target in spec.targets]
    copy, other = f"pylock.{id}.toml", "pylock.rocm7-py312.toml"
    for name in (spec.targets[0].lock, copy, other):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(LOCK)

    def own(text: str) -> str | None:
        source = parse(text, "why")
        assert isinstance(source, Declared)
        return own_target(source, spec)

    assert own("lock:locks/pylock.own.toml") == own("locks/pylock.own.toml") == own(copy) == id
    assert own(other) is None
    assert own("requirements:base.in") is None
    spec = None
    assert own(copy) is None
