"""Every flag has an environment variable, and one environment serves all commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from buildmatrix.cli import COMMANDS, group, load_command
from buildmatrix.cli.options import ALL_FORMATS

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


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "buildmatrix.toml").write_text(SPEC)
    (tmp_path / "base.in").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, **variables: str) -> tuple[int, str]:
    result = CliRunner().invoke(group, arguments, env=variables, standalone_mode=True)
    return result.exit_code, result.output


def commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """A command, and those below it."""
    yield name, command
    if isinstance(command, click.Group):
        for inner, below in command.commands.items():
            yield from commands(f"{name} {inner}", below)


def options() -> list[tuple[str, click.Option]]:
    return [
        (title, parameter)
        for name in COMMANDS
        for title, command in commands(name, load_command(name))
        for parameter in command.params
        # What stands before the command has its variables there.
        if isinstance(parameter, click.Option) and parameter.expose_value
    ]


def test_every_flag_has_its_variable() -> None:
    for name, option in options():
        assert option.envvar is not None, f"{name} {option.opts}"


def test_all_formats_are_those_of_the_commands_together() -> None:
    known = {frozenset(option.formats) for _, option in options() if "--format" in option.opts}
    assert frozenset().union(*known) == ALL_FORMATS


def test_a_format_that_another_command_has_does_not_break_this_one(project: Path) -> None:
    code, output = run("targets", BUILDMATRIX_FORMAT="sarif")
    assert code == 0
    assert output.startswith("TARGET")


def test_of_several_formats_a_command_takes_those_that_it_has(project: Path) -> None:
    code, output = run("targets", BUILDMATRIX_FORMAT="json=report.json sarif github")
    assert code == 0
    assert output.startswith('{"include"')


def test_a_format_that_no_command_has_is_refused_wherever_it_is_said(project: Path) -> None:
    code, output = run("targets", BUILDMATRIX_FORMAT="jsn")
    assert code == 2
    assert "'jsn' is not one of" in output


def test_a_flag_wins_over_its_variable(project: Path) -> None:
    assert run("targets", "--format", "table", BUILDMATRIX_FORMAT="github")[1].startswith("TARGET")


def test_the_file_for_reports_is_not_taken_for_the_folder_of_generated_files(project: Path) -> None:
    (project / "locks").mkdir()
    (project / "locks" / "pylock.cpu-py312-default.toml").write_text(
        'lock-version = "1.0"\ncreated-by = "uv"\nrequires-python = ">=3.12"\npackages = []\n'
    )
    code, output = run("generate", BUILDMATRIX_OUTPUT="report.json")
    assert code == 0, output
    assert not (project / "report.json").exists()
    assert run("generate", BUILDMATRIX_FOLDER="elsewhere")[0] == 0
    assert (project / "elsewhere" / "docker-bake.json").is_file()
