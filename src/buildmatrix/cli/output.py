"""`--format` and `--output`: a report as text, to one place or several."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from buildmatrix.base.data import replace
from buildmatrix.base.errors import ComponentError, UsageError
from buildmatrix.cli.console import write, write_data
from buildmatrix.cli.options import (
    Decorator,
    format_option,
    formats_option,
    output_option,
    stack_options,
)
from buildmatrix.reports.formats import (
    FLEET,
    RUN,
    Destination,
    Format,
    find_format,
    names,
    time_of_writing,
)

if TYPE_CHECKING:
    from buildmatrix.commands.workspace import CommandResult

FORMATS = names(RUN)
REPORT_FILE = "File for the report; - is stdout."


def check_formats(
    formats: Sequence[str], output: Path | None, choices: Sequence[str] = FORMATS
) -> tuple[tuple[str, Path | None], ...]:
    """Format and file of each `--format`; what is wrong is said before the work starts.

    Where each has a file of its own, the command's first format goes where output goes otherwise:
    a file for a machine takes nothing from the person who reads along.
    """
    pairs = []
    for text in formats or ("table",):
        name, equals, path = text.partition("=")
        if name not in choices or (equals and not path):
            raise UsageError(
                f"--format {text}: write one of {', '.join(choices)}, with =PATH for a file"
            )
        pairs.append((name, Path(path) if path else None))
    for format_ in FLEET:
        if format_.name in dict(pairs) and format_.lacks:
            raise ComponentError(format_.lacks)
    if sum(path is None for _, path in pairs) > 1:
        raise UsageError("several formats for one output; give all but one a file: --format F=PATH")
    if all(path is not None for _, path in pairs):
        if choices[0] not in dict(pairs):
            pairs.append((choices[0], None))
        elif output is not None:
            raise UsageError(
                f"-o {output} would not be written: every --format has a file of its own; drop one"
            )
    return tuple(pairs)


def write_document(
    formats: Sequence[Format],
    document: object,
    places: Sequence[tuple[str, Path | None]],
    output: Path | None,
    *,
    every: bool = False,
    root: Path | None = None,
    exit_code: int | None = None,
) -> None:
    """Render and write a document in each of its `formats` that was asked for.

    `root`: the folder that the paths in it start from. `exit_code`: that of the command.
    """
    time = time_of_writing()
    for name, path in places:
        place, format_ = path or output, find_format(formats, name)
        to = replace(_destination(place, every, root), exit_code=exit_code, time=time)
        if format_.syntax.binary:
            write_data(format_.data(document, to), place)
            continue
        write(format_.render(document, to), place, format_.syntax)


@dataclass(frozen=True, slots=True)
class Output:
    """Formats of a command's document, and the file of each; `file` for those without one."""

    pairs: Sequence[tuple[str, Path | None]]
    file: Path | None

    def write(self, result: CommandResult[object], *, every: bool = False) -> int:
        """Write a result, and return its exit code."""
        write_document(
            result.formats,
            result.document,
            self.pairs,
            self.file,
            every=every,
            root=result.root,
            exit_code=result.exit_code,
        )
        return result.exit_code


def writes(formats: Sequence[Format], file: str = "File; - is stdout.") -> Decorator:
    """Add `--format` and `--output`; the command's parameter `to` is the `Output` of both."""
    choices = names(formats)

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(
            *arguments: Any, formats: tuple[str, ...], output: Path | None, **others: Any
        ) -> Any:
            to = Output(check_formats(formats, output, choices), output)
            return command(*arguments, to=to, **others)

        return stack_options(formats_option(choices), output_option(file))(run)

    return decorate


def writes_one(choices: Sequence[str], text: str, *between: Decorator) -> Decorator:
    """The same for a command that writes one of the formats `choices`; `text` is the help."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(*arguments: Any, format_: str, output: Path | None, **others: Any) -> Any:
            return command(*arguments, to=Output([(format_, None)], output), **others)

        shown = format_option("format_", choices, text)
        return stack_options(shown, *between, output_option())(run)

    return decorate


#: `--format` and `--output` of commands with a report.
report_output = writes(RUN, REPORT_FILE)


def _destination(place: Path | None, every: bool, root: Path | None) -> Destination:
    """Return the style of a text by its place: no colors in a file; FORCE_COLOR is for pipes."""
    to = Destination(every=every).below(root)
    if place is not None and str(place) != "-":
        return to
    tty = sys.stdout.isatty()
    color = (tty or bool(os.environ.get("FORCE_COLOR"))) and not os.environ.get("NO_COLOR")
    # COLUMNS, else the terminal's width, else that of a file.
    width = shutil.get_terminal_size((to.width, 24)).columns
    return replace(to, width=width, color=color)
