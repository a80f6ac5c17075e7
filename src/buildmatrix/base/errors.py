"""Exceptions, one class per exit code of the public contract (docs/contract.md).

A message states the problem, its place, and the next step, in that order and in one or two
sentences. `cli` prints it unchanged and exits with `exit_code`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from msgspec import Struct

from buildmatrix.base.text import printable

EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_INTERRUPTED = 130
#: A defect of buildmatrix: `EX_SOFTWARE` of BSD's sysexits.h.
EXIT_DEFECT = 70

#: If several codes apply, the most severe one wins, in this order.
SEVERITY_ORDER = (EXIT_INTERRUPTED, EXIT_DEFECT, 2, 5, 4, EXIT_FINDINGS, 3, EXIT_OK)


def most_severe(codes: Sequence[int]) -> int:
    """Return the exit code of a run to which all of `codes` apply; 0 for none."""
    return min(codes, key=SEVERITY_ORDER.index, default=EXIT_OK)


def describe_extra(extra: str) -> str:
    """Return the line that installs an extra, and that of a CI recipe."""
    return f"pip install 'buildmatrix[{extra}]' (in a CI recipe: `extras: {extra}`)"


class BuildmatrixError(Exception):
    """Base of the exceptions that buildmatrix raises on purpose."""

    exit_code = 3

    def __init__(self, message: str, *, log: Path | None = None) -> None:
        super().__init__(message)
        self.message = message
        #: Log file with the details, if there is one.
        self.log = log

    def saying(self, message: str) -> Self:
        """Return the same error with another message."""
        # Subclasses have parameters of their own; so no new one is made of a message alone.
        same = type(self).__new__(type(self), message)
        same.__dict__.update(self.__dict__, message=message)
        return same


class UsageError(BuildmatrixError):
    """Invalid command line: exit code 2."""

    exit_code = 2


class Problem(Struct, frozen=True):
    """Error in a file that a user wrote."""

    message: str
    file: str
    line: int | None = None
    column: int | None = None
    #: Correct text, if it is known.
    hint: str | None = None

    def __str__(self) -> str:
        """Return the problem on one line, with names made printable."""
        place = ":".join(
            str(part) for part in (self.file, self.line, self.column) if part is not None
        )
        return printable(f"{place}: {self.message}" + (f"; {self.hint}" if self.hint else ""))


class SpecError(UsageError):
    """Errors in a specification or another file that a user wrote."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class UndecidedError(BuildmatrixError):
    """Something could not be read, reached or resolved: exit code 3, never reported as clean."""

    exit_code = 3


class BuildError(BuildmatrixError):
    """Failed build of an image: exit code 4; the message names its log."""

    exit_code = 4


class ComponentError(BuildmatrixError):
    """Missing or outdated engine or other component: exit code 5."""

    exit_code = 5


class Interrupted(BuildmatrixError):
    """Interruption by the user: exit code 130; a later run resumes."""

    exit_code = EXIT_INTERRUPTED
