"""Quoting of values and patterns in a Dockerfile and its `.dockerignore`.

Every `{{ value }}` of a template must be a plain word, which `plain` checks, or go through a
filter. Each filter raises `Unquotable` for values that its place cannot hold, above all line
breaks: in a Dockerfile a new line is a new instruction.

Source: the Dockerfile reference (https://docs.docker.com/reference/dockerfile/), and
frontend/dockerfile/{parser,shell} of moby/buildkit, v0.25.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from jinja2 import Undefined
from markupsafe import Markup

from buildmatrix.base.errors import Problem, SpecError

# Filters. Grammar: https://docs.docker.com/reference/dockerfile/ (escape character `\`, `$`
# expansion in ENV, LABEL, COPY and WORKDIR, exec form as JSON).


_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_PLAIN = re.compile(r"[A-Za-z0-9._/:@+=,~^-]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")
#: Reference grammar of the distribution project, a little wider in the registry's part.
_IMAGE = re.compile(
    r"[a-z0-9][A-Za-z0-9.:_/-]*(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
#: A mount option is CSV inside a flag inside a line that the shell lexer splits.
_MOUNT_PATH = re.compile(r"[A-Za-z0-9._/+@-]+")
#: Package manager → kind of its packages, and their names on its command line. Characters that a
#: shell would read are in none of them.
_SYSTEM_PACKAGES = {
    "apt": (
        "a Debian package",
        re.compile(r"[a-z0-9][a-z0-9+.-]*(?::[a-z0-9]+)?(?:=[A-Za-z0-9.+:~-]+)?"),
    ),
    "dnf": (
        "an RPM package, `name` or `name-version`",
        re.compile(r"[A-Za-z0-9][A-Za-z0-9+._^~:-]*"),
    ),
    "zypper": (
        "an RPM package, `name` or `name=version`",
        re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*(?:=[A-Za-z0-9+._^~:-]+)?"),
    ),
}


class Unquotable(ValueError):
    """A value that cannot be in its place; the text says which and why."""


def plain(value: object) -> object:
    """Finalize a value without a filter: let plain words through."""
    if isinstance(value, Markup | Undefined):
        return value
    return _mark_finished(_check(_PLAIN, str(value), "has characters that need a quoting filter"))


def comment(value: str) -> Markup:
    """Quote text for a `#` line: line ends become spaces."""
    return _mark_finished(_CONTROL.sub(" ", value))


def image(value: str) -> Markup:
    """Quote an image reference behind FROM."""
    return _mark_finished(_check(_IMAGE, value, "is not an image reference"))


def quoted(value: str) -> Markup:
    """Quote a value of ENV, LABEL or WORKDIR with double quotes; nothing in it is expanded."""
    _no_control(value)
    return _mark_finished('"' + re.sub(r'([\\"$])', r"\\\1", value) + '"')


def env(values: dict[str, str]) -> Markup:
    """Quote `NAME="value"` pairs of one ENV instruction."""
    return _pairs({_check(_NAME, k, "is not a variable name"): v for k, v in values.items()})


def label(values: dict[str, str]) -> Markup:
    """Quote `key="value"` pairs of one LABEL instruction."""
    return _pairs({_check(_LABEL, k, "is not a label key"): v for k, v in values.items()})


def json_array(values: Iterable[str]) -> Markup:
    """Write the exec form of CMD and ENTRYPOINT, in which nothing is expanded."""
    return _mark_finished(json.dumps([_no_null(value) for value in values]))


def paths(source: str, destination: str) -> Markup:
    """Write the JSON form of COPY; variables, quotes and `[` of the source are literal.

    BuildKit has no escape for `*`, `?` or backslash: a source with one is refused.
    """
    if re.search(r"[*?\\]", source):
        raise Unquotable(
            f"`{_shown(source)}` has a wildcard or a backslash; write the path of a file or folder"
        )
    words = [_no_control(source).replace("[", "[[]"), _no_control(destination)]
    return _mark_finished(json.dumps([re.sub(r"([\\\"'$])", r"\\\1", word) for word in words]))


def shell(value: str | Iterable[str]) -> Markup:
    """Quote one word, or a list of words, of a command behind RUN."""
    words = [value] if isinstance(value, str) else list(value)
    return _mark_finished(" ".join(shlex.quote(_no_control(word)) for word in words))


def packages(values: Iterable[str], manager: str = "apt") -> Markup:
    """Check names of packages, `libgomp1` or `libnccl2=2.27.3-1+cuda12.8`, as shell words.

    `manager` is "apt", "dnf" or "zypper".
    """
    kind, pattern = _SYSTEM_PACKAGES[manager]
    why = f"is not the name of {kind}"
    return _mark_finished(" ".join(_check(pattern, value, why) for value in values))


def mount_path(value: str) -> Markup:
    """Check a path in a `--mount=` option."""
    return _mark_finished(
        _check(_MOUNT_PATH, value, "can hold only letters, digits and . _ / + @ -")
    )


def ignore_pattern(value: str) -> str:
    """Escape a path for a line of a `.dockerignore`, with its wildcards taken literally."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", _no_control(value))


