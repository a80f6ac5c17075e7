"""What all commands have in common: global options on both sides, and no option without effect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from buildmatrix.cli import group
from buildmatrix.cli.options import GLOBAL_OPTIONS, CommandSettings

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


@pytest.mark.parametrize("name", ALL)
def test_global_options_stand_after_every_command(name: str) -> None:
    command = ALL[name]
    plain = CommandSettings(Path("buildmatrix.toml"), False, False, False)
    for given, wanted in (
        (["-f", "other.toml", "-q"], CommandSettings(Path("other.toml"), True, False, False)),
        (["--file=other.toml", "-v", "--no-progress"],
         CommandSettings(Path("other.toml"), False, True, True)),
    ):  # fmt: skip
        with command.make_context(name, [*given, *required(command)], obj=plain) as context:
            assert context.obj == wanted


@pytest.mark.parametrize("name", ALL)
def test_global_options_stand_before_every_command(name: str) -> None:
    declared = {flag for flags, _ in GLOBAL_OPTIONS for flag in flags}
    assert declared <= {flag for parameter in group.params for flag in parameter.opts}
    # What stands before is not given a second meaning by a command.
    for flag in declared:
        assert sum(flag in parameter.opts for parameter in ALL[name].params) == 1


def test_loudness_on_both_sides_is_checked_together() -> None:
    loud = CommandSettings(Path("buildmatrix.toml"), False, True, False)
    with pytest.raises(click.UsageError, match="mutually exclusive"):
        ALL["rules"].make_context("rules", ["-q"], obj=loud)


@pytest.mark.parametrize("name", ALL)
def test_no_option_is_hidden_and_each_says_what_it_does(name: str) -> None:
    for parameter in ALL[name].params:
        if isinstance(parameter, click.Option):
            assert not parameter.hidden, parameter.opts
            assert parameter.help, parameter.opts
