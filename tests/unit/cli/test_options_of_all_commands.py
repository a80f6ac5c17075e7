"""What all commands have in common: global options on both sides, and no option without effect."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
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
