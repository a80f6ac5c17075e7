"""Files that never reach an image: the rules of generated `.dockerignore` files, and their matches.

Patterns as the reference has them (https://docs.docker.com/build/concepts/context/#dockerignore-files)
and as github.com/moby/patternmatcher reads them: relative to the context, the last match decides,
and what matches a folder matches everything in it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from pathlib import Path

from buildmatrix.errors import Problem, SpecError
from buildmatrix.render.quoting import ignore_pattern

#: The project's own rules. BuildKit reads them only where a Dockerfile has no file of its own.
PROJECT_FILE = ".dockerignore"
#: Where generated files are if the specification does not say otherwise, and everything else that
#: buildmatrix writes.
FOLDER = ".buildmatrix"
#: Never of use in an image.
_JUNK = ("**/.git", "**/__pycache__", "**/*.pyc", f"**/{FOLDER}")
_GENERATED = ("docker-bake.json", "*/Dockerfile", "*/Dockerfile.dockerignore", "scan/scan.pyz")


def rules(root: Path, output: str) -> tuple[str, ...]:
    """Patterns for the context `root`: the project's own, then what is never of use.

    `output` is the folder of generated files. Raises `SpecError` where the project's rules cannot
    be read.
    """
    folder = posixpath.normpath(output)
    generated: tuple[str, ...] = ()
    if FOLDER not in folder.split("/"):
        prefix = "" if folder == "." else f"{ignore_pattern(folder)}/"
        generated = tuple(prefix + name for name in _GENERATED)
    return (*_of_project(root), *_JUNK, *generated)


class Ignored:
    """Matcher of ignored paths of a context."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._rules = [rule for rule in map(_rule, patterns) if rule is not None]
        #: Whether something inside a folder that is left out may be in the context all the same.
        self.has_exceptions = any(exception for _, exception in self._rules)

    def __call__(self, path: str) -> bool:
        """Return True if `path`, relative to the context, or one of its folders is ignored."""
        parts = path.split("/")
        names = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
        for pattern, exception in reversed(self._rules):
            if any(pattern.fullmatch(name) for name in names):
                return not exception
        return False


def _of_project(root: Path) -> list[str]:
    try:
        text = (root / PROJECT_FILE).read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, UnicodeDecodeError) as error:
        why = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error.strerror)
        raise SpecError([Problem(f"cannot be read: {why}", PROJECT_FILE)]) from error
    lines = (line.rstrip("\r") for line in text.split("\n"))
    return [line for line in lines if line.strip() and not line.startswith("#")]


def _rule(line: str) -> tuple[re.Pattern[str], bool] | None:
    """A pattern, and whether it is an exception; None for what matches nothing."""
    text = line.strip()
    exception = text.startswith("!")
    text = text[exception:].strip()
    text = posixpath.normpath(text).lstrip("/") if text else ""
    try:
        return (re.compile(_regex(text), re.DOTALL), exception) if text else None
    except re.error:
        return None  # BuildKit refuses it, and says so.


def _regex(pattern: str) -> str:
    regex = ""
    rest = pattern
    while rest:
        if match := re.match(r"\*\*/?", rest):
            regex += "(.*/)?" if rest != match[0] else ".*"
        elif match := re.match(r"\*", rest):
            regex += "[^/]*"
        elif match := re.match(r"\?", rest):
            regex += "[^/]"
        elif match := re.match(r"\[\^?(?:\\.|[^\]\\])+\]", rest, re.DOTALL):
            regex += match[0].replace("[", r"\[").replace(r"\[", "[", 1)
        elif match := re.match(r"\\(.)", rest, re.DOTALL):
            regex += re.escape(match[1])
        else:
            match = re.match(r".", rest, re.DOTALL)
            assert match is not None
            regex += re.escape(match[0])
        rest = rest[match.end() :]
    return regex
