"""What a person sees while targets are worked on: a live table, or plain lines."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from buildmatrix.cli.console import complain
from buildmatrix.cli.options import CommandSettings
from buildmatrix.progress import Progress, Silent
from buildmatrix.text import printable, shown

if TYPE_CHECKING:
    from rich.table import Table

#: Steps of a build change many times a second; people read a few lines a second.
REFRESHES_PER_SECOND = 8


class PlainLines:
    """One line per event: what a CI log keeps."""

    def __init__(self, verbose: bool) -> None:
        self._verbose = verbose
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self._printed: set[tuple[str, str]] = set()

    def step(self, target: str, text: str) -> None:
        """Print a step once, however often it is reported: several of a build run at a time."""
        with self._lock:
            is_repeated = (target, text) in self._printed
            self._printed.add((target, text))
        if not is_repeated:
            self._print(f"[{target}] {text}")

    def output(self, target: str, line: str) -> None:
        """Print what a step printed, with `--verbose`."""
        if self._verbose:
            self._print(f"[{target}] | {line}")

    def done(self, target: str, outcome: str, ok: bool) -> None:
        """Print how a target ended."""
        self._print(f"[{target}] {'ok' if ok else 'FAILED'}: {outcome}")

    def note(self, text: str) -> None:
        """Print a line of no target."""
        self._print(text)

    def _print(self, line: str) -> None:
        with self._lock:
            complain(f"{time.monotonic() - self._start:7.1f} {line}")


@dataclass(slots=True)
class _TargetRow:
    started: float
    step: str = ""
    output: str = ""
    seconds: float | None = None
    ok: bool | None = None


@dataclass(slots=True)
class LiveTable:
    """One line per target: state, step, elapsed time, the last line that the step printed."""

    rows: dict[str, _TargetRow] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def step(self, target: str, text: str) -> None:
        """Show a step; the output of the one before goes."""
        with self._lock:
            row = self._row(target)
            if row.step != text:
                row.step, row.output = text, ""

    def output(self, target: str, line: str) -> None:
        """Show the last line."""
        with self._lock:
            self._row(target).output = line

    def done(self, target: str, outcome: str, ok: bool) -> None:
        """Stop the clock of a target."""
        with self._lock:
            row = self._row(target)
            row.step, row.output, row.ok = outcome, "", ok
            row.seconds = time.monotonic() - row.started

    def note(self, text: str) -> None:
        """Keep a line for below the table."""
        with self._lock:
            self.notes.append(text)

    def _row(self, target: str) -> _TargetRow:
        return self.rows.setdefault(target, _TargetRow(time.monotonic()))

    def __rich__(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        # The last column gives way on a narrow terminal; the others keep their width.
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(no_wrap=True, min_width=1)
        table.add_column(no_wrap=True, min_width=max(map(len, self.rows), default=0))
        table.add_column(no_wrap=True, min_width=5, justify="right")
        table.add_column(no_wrap=True, ratio=1, overflow="ellipsis")
        with self._lock:
            now = time.monotonic()
            for target, row in self.rows.items():
                seconds = row.seconds if row.seconds is not None else now - row.started
                state, style = {None: ("…", "cyan"), True: ("✓", "green"), False: ("✗", "red")}[
                    row.ok
                ]
                text = f"{row.step}  {row.output}" if row.output else row.step
                # Text, not markup: what a build step prints is not ours to interpret.
                table.add_row(
                    Text(state, style), Text(target), Text(f"{seconds:.0f}s", "dim"), Text(text)
                )
            for line in self.notes:
                table.add_row("", "", "", Text(line, "dim"))
        return table


@dataclass(frozen=True, slots=True)
class _Shown:
    """Passes on what may be shown: names of targets and packages, and what steps print, is foreign.

    Each text stays on its line; plain lines are looked at once more where they are printed.
    """

    display: Progress

    def step(self, target: str, text: str) -> None:
        """Pass it on."""
        self.display.step(printable(target), printable(shown(text)))

    def output(self, target: str, line: str) -> None:
        """Pass it on."""
        self.display.output(printable(target), printable(shown(line)))

    def done(self, target: str, outcome: str, ok: bool) -> None:
        """Pass it on."""
        self.display.done(printable(target), printable(shown(outcome)), ok)

    def note(self, text: str) -> None:
        """Pass it on."""
        self.display.note(printable(shown(text)))


@contextmanager
def progress(settings: CommandSettings) -> Iterator[Progress]:
    """The progress display that fits the terminal and the options."""
    if settings.quiet:
        yield Silent()
    elif settings.no_progress or settings.verbose or not sys.stderr.isatty():
        yield _Shown(PlainLines(settings.verbose))
    else:
        from rich.console import Console
        from rich.live import Live

        table = LiveTable()
        with Live(table, console=Console(stderr=True), refresh_per_second=REFRESHES_PER_SECOND):
            yield _Shown(table)
