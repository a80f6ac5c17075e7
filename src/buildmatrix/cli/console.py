"""Output of the program: standard output, standard error and files.

All output passes through here, so that no foreign control sequence reaches a terminal or a CI log,
and no secret leaks (`buildmatrix.base.text`).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Protocol, TextIO

import click

from buildmatrix.base.errors import UndecidedError, UsageError
from buildmatrix.base.text import LINES, Syntax, safe

#: Held while something is printed: no line of progress comes into a report.
LOCK = threading.RLock()


class _Preparation(Protocol):
    def __call__(self, *, is_error: bool) -> None: ...


def _nothing(*, is_error: bool) -> None:
    """Nothing is on the screen."""


#: Called before text is printed on standard error, or else output.
before_printing: _Preparation = _nothing


def ignore(_text: str) -> None:
    """Record nothing."""


#: Called with text for standard error; `cli.logs` sets it if there is a log file.
record: Callable[[str], None] = ignore

#: A command in a sentence, which stays on one line to be copied.
_COMMAND = re.compile(r"`[^`\n]*`")


def _fold(text: str, stream: TextIO) -> str:
    """Break lines between words where a terminal would break within one."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    lines = []
    for line in text.split("\n"):
        if len(line) <= width:
            lines.append(line)
            continue
        indent = line[: len(line) - len(line.lstrip())]
        whole = _COMMAND.sub(lambda match: match[0].replace(" ", "\0"), line)
        parts = textwrap.wrap(
            whole,
            width,
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines += [part.replace("\0", " ") for part in parts]
    return "\n".join(lines)


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines, with their columns under each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def say(text: str, syntax: Syntax = LINES) -> None:
    """Print on standard output.

    Raises `UndecidedError` when it takes nothing more.
    """
    with _printing():
        # Colors were decided when it was rendered; click would take them out of a pipe.
        text = safe(text, syntax)
        text = _fold(text, sys.stdout) if syntax is LINES else text
        click.echo(text, nl=not text.endswith("\n"), color=True)


@contextmanager
def _printing() -> Iterator[None]:
    """Print on standard output. Raises `UndecidedError` when it takes nothing more."""
    try:
        with LOCK:
            before_printing(is_error=False)
            yield
    except BrokenPipeError:
        raise
    except OSError as error:
        from buildmatrix.facts.trees.base import reason

        raise UndecidedError(f"standard output cannot be written: {reason(error)}") from error


def complain(text: str, *, is_recorded: bool = True) -> None:
    """Print on standard error. Lines after the first are indented: none begins with what follows.

    Where standard error is closed, the exit code alone says it.
    """
    if is_recorded:
        record(text)
    first, *rest = text.split("\n")
    lines = [first, *(line if line.startswith(" ") else f"  {line}" for line in rest)]
    with suppress(OSError), LOCK:
        before_printing(is_error=True)
        click.echo(_fold(safe("\n".join(lines), LINES), sys.stderr), err=True)


def write(text: str, output: Path | None, syntax: Syntax) -> None:
    """Machine output: to a file, or to standard output for None and `-`.

    Folders that are missing are made below the current one only. Raises `UsageError` for a path
    that cannot be a file, and `UndecidedError` for one that takes nothing.
    """
    if output is None or str(output) == "-":
        say(text, syntax)
        return
    with _writable(output):
        output.write_text(safe(text, syntax), encoding="utf-8")


def write_data(data: bytes, output: Path | None) -> None:
    """Binary output: to a file, or to standard output where no terminal shows it.

    Raises what `write` raises, and `UsageError` for a terminal.
    """
    if output is not None and str(output) != "-":
        with _writable(output):
            output.write_bytes(data)
        return
    if sys.stdout.isatty():
        raise UsageError("this format is for programs, and a terminal cannot show it; name a file")
    with _printing():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


@contextmanager
def _writable(output: Path) -> Iterator[None]:
    """Open a file for writing: its folder exists, and failures are reported."""
    from buildmatrix.facts.trees.base import reason

    try:
        if not output.is_absolute():
            output.parent.mkdir(parents=True, exist_ok=True)
        yield
    except (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError) as error:
        raise UsageError(
            f"{output} cannot be written: {reason(error)}; name a file in a folder that exists"
        ) from error
    except OSError as error:
        raise UndecidedError(f"{output} cannot be written: {reason(error)}") from error


def prepare_streams() -> None:
    """Make the standard streams fit for any text, also where they were closed at start.

    Whatever is opened next would get the number of a closed one, and what is printed would land in
    it. What stands there instead takes nothing, as a lost report must not look like success.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is given out: this one.
            os.open(os.devnull, os.O_RDONLY)
            os.set_inheritable(number, True)
        stream = getattr(sys, name)
        if stream is None:
            stream = os.fdopen(number, "w" if number else "r", encoding="utf-8")
            setattr(sys, name, stream)
        if number and isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
