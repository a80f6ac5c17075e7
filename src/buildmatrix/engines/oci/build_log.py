"""Log of an image build."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from buildmatrix.engines.model import (
    BuildJob,
)
from buildmatrix.progress import Progress

if TYPE_CHECKING:
    pass


class BuildLog:
    """`Progress` that also writes a log, and stops cancelled builds."""

    def __init__(
        self,
        job: BuildJob,
        write: Callable[[str], object],
        progress: Progress,
        check: Callable[[], None],
    ) -> None:
        self._write = write
        self._progress = progress
        self._check = check
        self._start = time.monotonic()
        self._lock = threading.Lock()
        write(f"# {job.id}, {datetime.now(UTC).isoformat(' ', 'seconds')}: engine oci\n")

    def step(self, target: str, text: str) -> None:
        """See `Progress.step`."""
        self._line(text)
        self._progress.step(target, text)

    def output(self, target: str, line: str) -> None:
        """See `Progress.output`."""
        self._line(f"| {line}")
        self._progress.output(target, line)

    def part(self, target: str, done: int, total: int | None, unit: str) -> None:
        """See `Progress.part`; not logged."""
        self._check()
        self._progress.part(target, done, total, unit)

    def end(self, target: str) -> None:
        """See `Progress.end`."""
        self._progress.end(target)

    def done(self, target: str, outcome: str, ok: bool) -> None:
        """See `Progress.done`."""
        self._progress.done(target, outcome, ok)

    def note(self, text: str) -> None:
        """See `Progress.note`."""
        self._line(text)
        self._progress.note(text)

    def _line(self, text: str) -> None:
        self._check()
        with self._lock:
            self._write(f"{time.monotonic() - self._start:8.2f} {text}\n")
