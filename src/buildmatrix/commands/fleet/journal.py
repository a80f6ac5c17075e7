"""JSON Lines written as results arrive, complete up to any end of the run."""

from __future__ import annotations

import os
from pathlib import Path

from buildmatrix.errors import UsageError
from buildmatrix.reports.fleet.documents import line
from buildmatrix.reports.fleet.model import FleetResult
from buildmatrix.trees.base import Closing, reason


class ResultJournal(Closing):
    """A file of results, started anew by each run; `-` is standard output.

    Each line is written in one call, so that killing the process leaves whole lines. After a
    partial write the file is truncated to whole lines, and writing stops: `trouble` has the reason,
    and the report still has everything.

    Raises `UsageError` for a path that cannot be a file.
    """

    def __init__(self, path: Path) -> None:
        self._name = "standard output" if str(path) == "-" else str(path)
        self.trouble = ""
        try:
            if str(path) == "-":
                self._number = os.dup(1)
            else:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                self._number = os.open(path, flags, 0o666)
        except OSError as error:
            raise UsageError(f"--lines {path} cannot be written: {reason(error)}") from error

    def close(self) -> None:
        """Close the file."""
        os.close(self._number)

    def write(self, result: FleetResult) -> None:
        """Add a line. Raises `BrokenPipeError` if standard output is closed."""
        if self.trouble:
            return
        data = line(result).encode("utf-8", "surrogatepass")
        written = 0
        try:
            while written < len(data):
                written += os.write(self._number, data[written:])
        except BrokenPipeError:
            raise
        except OSError as error:
            self.trouble = f"{self._name} took no more lines: {reason(error)}"
            self._take_back(written)

    def _take_back(self, written: int) -> None:
        """Truncate the file to its last whole line."""
        try:
            os.ftruncate(self._number, os.lseek(self._number, 0, os.SEEK_CUR) - written)
        except OSError:
            # A pipe keeps the partial line, which readers skip.
            return
