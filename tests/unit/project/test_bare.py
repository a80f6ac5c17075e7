"""scripts/bare: says which step of a new user's day broke."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
from scripts.stack.process import processes_naming

SCRIPT = Path(__file__).parents[3] / "scripts/bare"


@pytest.fixture(scope="module")
def bare() -> ModuleType:
    loader = SourceFileLoader("bare", str(SCRIPT))
    module = module_from_spec(spec_from_loader("bare", loader))
    sys.modules["bare"] = module  # Data classes look for their module.
    loader.exec_module(module)
    return module


def test_it_runs_the_first_script_of_the_readme(bare: ModuleType) -> None:
    lines = bare.first_command().splitlines()
    assert lines[0].startswith("git clone https://")
    assert lines[-1].split()[0] == "scripts/demo"


def test_the_step_that_failed_is_named(bare: ModuleType) -> None:
    outcome = bare.watch(["sh", "-c", "echo == installing; echo no such package >&2; exit 3"], "m")
    assert outcome.code == 3
    assert outcome.problem(None).endswith("in: no such package")


def test_the_line_before_a_silence_is_named(bare: ModuleType) -> None:
    outcome = bare.Outcome(0, 40.0, 11.0, "== reading lists", "done")
    assert outcome.problem(60.0) == "no line for 11 s after: == reading lists"
    assert outcome.problem(None) is None  # Somebody else was working here.
    outcome = bare.Outcome(0, 90.0, 61.0, "== reading lists", "done")
    assert outcome.problem(None) == "no line for 61 s after: == reading lists"


def test_its_time_is_bounded_on_request_only(bare: ModuleType) -> None:
    outcome = bare.Outcome(0, 61.0, 3.0, "", "done")
    assert outcome.problem(None) is None
    assert outcome.problem(60.0) == "61 s, more than 60 s"


def test_settings_of_clients_go_in_and_nothing_else(
    bare: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in bare.os.environ:
        monkeypatch.delenv(name)
    (tmp_path / "ca.crt").touch()
    monkeypatch.setenv("PIP_INDEX_URL", "https://pypi.example/simple")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("VIRTUAL_ENV", "/somewhere")
    assert set(bare.environment("/root")[2:]) == {
        "HOME=/root",
        "HTTPS_PROXY=http://proxy.example",
        "LANG=C.UTF-8",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PIP_INDEX_URL=https://pypi.example/simple",
        "SSL_CERT_FILE=/etc/ssl/settings/SSL_CERT_FILE",
    }


@pytest.mark.parametrize("enter", [[], ["unshare", "--user", "--map-root-user", "--pid", "--fork"]])
def test_a_stack_leaves_the_daemons_of_a_machine_alone(enter: list[str], tmp_path: Path) -> None:
    program = shutil.copy(shutil.which("sh") or "/bin/sh", tmp_path / "dockerd")
    line = [*enter, program, "-c", "echo; read end", f"{tmp_path}/dockerd.json"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.readline()
        found = [daemon.pid for daemon in processes_naming(tmp_path, ["dockerd"])]
        run.communicate(b"\n")
    assert found == ([] if enter else [run.pid])


@pytest.mark.parametrize("answers", [True, False])
def test_the_demo_says_that_it_goes_on_without_a_registry(tmp_path: Path, answers: bool) -> None:
    programs, scripts = tmp_path / "bin", tmp_path / "scripts"
    for folder in (programs, scripts):
        folder.mkdir()
    shutil.copy(SCRIPT.with_name("demo"), scripts)
    (scripts / "setup.sh").touch()
    stand_ins = {
        "docker": "exit 1",
        "python3": f"[[ $2 != scripts.public_registry ]] || exit {0 if answers else 1}",
        "buildmatrix": 'echo "$@"',
    }
    for name, text in stand_ins.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n")
        (programs / name).chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(
        [scripts / "demo"], env=environment, capture_output=True, text=True, check=True
    )
    assert ("on a base made of Debian's packages" in done.stderr) is not answers
    assert ("--select cpu*" in done.stdout) is not answers
