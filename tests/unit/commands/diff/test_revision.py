"""The inputs of an audit at a git revision."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from buildmatrix.base.errors import ComponentError, UsageError
from buildmatrix.commands.git_revision import extract_revision, make_relative


def git(folder: Path, *arguments: str) -> None:
    identity = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    names = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(
        ["git", *names, *arguments],
        cwd=folder,
        env=os.environ | identity,
        check=True,
        capture_output=True,
    )


def commit(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A", "-f")
    git(folder, "commit", "-q", "-m", "x")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(
        folder,
        {
            "service/requirements.in": "numpy\n",
            "common.in": "scipy\n",
            "model.bin": "weights",
            "Pipfile": "",
        },
    )
    commit(folder, {"service/requirements.in": "numpy\ntorch\n", "new.in": "x\n"})
    (folder / "service" / "requirements.in").write_text("uncommitted\n")
    return folder


def test_files_are_as_they_were_and_the_work_tree_stays_as_it_is(repository: Path) -> None:
    with extract_revision(repository, "HEAD~1") as old:
        assert (old.folder / "service/requirements.in").read_text() == "numpy\n"
        assert not (old.folder / "new.in").exists()
        assert not (old.folder / "model.bin").exists()
        assert (old.folder / "Pipfile").exists()
        assert len(old.commit) == 40
        assert old.left_out == ()
    assert not old.folder.exists()
    assert (repository / "service" / "requirements.in").read_text() == "uncommitted\n"


def test_a_folder_of_the_repository_still_sees_what_lies_beside_it(repository: Path) -> None:
    with extract_revision(repository / "service", "main") as now:
        assert (now.folder / "requirements.in").read_text() == "numpy\ntorch\n"
        assert (now.folder / "../common.in").read_text() == "scipy\n"


def test_links_are_followed_within_the_repository_and_never_out_of_it(
    repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (repository / "link.in").symlink_to("service/requirements.in")
    (repository / "out.txt").symlink_to(tmp_path / "secret.txt")
    (repository / "up.txt").symlink_to("../secret.txt")
    (repository / "loop.txt").symlink_to("loop.txt")
    commit(repository, {"service/requirements.in": "torch\n"})
    with extract_revision(repository, "HEAD") as now:
        assert (now.folder / "link.in").read_text() == "torch\n"
        for name in ("out.txt", "up.txt", "loop.txt"):
            assert not (now.folder / name).exists()


def test_no_filter_and_no_hook_of_the_repository_runs(repository: Path, tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    git(repository, "config", "filter.evil.smudge", f"touch {trap}")
    git(repository, "config", "core.fsmonitor", f"touch {trap}")
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {trap}\n")
    hook.chmod(0o755)
    # Written behind git's back, which would run the monitor for an `add`.
    git(repository, "-c", "core.fsmonitor=false", "config", "core.attributesFile", "/dev/null")
    (repository / ".git" / "info" / "attributes").write_text("*.in filter=evil\n")
    with extract_revision(repository, "HEAD~1") as old:
        assert (old.folder / "common.in").read_text() == "scipy\n"
    assert not trap.exists()


@pytest.mark.parametrize("ref", ["--help", "", "HEAD\n", "-x"])
def test_what_is_no_revision_never_reaches_git(repository: Path, ref: str) -> None:
    with pytest.raises(UsageError, match="is not a revision"), extract_revision(repository, ref):
        pass


def test_an_unknown_revision_says_what_to_do(repository: Path) -> None:
    with (
        pytest.raises(UsageError, match="git knows no revision 'origin/main' here; fetch it"),
        extract_revision(repository, "origin/main"),
    ):
        pass


def test_a_folder_without_a_repository_and_a_machine_without_git_are_told_apart(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    with (
        pytest.raises(UsageError, match="is not in a git repository, so there is no main"),
        extract_revision(tmp_path, "main"),
    ):
        pass
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(ComponentError, match="git was not found"),
        extract_revision(repository, "main"),
    ):
        pass


def test_absolute_sources_are_moved_with_their_folder(repository: Path) -> None:
    text = f"{repository}/service/requirements.in"
    (repository / "pyproject.toml").write_text("")
    assert make_relative([text, "pypi:numpy==2", "common.in"], repository) == (
        "requirements:service/requirements.in",
        "pypi:numpy==2",
        "common.in",
    )
    assert make_relative([f"{repository}/pyproject.toml[gpu]:dev"], repository) == (
        "pyproject:pyproject.toml[gpu]:dev",
    )
