"""Placeholders: `{project}`, `{id}`, `{runtime.full}` and the like, filled in per target.

`{{` and `}}` stand for single braces. `${NAME}` is left alone: it belongs to the reader of the
value later.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from buildmatrix import git
from buildmatrix.spec.document import Problems
from buildmatrix.spec.grammar import quoted
from buildmatrix.spec.hints import did_you_mean
from buildmatrix.spec.shapes import SourceText

#: The one placeholder that is not a value of the target: it costs a process.
GIT = "git.short"

_PART = re.compile(r"(?P<kept>\$\{[^{}]*\})|\{\{|\}\}|\{(?P<name>[^{}]*)\}|(?P<stray>[{}])")


class NoCommitError(Exception):
    """The specification's folder has no git commit; the message says why."""


def short_commit(folder: Path) -> str:
    """The commit that is checked out in `folder`, 12 digits.

    Raises:
        NoCommitError: git is missing, or there is no commit.
    """
    try:
        answer = git.ask(folder, "rev-parse", "--short=12", "--verify", "HEAD", seconds=10)
    except FileNotFoundError:
        raise NoCommitError("git is not installed") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoCommitError(f"git did not answer ({type(error).__name__})") from None
    if answer.returncode != 0:
        raise NoCommitError(git.complaint(answer) or "git failed")
    return answer.stdout.decode().strip()


@dataclass(frozen=True, slots=True)
class Filler:
    """Fills in the texts of one target, and checks what comes out of it."""

    target: str
    #: None for a value that is wrong itself and was reported already.
    values: Mapping[str, str | None]
    #: Asked when `{git.short}` is met; raises `NoCommitError`.
    commit: Callable[[], str]
    problems: Problems

    def fill(self, text: SourceText) -> str:
        """`text` with all placeholders filled in; notes what is unknown or becomes invalid.

        Then, and for texts that were wrong before, the result is empty.
        """
        if not text.sound or ("{" not in text.value and "}" not in text.value):
            return text.value
        failed = False

        def part(match: re.Match[str]) -> str:
            nonlocal failed
            if (name := match["name"]) is not None:
                value = self._value(name, text)
                failed |= value is None
                return value or ""
            if match["stray"]:
                self.problems.add(
                    text.at, f"{quoted(text.value)} has a single brace", "write `{{` or `}}`"
                )
                failed = True
            return match["kept"] or match[0][:1]

        filled = _PART.sub(part, text.value)
        if not failed and (complaint := text.kind.complaint(filled)):
            message = f"{quoted(text.value)} becomes {quoted(filled)} for {self.target}: that"
            self.problems.add(text.at, f"{message} {complaint}", mistake=text.value)
            failed = True
        return "" if failed else filled

    def _value(self, name: str, text: SourceText) -> str | None:
        if name in self.values:
            return self.values[name]
        if name == GIT:
            try:
                return self.commit()
            except NoCommitError as error:
                self.problems.add(
                    text.at,
                    f"`{{{GIT}}}` needs a git commit: {error}",
                    "commit first, or use `{version}`",
                )
                return None
        names = [*self.values, GIT]
        if name.startswith("runtime."):
            backend, runtime = self.values["backend"], self.values["runtime"]
            message = f"runtime `{runtime}` of `{backend}` has no value {quoted(name[8:])}"
            names = [value for value in names if value.startswith("runtime.")]
            hint = did_you_mean(name, names, "values of this runtime")
        else:
            message = f"unknown placeholder {quoted('{' + name + '}')}"
            hint = did_you_mean(name, names, "placeholders")
        self.problems.add(text.at, message, hint)
        return None
