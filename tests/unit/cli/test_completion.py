"""What shells complete, in a real bash and by the protocol of the others; and never an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from buildmatrix import cli

SPEC = """
[project]
name = "demo"
version = "1.0"
[defaults]
requirements = ["requirements.txt"]
[backend.cpu]
runtime = "any"
python = ["3.11", "3.12"]
base = "debian:12"
[backend.cuda]
runtime = ["12.8"]
python = ["3.11"]
base = "nvidia/cuda:12.8.1-runtime-ubuntu24.04"
[node-class.rack]
backend = "cuda"
driver = "570.86"
archs = ["sm_90"]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "buildmatrix.toml").write_text(SPEC)
    (tmp_path / "requirements.txt").write_text("numpy\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def complete(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    shell: str = "bash",
) -> list[str]:
    """What is offered for the last word of `line`; a space at its end begins a new one."""
    words = line.split(" ")
    monkeypatch.setenv("_BUILDMATRIX_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    current = words[-1] if shell == "fish" else str(len(words) - 1)
    monkeypatch.setenv("COMP_CWORD", current)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    out, errors = capfd.readouterr()
    assert (stop.value.code, errors) == (0, "")
    return [line for line in out.splitlines() if line]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("buildmatrix bui", ["plain,build"]),
        ("buildmatrix build --select cp", ["plain,cpu-py311-default", "plain,cpu-py312-default"]),
        ("buildmatrix build --select !cu", ["plain,!cuda12.8-py311-default"]),
        ("buildmatrix scan x --select cuda", ["plain,cuda12.8-py311-default"]),
        ("buildmatrix smoke cuda", ["plain,cuda12.8-py311-default"]),
        ("buildmatrix why cuda", ["plain,cuda12.8-py311-default"]),
        ("buildmatrix why x ro", ["plain,rocm"]),
        ("buildmatrix explore x --backend onea", ["plain,oneapi"]),
        ("buildmatrix rules BM60", [f"plain,BM60{digit}" for digit in range(1, 10)]),
        ("buildmatrix cache-key --node-class r", ["plain,rack"]),
        ("buildmatrix audit --format sa", ["plain,sarif"]),
        ("buildmatrix inspect x --format do", ["plain,dot"]),
        ("buildmatrix completion f", ["plain,fish"]),
        # The shell itself knows paths.
        ("buildmatrix scan ", ["file,"]),
        ("buildmatrix -f bui", ["file,bui"]),
        ("buildmatrix audit --format json=", ["file,"]),
        ("buildmatrix node-classes check no", ["file,no"]),
        # Where nothing fits, nothing is said.
        ("buildmatrix nothing at all ", []),
        ("buildmatrix build --select zzz", []),
    ],
)
def test_words_are_offered(
    project: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    offered: list[str],
) -> None:
    got = complete(capfd, monkeypatch, line)
    if line.endswith("BM60"):
        assert set(got) >= {"plain,BM601", "plain,BM604"} and all("BM60" in word for word in got)
    else:
        assert got == offered


def test_the_file_of_the_command_line_counts(
    project: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "other.toml").write_text(SPEC.replace('["3.11", "3.12"]', '["3.13"]'))
    before = complete(capfd, monkeypatch, "buildmatrix -f other.toml build --select cpu")
    behind = complete(capfd, monkeypatch, "buildmatrix build -f other.toml --select cpu")
    assert before == behind == ["plain,cpu-py313-default"]


@pytest.mark.parametrize("text", ["", "schema = [", "[backend.cpu]\npython = 3", "\x00"])
def test_a_broken_file_is_no_error_in_a_shell(
    project: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (project / "buildmatrix.toml").write_text(text)
    assert complete(capfd, monkeypatch, "buildmatrix build --select c") == []
    assert complete(capfd, monkeypatch, "buildmatrix cache-key --node-class r") == []


def test_hostile_names_are_not_offered(
    project: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = '[node-class."a\\u001b[2J"]\n[node-class."a b"]\n[node-class."a,b"]\n[node-class.ab]\n'
    (project / "buildmatrix.toml").write_text(evil)
    assert complete(capfd, monkeypatch, "buildmatrix cache-key --node-class a") == ["plain,ab"]


def test_other_shells_get_descriptions(
    project: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    zsh = complete(capfd, monkeypatch, "buildmatrix rules BM401", "zsh")
    assert zsh == ["plain", "BM401", "foreign-device-code"]
    fish = complete(capfd, monkeypatch, "buildmatrix build --select cpu-py311", "fish")
    assert "cpu-py311-default" in "\n".join(fish) and "cpu" in "\n".join(fish)
    prefixed = complete(capfd, monkeypatch, "buildmatrix scan dir:requ", "zsh")
    assert "dir:requirements.txt" in prefixed


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["completion", shell])
    out = capsys.readouterr().out
    assert stop.value.code == 0
    assert f"_BUILDMATRIX_COMPLETE={shell}_complete" in out


def test_a_real_bash_completes(project: Path) -> None:
    folder = project / "bin"
    folder.mkdir()
    program = folder / "buildmatrix"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m buildmatrix "$@"\n')
    program.chmod(0o755)
    script = """
eval "$(buildmatrix completion bash)"
complete -p buildmatrix
COMP_WORDS=(buildmatrix build --select cu); COMP_CWORD=3
_buildmatrix_completion buildmatrix
printf '%s\\n' "${COMPREPLY[@]}"
"""
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        cwd=project, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stderr == ""
    registered, *offered = done.stdout.split("\n")
    assert registered.startswith("complete ") and registered.endswith(" buildmatrix")
    assert offered == ["cuda12.8-py311-default", ""]


#: What a press of Tab does not wait for: data of reports and findings, engines, license lists.
HEAVY = {
    "buildmatrix.judge.model",
    "buildmatrix.facts.inventory.model",
    "buildmatrix.engines.model",
    "buildmatrix.locks.model",
    "packaging.licenses",
    "importlib.resources",
    "rich",
    "jinja2",
}


@pytest.mark.parametrize("command", ["build --select cuda", "generate --select cuda", "smoke cuda"])
def test_targets_are_completed_without_what_only_work_needs(project: Path, command: str) -> None:
    line = f"buildmatrix {command}"
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from buildmatrix.cli import main\n"
        "main()"
    )
    variables = {
        "_BUILDMATRIX_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **variables}, cwd=project,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "plain,cuda12.8-py311-default\n"
    assert HEAVY & set(done.stderr.split()) == set()
