"""`doctor`: one line per thing that was checked, and the exit code of the contract."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from buildmatrix.cli import group


@pytest.fixture(autouse=True)
def no_docker_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))


def doctor(*arguments: str) -> tuple[int, list[str]]:
    result = CliRunner().invoke(group, ["doctor", *arguments], standalone_mode=False)
    assert result.exception is None, result.exception
    return result.return_value, result.output.splitlines()


def test_a_machine_without_docker_builds_without_and_the_rest_is_checked() -> None:
    code, lines = doctor("--offline")
    assert code == 0
    assert lines[0].startswith("none     engine: there is no docker command; install Docker")
    assert lines[1].startswith("ok       engine: oci, part of buildmatrix; ")
    assert [line.split(":")[0].split()[1] for line in lines[2:7]] == [
        "resolver", "catalogue", "specification", "disk", "index",
    ]  # fmt: skip
    assert any(line.split()[1].startswith("devices") for line in lines)


def test_without_docker_a_builder_of_it_is_missing() -> None:
    code, lines = doctor("--offline", "--builder", "remote")
    assert code == 5
    assert lines[0].startswith("missing  engine: there is no docker command; install Docker")


def test_a_wrong_specification_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "buildmatrix.toml").write_text("[project]\nnme = 1\n")
    code, lines = doctor("--offline")
    assert code == 2
    assert any("buildmatrix.toml:2:1: unknown key `nme`" in line for line in lines)


def test_a_specification_that_is_no_toml_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "buildmatrix.toml").write_text("x = \n")
    code, lines = doctor("--offline")
    assert code == 2
    (line,) = [line for line in lines if "this is not TOML" in line]
    assert line.startswith("wrong    specification:")


def test_an_index_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://user:secret@127.0.0.1:9/simple")
    _, lines = doctor()
    (line,) = [line for line in lines if "index:" in line and "127.0.0.1" in line]
    assert line.startswith("unknown  index: http://127.0.0.1:9/simple")
    assert "secret" not in "".join(lines)


def test_a_folder_of_wheels_is_an_index_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "simple").mkdir()
    monkeypatch.setenv("UV_DEFAULT_INDEX", (tmp_path / "simple").as_uri())
    _, lines = doctor()
    assert any(line.startswith("ok       index: file:") for line in lines)
