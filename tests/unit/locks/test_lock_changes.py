"""What `lock` says of the versions that it changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from package_index import PackageIndex

from buildmatrix.cli import main
from buildmatrix.locks.status import changes

SPEC = """\
[project]
name = "x"
version = "1"
[defaults]
python = "3.12"
requirements = ["requirements.in"]
[backend.cpu]
runtime = "any"
base = "python:{python}-slim"
"""


def test_a_change_of_all_targets_is_said_once_and_one_of_some_with_their_names() -> None:
    before = {
        "a": {"numpy": "2.1", "six": "1.0", "old": "1"},
        "b": {"numpy": "2.1", "six": "1.1"},
        "new": None,
    }
    after = {"a": {"numpy": "2.2", "six": "1.1"}, "b": {"numpy": "2.2", "six": "1.1", "x": "3"}}
    assert changes(before, {**after, "new": {"numpy": "2.2"}}) == (
        "  numpy 2.1 -> 2.2",
        "  old 1 is gone  (a)",
        "  six 1.0 -> 1.1  (a)",
        "  x 3 is new  (b)",
    )
    assert changes(before, {}) == ()


def test_an_upgrade_says_which_version_went_to_which(
    tmp_path: Path,
    index: PackageIndex,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "requirements.in").write_text("numpy\n")
    (tmp_path / "buildmatrix.toml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> list[str]:
        with pytest.raises(SystemExit) as stop:
            main(["lock", *arguments])
        assert not stop.value.code
        return capsys.readouterr().out.splitlines()

    assert len(run()) == 1  # The first lock has nothing to compare with.
    index.add("pypi", "numpy", "2.2")
    assert run("--upgrade")[1:] == ["  numpy 2.1 -> 2.2"]
    index.add("pypi", "numpy", "2.3")
    assert run("--upgrade=numpy", "-q") == []
