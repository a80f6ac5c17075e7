"""Committed generated files that a run had to correct (BM903)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.commands.build import find_outdated
from buildmatrix.matrix.model import Spec, bare_spec


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spec:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    root = tmp_path / "repository" / "below"
    (root / "ci docker").mkdir(parents=True)
    (root / "ci docker" / "kept").write_text("1")
    (root / "ci docker" / "gone").write_text("1")
    return replace(bare_spec(), path=root / "buildmatrix.toml", output="ci docker")


@pytest.fixture
def committed(spec: Spec) -> Spec:
    """The same, where git has the files."""
    git(spec.root.parent, "init", "-q")
    git(spec.root, "add", ".")
    return spec


def test_a_corrected_file_and_a_removed_one_are_named_relative_to_the_specification(
    committed: Spec,
) -> None:
    folder = committed.root / "ci docker"
    (folder / "kept").write_text("2")
    (folder / "gone").unlink()
    (folder / "new").write_text("1")
    expected = ("ci docker/gone", "ci docker/kept")
    assert find_outdated(committed, ["ci docker/kept", "ci docker/new"]) == expected


def test_a_file_that_this_run_did_not_write_is_not_compared(committed: Spec) -> None:
    (committed.root / "ci docker/kept").write_text("2")
    assert find_outdated(committed, []) == ()


def test_a_staged_correction_is_enough(committed: Spec) -> None:
    (committed.root / "ci docker/kept").write_text("2")
    git(committed.root, "add", ".")
    assert find_outdated(committed, ["ci docker/kept"]) == ()


def test_nothing_is_committed_without_a_repository_or_without_git(
    spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_outdated(spec, ["ci docker/kept"]) == ()
    monkeypatch.setenv("PATH", "")
    assert find_outdated(spec, ["ci docker/kept"]) == ()


def test_a_git_that_fails_is_not_taken_for_an_answer(committed: Spec) -> None:
    (committed.root.parent / ".git/index").write_bytes(b"damaged")
    with pytest.raises(UndecidedError, match="index"):
        find_outdated(committed, ["ci docker/kept"])
