"""The hooks, run by pre-commit from a clone of this checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from recipes import blocks

pytestmark = pytest.mark.network

#: What a clone has that is needed to install from it.
PARTS = (
    "src", "templates", "docs", "tools", "pyproject.toml", "README.md", "LICENSE",
    ".pre-commit-hooks.yaml",
)  # fmt: skip
SPEC = """\
schema = 1
[project]
name = "demo"
version = "1.0"
[defaults]
python = ["3.11"]
requirements = ["requirements.in"]
[backend.cpu]
runtime = "any"
base = "python:{python}-slim-bookworm"
"""


def git(folder: Path, *arguments: str) -> str:
    # Nothing of the user's own configuration counts.
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    command = ["git", *identity, *arguments]
    done = subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone")
    for name in PARTS:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "all of it")
    git(folder, "tag", "v0.1.0")
    return folder


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """pre-commit in a project that has what the page says."""
    home = tmp_path_factory.mktemp("pre-commit")
    project = tmp_path_factory.mktemp("project")
    configuration = yaml.safe_load(blocks("pre-commit.md")[0])
    (entry,) = configuration["repos"]
    assert entry["rev"] == "v0.1.0"
    entry["repo"] = str(clone)
    (project / ".pre-commit-config.yaml").write_text(yaml.safe_dump(configuration))
    (project / "buildmatrix.toml").write_text(SPEC)
    (project / "requirements.in").write_text("idna==3.10\n")
    for command in (["lock"], ["generate", "-o", "docker"]):
        subprocess.run(["buildmatrix", *command], cwd=project, check=True, capture_output=True)
    git(project, "init", "-q")
    git(project, "add", "-A")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        env = {
            **os.environ,
            "PRE_COMMIT_HOME": str(home),
            "PIP_NO_COMPILE": "1",
            "BUILDMATRIX_NO_VULNERABILITIES": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
        }
        git(project, "add", "-A")
        command = ["pre-commit", "run", "--color=never", *arguments]
        return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True)

    run.project = project  # type: ignore[attr-defined]
    return run


def states(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Passed, failed or skipped, by hook."""
    lines = [line for line in done.stdout.splitlines() if line.startswith("buildmatrix ")]
    return {line.partition("...")[0]: line.rpartition(".")[2].split(")")[-1] for line in lines}


def test_what_is_current_and_clean_passes_and_what_is_not_fails(run: Run) -> None:
    project: Path = run.project  # type: ignore[attr-defined]
    hooks = ("buildmatrix audit", "buildmatrix lock --check", "buildmatrix generate --check")
    done = run("--all-files")
    assert states(done) == dict.fromkeys(hooks, "Passed"), done.stdout + done.stderr

    # 90 kB unused on a CPU, and a lock that is older than it.
    (project / "requirements.in").write_text("nvidia-nvtx-cu12==12.8.90\n")
    done = run("--files", "requirements.in")
    assert done.returncode == 1
    found = states(done)
    assert (found[hooks[0]], found[hooks[1]]) == ("Failed", "Failed"), done.stdout
    assert "BM101" in done.stdout and "requirements.in" in done.stdout

    (project / "requirements.in").write_text("idna==3.10\n")
    dockerfile = next((project / "docker").rglob("*Dockerfile*"))
    dockerfile.write_text(dockerfile.read_text() + "RUN true\n")
    done = run("--files", "buildmatrix.toml")
    assert states(done) == dict(zip(hooks, ("Skipped", "Passed", "Failed"), strict=True))
    assert done.returncode == 1


def test_the_local_hook_runs_what_is_installed(run: Run) -> None:
    project: Path = run.project  # type: ignore[attr-defined]
    (project / ".pre-commit-config.yaml").write_text(blocks("pre-commit.md")[1])
    for requirements, state in (("idna==3.10\n", "Passed"), ("idna==3.11\n", "Failed")):
        (project / "requirements.in").write_text(requirements)
        done = run("--all-files")
        assert states(done) == {"buildmatrix lock --check": state}, done.stdout + done.stderr
