"""What a person sees while targets are worked on: a live table, or plain lines."""

from __future__ import annotations

import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

from buildmatrix.cli.console import complain
from buildmatrix.cli.options import CommandSettings
from buildmatrix.phrases import size
from buildmatrix.progress import Progress, Silent
from buildmatrix.text import printable, shown

if TYPE_CHECKING:
    from rich.table import Table

#: Steps of a build change many times a second; people read a few lines a second.
REFRESHES_PER_SECOND = 8
#: Seconds between two lines about one thing that takes long, and until the first of them.
CALM = 10.0
#: Seconds that a rate is about, at least: before, nobody knows it.
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


@dataclass(slots=True)
class Part:
    """How much of something is done, since when, and so how fast."""

    started: float
    #: What was done when the clock started: it was no work of now.
    first: int
    unit: str
    done: int = 0
    total: int | None = None
    #: When a line about it was last printed.
    printed: float | None = None
    #: When how much was done, now and then.
    _past: list[tuple[float, int]] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether all of it is done."""
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


class _Parts:
    """What is being done, by the thing that it is done for and the unit."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[str, Part]] = {}

    def part(self, target: str, done: int, total: int | None, unit: str, now: float) -> Part:
        """What is known of it now. It begins anew where less is done than before."""
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


class PlainLines:
    """One line per event: what a CI log keeps."""

    def __init__(self, verbose: bool) -> None:
        self._verbose = verbose
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self._printed: set[tuple[str, str]] = set()
        self._parts = _Parts()

    def step(self, target: str, text: str) -> None:
        """Print a step once, however often it is reported: several of a build run at a time."""
        with self._lock:
            self._parts.forget(target)
            is_repeated = (target, text) in self._printed
            self._printed.add((target, text))
        if not is_repeated:
            self._print(f"[{target}] {text}")

    def output(self, target: str, line: str) -> None:
        """Print what a step printed, with `--verbose`."""
        if self._verbose:
            self._print(f"[{target}] | {line}")

    def part(self, target: str, done: int, total: int | None, unit: str) -> None:
        """Print a line now and then; nothing of what is done at once."""
        now = time.monotonic()
        with self._lock:
            part = self._parts.part(target, done, total, unit, now)
            last = part.started if part.printed is None else part.printed
            if now - last < CALM and not (part.is_complete and part.printed is not None):
                return
            part.printed = now
            words = self._parts.words(target, now)
        self._print(f"[{target}] {words}")

    def done(self, target: str, outcome: str, ok: bool) -> None:
        """Print how a target ended."""
        self._print(f"[{target}] {'ok' if ok else 'FAILED'}: {outcome}")

    def note(self, text: str) -> None:
        """Print a line of no target."""
        self._print(text)

    def _print(self, line: str) -> None:
        with self._lock:
            complain(f"{time.monotonic() - self._start:7.1f} {line}")


_STATES = {None: ("…", "cyan"), True: ("✓", "green"), False: ("✗", "red")}


@dataclass(slots=True)
class _TargetRow:
    started: float
    step: str = ""
    output: str = ""
    seconds: float | None = None
    ok: bool | None = None


def _unseen() -> None:
    """A thread looks anyway."""


@dataclass(slots=True)
class LiveTable:
    """One line per target: state, step, elapsed time, the last line that the step printed."""

    rows: dict[str, _TargetRow] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    #: Called when there is more to see, where no thread looks for that.
    moved: Callable[[], None] = _unseen
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _parts: _Parts = field(default_factory=_Parts)

    def step(self, target: str, text: str) -> None:
        """Show a step; the output of the one before goes."""
        with self._lock:
            row = self._row(target)
            if row.step != text:
                row.step, row.output = text, ""
                self._parts.forget(target)

    def output(self, target: str, line: str) -> None:
        """Show the last line."""
        with self._lock:
            self._row(target).output = line

    def part(self, target: str, done: int, total: int | None, unit: str) -> None:
        """Show it; the clock of what has no steps stops at its end."""
        now = time.monotonic()
        with self._lock:
            row = self._row(target)
            is_over = self._parts.part(target, done, total, unit, now).is_complete and not row.step
            row.seconds = now - row.started if is_over else None
        self.moved()

    def done(self, target: str, outcome: str, ok: bool) -> None:
        """Stop the clock of a target."""
        with self._lock:
            row = self._row(target)
            row.step, row.output, row.ok = outcome, "", ok
            self._parts.forget(target)
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
                state, style = _STATES[row.ok]
                if row.ok is None and row.seconds is not None:
                    state = " "  # Nobody judges what is only counted.
                words = self._parts.words(target, row.started + seconds)
                text = "  ".join(filter(None, (row.step, words, row.output)))
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

    def part(self, target: str, done: int, total: int | None, unit: str) -> None:
        """Pass it on."""
        self.display.part(printable(target), done, total, unit)

    def done(self, target: str, outcome: str, ok: bool) -> None:
        """Pass it on."""
        self.display.done(printable(target), printable(shown(outcome)), ok)

    def note(self, text: str) -> None:
        """Pass it on."""
        self.display.note(printable(shown(text)))


@contextmanager
def progress(settings: CommandSettings, *, is_still: bool = False) -> Iterator[Progress]:
    """The progress display that fits the terminal and the options.

    One that `is_still` has no thread: it moves when it is told something.
    """
    if settings.quiet:
        yield Silent()
    elif settings.no_progress or settings.verbose or not sys.stderr.isatty():
        yield _Shown(PlainLines(settings.verbose))
    else:
        from rich.console import Console
        from rich.live import Live

        table, console = LiveTable(), Console(stderr=True)
        if is_still:
            with Live(table, console=console, auto_refresh=False) as live:
                table.moved = _seldom(live.refresh)
                yield _Shown(table)
            return
        with Live(table, console=console, refresh_per_second=REFRESHES_PER_SECOND):
            yield _Shown(table)


def _seldom(refresh: Callable[[], None]) -> Callable[[], None]:
    """The same, as often as people read."""
    last = float("-inf")

    def moved() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= 1 / REFRESHES_PER_SECOND:
            last = now
            refresh()

    return moved
