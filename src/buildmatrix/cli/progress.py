"""Progress of a command: a live table in a terminal, else plain lines.

Each command has one display and one thread that keeps it moving (`Ticker`), while the
command works: the table shows the time, and plain lines name the current step every `CALM` seconds.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress

from msgspec import Struct

from buildmatrix.base.progress import Ending, Progress, Silent
from buildmatrix.base.text import printable, shown
from buildmatrix.cli import console
from buildmatrix.cli.displays import Display, LiveTable, PlainLines
from buildmatrix.cli.options import CommandSettings
from buildmatrix.facts.inventory.workers import COMPANIONS

#: Seconds that a thread gets to finish what it prints.
_GRACE = 1.0


class _Shown(Struct, frozen=True):
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

    def end(self, target: str) -> None:
        """Pass it on."""
        self.display.end(printable(target))

    def done(self, target: str, outcome: str, ending: Ending) -> None:
        """Pass it on."""
        self.display.done(printable(target), printable(shown(outcome)), ending)

    def note(self, text: str) -> None:
        """Pass it on."""
        self.display.note(printable(shown(text)))


class Ticker:
    """A thread that calls `beat`, which says in how many seconds it wants to be called again.

    It rests while this process forks (`facts.inventory.workers`).
    """

    def __init__(
        self,
        beat: Callable[[], float],
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self._beat = beat
        self._wait = wait
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Ticker:
        self.resume()
        COMPANIONS.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        COMPANIONS.remove(self)
        self.pause()

    def resume(self) -> None:
        """Start the thread, unless the system has no room for one."""
        self._ending = threading.Event()
        thread = threading.Thread(
            target=self._run, args=(self._ending,), name="progress", daemon=True
        )
        with suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def pause(self) -> None:
        """End the thread, and wait up to `_GRACE` seconds for what it prints."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ending.set()
            thread.join(_GRACE)

    def _run(self, ending: threading.Event) -> None:
        seconds = 0.0
        # The terminal is gone: there is no one to tell.
        with suppress(OSError):
            while not self._wait(ending, min(seconds, threading.TIMEOUT_MAX)):
                seconds = self._beat()


class _CommandProgress:
    """The display of a command, and its ticker."""

    def __init__(self, display: Display, ticker: Ticker) -> None:
        self.display = display
        self.ticker = ticker
        self._blocks = 0

    @contextmanager
    def block(self) -> Iterator[Progress]:
        """A block of work that reports. Those of one command may overlap."""
        with console.LOCK:
            self._blocks += 1
            self.display.open()
        try:
            yield _Shown(self.display)
        finally:
            with console.LOCK:
                self._blocks -= 1
                if not self._blocks:
                    self.display.close()


#: That of the command that runs: a process runs one at a time, and tests run one within another.
_RUNNING: list[_CommandProgress] = []


@contextmanager
def command_progress(settings: CommandSettings, command: str) -> Iterator[None]:
    """Show the progress of `command` until its end, by the terminal and the options."""
    if settings.quiet:
        yield
        return
    with _begun(settings, command):
        yield


@contextmanager
def progress(settings: CommandSettings) -> Iterator[Progress]:
    """Show a block of work of the command that runs, as fits the terminal and the options."""
    if settings.quiet:
        yield Silent()
        return
    with (
        nullcontext(_RUNNING[-1]) if _RUNNING else _begun(settings, "working") as command,
        command.block() as display,
    ):
        yield display


@contextmanager
def set_aside() -> Iterator[None]:
    """Show nothing while a block has the terminal for itself."""
    for running in _RUNNING:
        running.ticker.pause()
        with console.LOCK:
            running.display.make_room(is_error=False)
    try:
        yield
    finally:
        for running in _RUNNING:
            running.ticker.resume()


@contextmanager
def _begun(settings: CommandSettings, command: str) -> Iterator[_CommandProgress]:
    display: Display
    is_dumb = os.environ.get("TERM", "") in ("dumb", "unknown")
    if settings.no_progress or settings.verbose or is_dumb or not sys.stderr.isatty():
        display = PlainLines(settings.verbose, command)
    else:
        display = LiveTable(command)
    before = console.before_printing
    try:
        with Ticker(display.beat) as ticker:
            _RUNNING.append(_CommandProgress(display, ticker))
            console.before_printing = display.make_room
            try:
                yield _RUNNING[-1]
            finally:
                _RUNNING.pop()
                console.before_printing = before
    finally:
        # The thread has ended: nothing is drawn any more.
        display.close()
