"""Progress displays: plain lines and a live table, with amounts and rates."""

from __future__ import annotations

import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from buildmatrix.base.progress import Ending, Progress
from buildmatrix.base.text import size
from buildmatrix.cli import console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table


#: Steps of a build change many times a second; people read a few lines a second.
REFRESHES_PER_SECOND = 8


#: Seconds between two lines about one thing that takes long, and until the first of them.
CALM = 10.0


#: Seconds until a terminal shows a command that has reported nothing yet.
_PATIENCE = 1.0


class Display(Progress, Protocol):
    """Progress of one command, and what moves it while nothing is reported."""

    def beat(self) -> float:
        """Show what goes on; return the seconds until the next call."""

    def open(self) -> None:
        """Begin to show a block of work that reports."""

    def close(self) -> None:
        """End what the block left open."""

    def make_room(self, *, is_error: bool) -> None:
        """Prepare for other text on standard error, or else output."""


class _OpenWork(Struct):
    """Work on one target that goes on."""

    started: float
    #: When a line about it was last printed.
    printed: float
    #: None for what is only counted.
    step: str | None = None
    is_counted: bool = False


class PlainLines:
    """One line per event, and one every `CALM` seconds: what a CI log keeps."""

    def __init__(
        self, verbose: bool, command: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._verbose = verbose
        self._command = command
        self._clock = clock
        self._start = self._printed = clock()
        self._steps: set[tuple[str, str]] = set()
        self._open: dict[str, _OpenWork] = {}
        self._parts = Parts()

    def step(self, target: str, text: str) -> None:
        """Print a step once, however often it is reported: several of a build run at a time."""
        with console.LOCK:
            now = self._clock()
            self._parts.forget(target)
            work = self._open.setdefault(target, _OpenWork(now, now))
            work.started, work.step, work.is_counted = now, text, False
            if (target, text) not in self._steps:
                self._steps.add((target, text))
                self._print(f"[{target}] {text}", target)

    def output(self, target: str, line: str) -> None:
        """Print a step's output, with `--verbose`."""
        if self._verbose:
            self._print(f"[{target}] | {line}", target)

    def part(self, target: str, done: int, total: int | None, unit: str) -> None:
        """Print a line now and then; none for work that is done at once."""
        with console.LOCK:
            now = self._clock()
            part = self._parts.part(target, done, total, unit, now)
            work = self._open.setdefault(target, _OpenWork(now, now))
            is_last = part.is_complete and work.is_counted
            if now - work.printed >= CALM or is_last:
                work.is_counted = not is_last
                self._print(f"[{target}] {self._parts.words(target, now)}", target)
            if part.is_complete and work.step is None:
                del self._open[target]

    def end(self, target: str) -> None:
        """Say no more of a target."""
        with console.LOCK:
            self._open.pop(target, None)
            self._parts.forget(target)

    def done(self, target: str, outcome: str, ending: Ending) -> None:
        """Print how a target ended."""
        with console.LOCK:
            self.end(target)
            self._print(f"[{target}] {ending}: {outcome}")

    def note(self, text: str) -> None:
        """Print a line of no target."""
        self._print(text)

    def beat(self) -> float:
        """Print a line about each step that had none for `CALM` seconds.

        What is only counted has one where nothing else was printed, and so has the command.
        """
        with console.LOCK:
            now = self._clock()
            steps = {name: work for name, work in self._open.items() if work.step is not None}
            for target, work in steps.items():
                if now - work.printed >= CALM:
                    seconds, words = f"{now - work.started:.0f} s", self._parts.words(target, now)
                    text = ", ".join(filter(None, (f"still: {work.step}", seconds, words)))
                    self._print(f"[{target}] {text}", target)
            for target in self._open if now - self._printed >= CALM else ():
                self._open[target].is_counted = True
                self._print(f"[{target}] {self._parts.words(target, now)}", target)
            if not self._open and now - self._printed >= CALM:
                self._print(f"still: {self._command}")
            due = [work.printed for work in steps.values()]
            return min(due if due else [self._printed]) + CALM - now

    def open(self) -> None:
        """Wait for the first step."""

    def close(self) -> None:
        """Forget open work and printed steps."""
        with console.LOCK:
            self._open.clear()
            self._steps.clear()
            self._parts = Parts()

    def make_room(self, *, is_error: bool) -> None:  # noqa: ARG002 - lines stand on any stream
        """Note the time: something is printed."""
        self._printed = self._clock()

    def _print(self, line: str, target: str | None = None) -> None:
        with console.LOCK:
            now = self._clock()
            console.complain(f"{now - self._start:7.1f} {line}")
            self._printed = now
            if target in self._open:
                self._open[target].printed = now


_STATES: dict[Ending | None, tuple[str, str]] = {
    None: ("…", "cyan"),
    "passed": ("✓", "green"),
    "failed": ("✗", "red"),
    "undecided": ("?", "yellow"),
}


class _TargetRow(Struct):
    #: When the clock started, less the time that it stood still.
    started: float
    #: When the clock stopped.
    ended: float | None = None
    step: str = ""
    output: str = ""
    ending: Ending | None = None

    def begin(self, now: float) -> None:
        """Let the clock go on, where it stopped."""
        if self.ended is not None:
            self.started += now - self.ended
            self.ended = None


def _terminal() -> Console:
    from rich.console import Console

    return Console(stderr=True)


class LiveTable:
    """One line per target: state, step, elapsed time, the last line that the step printed.

    A command of which nothing is reported has a line, too, after `_PATIENCE` seconds.
    """

    def __init__(
        self,
        command: str,
        clock: Callable[[], float] = time.monotonic,
        terminal: Callable[[], Console] = _terminal,
    ) -> None:
        self._command = command
        self._clock = clock
        self._terminal = terminal
        self._start = self._printed = clock()
        self._is_open = False
        self._live: Live | None = None
        self._rows: dict[str, _TargetRow] = {}
        self._notes: list[str] = []
        self._parts = Parts()
        # Guards the rows; `console.LOCK` guards the terminal.
        self._lock = threading.Lock()

    def step(self, target: str, text: str) -> None:
        """Show a step; the output of the one before goes."""
        with self._lock:
            row = self._row(target)
            if row.step != text:
                row.step, row.output, row.ending = text, "", None
                self._parts.forget(target)

    def output(self, target: str, line: str) -> None:
        """Show the last line."""
        with self._lock:
            self._row(target).output = line

    def part(self, target: str, done: int, total: int | None, unit: str) -> None:
        """Show it; the clock of what has no steps stops at its end."""
        with self._lock:
            now, row = self._clock(), self._row(target)
            if self._parts.part(target, done, total, unit, now).is_complete and not row.step:
                row.ended = now

    def end(self, target: str) -> None:
        """Stop the clock of a target without an outcome."""
        with self._lock:
            if target in self._rows:
                self._row(target).ended = self._clock()

    def done(self, target: str, outcome: str, ending: Ending) -> None:
        """Stop the clock of a target, and show how it ended."""
        with self._lock:
            row = self._row(target)
            row.step, row.output, row.ending = outcome, "", ending
            self._parts.forget(target)
            row.ended = self._clock()

    def note(self, text: str) -> None:
        """Keep a line for below the table."""
        with self._lock:
            self._notes.append(text)

    def beat(self) -> float:
        """Draw the table again, and begin with that where there has been nothing for a while."""
        with console.LOCK:
            if self._live is None:
                wait = self._printed + (0 if self._is_open else _PATIENCE) - self._clock()
                if wait > 0:
                    return wait
                self._draw()
            else:
                self._live.refresh()
        return 1 / REFRESHES_PER_SECOND

    def open(self) -> None:
        """Draw the table from now on."""
        with console.LOCK:
            self._is_open = True
            self._draw()

    def close(self) -> None:
        """Leave the table on the screen."""
        with console.LOCK:
            self._is_open = False
            with self._lock:
                self._printed = self._clock()
                for row in self._rows.values():
                    row.ended = self._printed if row.ended is None else row.ended
            self._stop(is_left=bool(self._rows or self._notes))
            with self._lock:
                self._rows, self._notes, self._parts = {}, [], Parts()

    def make_room(self, *, is_error: bool) -> None:
        """Take the table away until the next beat; Rich puts errors above it."""
        if not is_error and sys.stdout.isatty():
            self._stop(is_left=False)
        self._printed = self._clock()

    def _draw(self) -> None:
        from rich.live import Live

        if self._live is None:
            self._live = Live(
                self, console=self._terminal(), auto_refresh=False, redirect_stdout=False
            )
            self._live.start(refresh=True)

    def _stop(self, *, is_left: bool) -> None:
        live, self._live = self._live, None
        if live is not None:
            # The last picture has no line of the command, which has more to do.
            live.transient = not is_left
            live.stop()

    def _row(self, target: str) -> _TargetRow:
        now = self._clock()
        row = self._rows.setdefault(target, _TargetRow(now))
        row.begin(now)
        return row

    def __rich__(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        # The last column gives way on a narrow terminal; the others keep their width.
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(no_wrap=True, min_width=1)
        table.add_column(no_wrap=True, min_width=max(map(len, self._rows), default=0))
        table.add_column(no_wrap=True, min_width=5, justify="right")
        table.add_column(no_wrap=True, ratio=1, overflow="ellipsis")
        with self._lock:
            now = self._clock()
            for target, row in self._rows.items():
                state, style = _STATES[row.ending]
                if row.ending is None and row.ended is not None:
                    state = " "  # What is only counted has no verdict.
                until = now if row.ended is None else row.ended
                words = self._parts.words(target, until)
                text = "  ".join(filter(None, (row.step, words, row.output)))
                # Text, not markup: what a build step prints is not ours to interpret.
                seconds = Text(f"{until - row.started:.0f}s", "dim")
                table.add_row(Text(state, style), Text(target), seconds, Text(text))
            if self._live is not None and all(row.ended is not None for row in self._rows.values()):
                seconds = Text(f"{now - self._start:.0f}s", "dim")
                table.add_row(Text("…", "cyan"), Text(self._command), seconds)
            for line in self._notes:
                table.add_row("", "", "", Text(line, "dim"))
        return table


# Amounts of finished work, with rates and remaining times


#: Least seconds that a rate is computed from.
_SETTLED = 1.0
#: Share of what is counted that has to be done before the rest of it is guessed, and how much
#: faster or slower the second half of the time may have been than the first: where large pieces
#: came first, what was left was said to take five times as long as it did.
_LEAST_DONE = 0.1
_STEADY = 1.5
#: Times at which something was done that say nothing of how it went on.
_FEW = 3
#: Times of the past that are kept, as parts of it: some hundreds for any run.
_SPACING = 1 / 64


class Part(Struct):
    """Progress of one amount: how much is done, since when, and how fast."""

    started: float
    #: Amount done before the clock started, which does not count.
    first: int
    unit: str
    done: int = 0
    total: int | None = None
    #: When how much was done, now and then.
    _past: list[tuple[float, int]] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """True if all of it is done."""
        return self.total is not None and self.done >= self.total

    def move(self, done: int, total: int | None, now: float) -> None:
        """So much is done now."""
        self.done, self.total = done, total
        last = self._past[-1][0] if self._past else self.started
        if now > last + (now - self.started) * _SPACING:
            self._past.append((now, done))

    def words(self, now: float) -> str:
        """`120.3 MB of 806.0 MB, 48.1 MB/s, 14 s left`, as far as it is known."""
        seconds = now - self.started
        is_total = bool(self.total) and self.done <= (self.total or 0)
        of = f" of {self._amount(self.total or 0)}" if is_total else ""
        parts = [f"{self._amount(self.done)}{of}"]
        if self.unit != "bytes":
            parts = [f"{self.done}{f' of {self.total}' if is_total else ''} {self.unit}"]
        rate = (self.done - self.first) / seconds if seconds >= _SETTLED else 0.0
        if rate > 0:
            if self.unit == "bytes":
                parts.append(f"{size(round(rate))}/s")
            left = self._left(now) if is_total else None
            if left is not None and left >= 1:
                parts.append(f"{_duration(left)} left")
        return ", ".join(parts)

    def _left(self, now: float) -> float | None:
        """Seconds until all is done; None where the past does not say it yet."""
        total = self.total or 0
        if self.unit != "bytes" and self.done - self.first < _LEAST_DONE * (total - self.first):
            return None
        middle = (now + self.started) / 2
        number = bisect_right(self._past, middle, key=itemgetter(0))
        if not number:
            if len(self._past) > _FEW:
                return None  # All of it came lately.
            return (total - self.done) * (now - self.started) / (self.done - self.first)
        then, done = self._past[number - 1]
        before = (done - self.first) / (then - self.started)
        lately = (self.done - done) / (now - then)
        if not before / _STEADY <= lately <= before * _STEADY or not lately:
            return None
        return (total - self.done) / lately

    def _amount(self, number: int) -> str:
        return size(number) if self.unit == "bytes" else str(number)


def _duration(seconds: float) -> str:
    """`14 s`, `3 min`, `2 h`, of what is only guessed."""
    for limit, length, unit in ((100, 1, "s"), (6000, 60, "min")):
        if seconds < limit:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 3600:.0f} h"


class Parts:
    """Amounts in progress, by target and unit."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[str, Part]] = {}

    def part(self, target: str, done: int, total: int | None, unit: str, now: float) -> Part:
        """Update and return an amount. It restarts if less is done than before."""
        parts = self._parts.setdefault(target, {})
        part = parts.get(unit)
        if part is None or done < part.done:
            part = parts[unit] = Part(now, done, unit)
        part.move(done, total, now)
        return part

    def words(self, target: str, now: float) -> str:
        """Everything about one thing: `12 of 57 wheels, 40 s left, 34.1 MB, 5.2 MB/s`."""
        return ", ".join(part.words(now) for part in self._parts.get(target, {}).values())

    def forget(self, target: str) -> None:
        """It does something else now."""
        self._parts.pop(target, None)
