"""What all commands have in common: global options on both sides, and no option without effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import click
import pytest
from click.testing import CliRunner

from buildmatrix.cli import group, main
from buildmatrix.cli.options import GLOBAL_OPTIONS, CommandSettings, option, take
from buildmatrix.commands.options import CommandOptions, ImageOptions, SelectionOptions
from buildmatrix.commands.options import option as option_field

Path_ = tuple[str, ...]


def commands(command: click.Command = group, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    if path:
        yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            inner = command.get_command(click.Context(command), name)
            assert inner is not None
            yield from commands(inner, (*path, name))


ALL = {" ".join(path): command for path, command in commands()}


def required(command: click.Command) -> list[str]:
    """Arguments without which the command line is refused; nothing is done with them."""
    given: list[str] = []
    for parameter in command.params:
        if parameter.required and isinstance(parameter, click.Argument):
            choices = getattr(parameter.type, "choices", ("x",))
            given += [str(choices[0])] * max(parameter.nargs, 1)
        elif parameter.required:
            given += [parameter.opts[-1], "x"]
    return [*given, "x"] if isinstance(command, click.Group) else given


def test_global_options_stand_after_every_command(subtests: pytest.Subtests) -> None:
    plain = CommandSettings(Path("buildmatrix.toml"), False, False, False)
    for (name, command), (given, wanted) in product(ALL.items(), (
        (["-f", "other.toml", "-q"], CommandSettings(Path("other.toml"), True, False, False)),
        (["--file=other.toml", "-v", "--no-progress"],
         CommandSettings(Path("other.toml"), False, True, True)),
    )):  # fmt: skip
        with (
            subtests.test(f"{name} {given[0]}"),
            command.make_context(name, [*given, *required(command)], obj=plain) as context,
        ):
            assert context.obj == wanted


def test_global_options_stand_before_every_command() -> None:
    declared = {flag for flags, _ in GLOBAL_OPTIONS for flag in flags}
    assert declared <= {flag for parameter in group.params for flag in parameter.opts}
    # What stands before is not given a second meaning by a command.
    counts = {
        (name, flag): sum(flag in parameter.opts for parameter in command.params)
        for name, command in ALL.items()
        for flag in declared
    }
    assert {place: count for place, count in counts.items() if count != 1} == {}


def test_loudness_on_both_sides_is_checked_together() -> None:
    loud = CommandSettings(Path("buildmatrix.toml"), False, True, False)
    with pytest.raises(click.UsageError, match="mutually exclusive"):
        ALL["rules"].make_context("rules", ["-q"], obj=loud)


def test_no_option_is_hidden_and_each_says_what_it_does() -> None:
    silent = [
        (name, parameter.opts)
        for name, command in ALL.items()
        for parameter in command.params
        if isinstance(parameter, click.Option) and (parameter.hidden or not parameter.help)
    ]
    assert silent == []


@dataclass(frozen=True, kw_only=True)
class Fields(SelectionOptions, ImageOptions):
    size: float = option_field(1.0, "Size.", least=0, most=60, show_default=True)
    color: Literal["red", "blue"] = option_field("red", "Color.")
    check: bool = option_field(True, "Do not check.", "--no-check")
    layers: bool | None = option_field(None, "Layers.", "--layers/--no-layers")
    files: Sequence[Path] = option_field((), "File.", "--file-name")


@click.command()
@take(
    Fields,
    size=option("--before", default="", help="Before."),
    last=option("--offline", is_flag=True),
)
def fields_command(options: Fields, /, before: str) -> None:
    shown = {name: getattr(options, name) for name in ("select", *Fields.__annotations__)}
    click.echo(repr((shown, before, options.workspace.offline)))


USUAL = {"select": (), "size": 1.0, "color": "red", "check": True, "layers": None, "files": ()}


@pytest.mark.parametrize(
    ("line", "variables", "changed"),
    [
        ("", {}, {}),
        ("--size 2 --color blue --no-check", {}, {"size": 2.0, "color": "blue", "check": False}),
        ("--no-layers --select a --select b", {}, {"layers": False, "select": ("a", "b")}),
        ("--file-name a", {}, {"files": (Path("a"),)}),
        ("", {"NO_CHECK": "1", "SIZE": "3", "FILE_NAME": "a"},
         {"check": False, "size": 3.0, "files": (Path("a"),)}),
    ],
)  # fmt: skip
def test_a_field_is_an_option_with_its_variable(
    line: str, variables: dict[str, str], changed: dict[str, object]
) -> None:
    environment = {f"BUILDMATRIX_{name}": value for name, value in variables.items()}
    result = CliRunner().invoke(fields_command, [*line.split(), "--offline"], env=environment)
    assert result.output.strip() == repr((USUAL | changed, "", True))


@pytest.mark.parametrize("line", ["--size 61", "--color green", "--check"])
def test_a_value_that_a_field_does_not_take_is_refused(line: str) -> None:
    assert CliRunner().invoke(fields_command, line.split()).exit_code == 2


def test_options_stand_in_the_order_of_bases_fields_and_what_is_placed() -> None:
    order = [parameter.name for parameter in fields_command.params]
    own = ["before", "size", "color", "check", "layers", "files"]
    assert order == ["select", "subset", *own, "platform", "offline"]
    shown = CliRunner().invoke(fields_command, ["--help"]).output
    assert "default: 1.0; 0<=x<=60" in " ".join(shown.split())


def test_a_field_without_metadata_of_an_option_is_none() -> None:
    assert "workspace" not in {parameter.name for parameter in fields_command.params}
    assert CommandOptions().workspace.specification == Path("buildmatrix.toml")


@pytest.mark.parametrize("command", ["scan", "audit"])
def test_workers_of_a_fleet_get_the_store_of_the_command_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fleet.txt").write_text("registry.example.com/app:1\n")
    with pytest.raises(SystemExit) as stop:
        main(["fleet", command, f"{tmp_path}/fleet.txt", "--store", "s3://name:secret@bucket"])
    assert stop.value.code == 2
    assert "has credentials in its address" in capsys.readouterr().err