FILTERS = {
    function.__name__: function
    for function in (
        comment,
        env,
        image,
        json_array,
        label,
        mount_path,
        packages,
        paths,
        quoted,
        shell,
    )
}


def _pairs(values: dict[str, str]) -> Markup:
    pairs = [f"{key}={quoted(value)}" for key, value in values.items()]
    return _mark_finished(" \\\n    ".join(pairs))


def _mark_finished(text: str) -> Markup:
    """Mark the result of a filter, so that `plain` accepts it."""
    return Markup(text)  # noqa: S704 - this module is where values are made harmless


def _check(pattern: re.Pattern[str], value: str, why: str) -> str:
    if pattern.fullmatch(value) is None:
        raise Unquotable(f"`{_shown(value)}` {why}")
    return value


def _no_control(value: str) -> str:
    if _CONTROL.search(value):
        raise Unquotable(f"`{_shown(value)}` has a line break or another control character")
    return value


def _no_null(value: str) -> str:
    if "\x00" in value:
        raise Unquotable(f"`{_shown(value)}` has a null character")
    return value


def _shown(value: str) -> str:
    text = comment(value)
    return text if len(text) <= 80 else text[:77] + "..."


# Files that never reach an image.
#
# Patterns follow the reference (https://docs.docker.com/build/concepts/context/#dockerignore-files)
# and github.com/moby/patternmatcher: relative to the context, the last match decides, and a matched
# folder includes everything in it.


#: The project's own rules. BuildKit reads them only if a Dockerfile has no file of its own.
PROJECT_FILE = ".dockerignore"
#: Default folder of generated files, and everything else that buildmatrix writes.
FOLDER = ".buildmatrix"
#: Never useful in an image.
_JUNK = ("**/.git", "**/__pycache__", "**/*.pyc", f"**/{FOLDER}")
_GENERATED = ("docker-bake.json", "*/Dockerfile", "*/Dockerfile.dockerignore", "scan/scan.pyz")


def rules(root: Path, output: str) -> tuple[str, ...]:
    """Return patterns for the context `root`: the project's own, then files that are never useful.

    `output` is the folder of generated files. Raises `SpecError` if the project's rules cannot be
    read.
    """
    folder = posixpath.normpath(output)
    generated: tuple[str, ...] = ()
    if FOLDER not in folder.split("/"):
        prefix = "" if folder == "." else f"{ignore_pattern(folder)}/"
        generated = tuple(prefix + name for name in _GENERATED)
    return (*_project_rules(root), *_JUNK, *generated)


class Ignored:
    """Matcher of ignored paths of a context."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._rules = [rule for rule in map(_rule, patterns) if rule is not None]
        #: True if something inside an ignored folder may still be in the context.
        self.has_exceptions = any(exception for _, exception in self._rules)

    def __call__(self, path: str) -> bool:
        """Return True if `path`, relative to the context, or one of its folders is ignored."""
        parts = path.split("/")
        names = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
        for pattern, exception in reversed(self._rules):
            if any(pattern.fullmatch(name) for name in names):
                return not exception
        return False


def _project_rules(root: Path) -> list[str]:
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
    """Parse a pattern, and its exception mark; None for a line that matches nothing."""
    text = line.strip()
    exception = text.startswith("!")
    text = text[exception:].strip()
    text = posixpath.normpath(text).lstrip("/") if text else ""
    try:
        return (re.compile(_regex(text), re.DOTALL), exception) if text else None
    except re.error:
        return None  # BuildKit itself refuses it.


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
