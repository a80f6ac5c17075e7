"""JSON Lines as results come in: what a reader finds there is whole, however the run ended."""

from __future__ import annotations

import os
from pathlib import Path

from buildmatrix.errors import UsageError
from buildmatrix.reports.fleet.lines import line
from buildmatrix.reports.fleet.model import FleetResult
from buildmatrix.trees.base import Closing, reason


class Journal(Closing):
    """A file of results, begun anew by each run; `-` is standard output.

    A line goes to the system in one piece, so that whoever kills the process leaves whole lines. A
    disk that takes a part of one gets it taken back. Then nothing more is written: `trouble` says
    why, and the report has everything all the same.

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
        """Add a line. Raises `BrokenPipeError` where nobody reads standard output any more."""
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
        """Leave the file with its last whole line."""
        try:
            os.ftruncate(self._number, os.lseek(self._number, 0, os.SEEK_CUR) - written)
        except OSError:
            # A pipe keeps what it has: a line without its end, which readers leave out.
            return
