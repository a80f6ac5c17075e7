"""What several commands share: settings, options with their environment variables, the loader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from buildmatrix.spec.model import Spec, Target

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Settings:
    """The options that stand before the command."""

    file: Path
    quiet: bool
    verbose: bool
    no_progress: bool


def option(*declarations: str, **attributes: Any) -> Callable[[Command], Command]:
    """A click option whose environment variable is `BUILDMATRIX_<FLAG>`."""
    flag = next(name for name in declarations if name.startswith("--"))
    flag = flag.split("/")[0].removeprefix("--")
    variable = "BUILDMATRIX_" + flag.upper().replace("-", "_")
    return click.option(*declarations, envvar=variable, show_envvar=True, **attributes)


def stacked(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several decorators as one, the first outermost."""

    def apply(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return apply


selection_options = stacked(
    option("--select", "globs", multiple=True, metavar="GLOB", help="Targets by identifier."),
    option("--subset", metavar="NAME", help="A subset that the specification names."),
)


def load(settings: Settings) -> Spec:
    """The specification, checked against the backends that the catalogue knows."""
    from buildmatrix.catalogue.load import load as load_catalogue
    from buildmatrix.spec.load import load_spec

    return load_spec(settings.file, backends=load_catalogue().backends)


def load_targets(
    settings: Settings, globs: Sequence[str], subset: str | None
) -> tuple[Spec, tuple[Target, ...]]:
    """The specification, and the targets that were selected."""
    from buildmatrix.spec.select import select

    spec = load(settings)
    return spec, select(spec, globs, subset)


def write(text: str, output: Path | None) -> None:
    """Machine output: to a file, or to standard output for None and `-`."""
    if output is None or str(output) == "-":
        click.echo(text, nl=not text.endswith("\n"))
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")
