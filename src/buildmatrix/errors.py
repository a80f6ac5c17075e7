"""One exception class per exit code of the public contract (docs/contract.md).

A message says what is wrong, where, and what to do next, in that order and in one or two sentences.
The code that raises one of these has written the text that the user will read: `cli` prints it
unchanged and exits with `exit_code`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from buildmatrix.text import printable

EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_INTERRUPTED = 130
#: A defect of buildmatrix itself: `EX_SOFTWARE` of BSD's sysexits.h.
EXIT_DEFECT = 70

#: When several codes apply the most severe wins, in this order.
SEVERITY_ORDER = (EXIT_INTERRUPTED, EXIT_DEFECT, 2, 5, 4, EXIT_FINDINGS, 3, EXIT_OK)


def most_severe(codes: Sequence[int]) -> int:
    """The exit code of a run in which all of `codes` applied; 0 for none."""
    return min(codes, key=SEVERITY_ORDER.index, default=EXIT_OK)


class BuildmatrixError(Exception):
    """Base of everything that buildmatrix raises on purpose."""

    exit_code = 3

    def __init__(self, message: str, *, log: Path | None = None) -> None:
        super().__init__(message)
        self.message = message
        #: The log file that holds the details, where there is one.
        self.log = log

    def saying(self, message: str) -> Self:
        """The same error with another text."""
        # Classes of errors have parameters of their own; so no new one is made of a message alone.
        same = type(self).__new__(type(self), message)
        same.__dict__.update(self.__dict__, message=message)
        return same


class UsageError(BuildmatrixError):
    """The command line cannot mean anything: exit code 2."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """One error in a file that a user wrote."""

    message: str
    file: str
    line: int | None = None
    column: int | None = None
    #: What to write instead, where that is known.
    hint: str | None = None

    def __str__(self) -> str:
        """The problem on one line, whatever the names in it hold."""
        place = ":".join(
            str(part) for part in (self.file, self.line, self.column) if part is not None
        )
        return printable(f"{place}: {self.message}" + (f"; {self.hint}" if self.hint else ""))


class SpecError(UsageError):
    """A specification (or another file that a user wrote) is wrong; holds all its problems."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class UndecidedError(BuildmatrixError):
    """Something could not be read, reached or resolved: exit code 3, never reported as clean."""

    exit_code = 3


class BuildError(BuildmatrixError):
    """The build of an image failed: exit code 4; the log is named."""

    exit_code = 4


class ComponentError(BuildmatrixError):
    """The engine, or another component that is needed, is missing or too old: exit code 5."""

    exit_code = 5


class Interrupted(BuildmatrixError):
    """The user stopped the run: exit code 130; a later run resumes."""

    exit_code = EXIT_INTERRUPTED
