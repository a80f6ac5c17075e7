"""Locks of targets that are no more."""

from __future__ import annotations

from pathlib import Path

from buildmatrix.locks.status import leftovers
from buildmatrix.matrix.load import load_spec
from buildmatrix.matrix.model import LOCK_HEADER as HEADER

SPEC = """\
[project]
name = "inferno"
version = "1.4.0"
[defaults]
python = "3.12"
requirements = ["base.in"]
[backend.cpu]
runtime = "any"
base = "python:3.12-slim"
"""
LOCK = HEADER + 'lock-version = "1.0"\n\n[tool.buildmatrix]\nschema = 1\n'


def project(root: Path, *locks: str):
    (root / "buildmatrix.toml").write_text(SPEC)
    (root / "base.in").write_text("")
    (root / "locks").mkdir()
    for name in locks:
        (root / "locks" / f"pylock.{name}.toml").write_text(LOCK)
    return load_spec(root / "buildmatrix.toml")


def test_a_lock_of_a_target_that_is_no_more_is_named(tmp_path: Path) -> None:
    spec = project(tmp_path, "cpu-py312-default", "old")
    assert leftovers(spec) == (
        "locks/pylock.old.toml belongs to no target of buildmatrix.toml; delete it unless "
        "another specification uses it",
    )


def test_files_of_others_in_the_folder_of_locks_are_left_alone(tmp_path: Path) -> None:
    spec = project(tmp_path)
    (tmp_path / "locks/pylock.toml").write_text('lock-version = "1.0"\ntarget = "cpu-py310-x"\n')
    (tmp_path / "locks/pylock.gone.toml").symlink_to("/nonexistent")
    assert leftovers(spec) == ()


def test_where_nothing_was_locked_yet_nothing_is_left_over(tmp_path: Path) -> None:
    spec = project(tmp_path)
    (tmp_path / "locks").rmdir()
    assert leftovers(spec) == ()
