"""One requirement written anew in the file that has it, everything else as it was."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import replace

from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name

from buildmatrix.errors import SpecError
from buildmatrix.locks.environment import read_environment
from buildmatrix.locks.lines import logical_lines
from buildmatrix.parsing import parse_requirement

#: Name, extras, range and the rest (marker, comment) of a requirement, PEP 508.
_PARTS = re.compile(
    r"(?P<lead>\s*)(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?P<extras>\s*\[[^\]]*\])?"
    r"(?P<range>\s*\(?\s*(?:[<>=!~]=?=?[^;#]*?)?\)?)(?P<rest>\s*(?:;.*|\s#.*)?)"
)
_QUOTES = "\"'"
#: An item of a list in YAML, plain or in quotes, with a comment behind it.
_ITEM = re.compile(
    r"""(?P<lead>\s*(?:-\s+)+(?P<quote>["']?))(?P<said>[^"'#\s][^"'#]*?)"""
    r"""(?P<rest>(?P=quote)\s*(?:\s#.*)?)""",
    re.DOTALL,
)


class CannotRewrite(ValueError):
    """A line that cannot name something else; the message says why, and begins with its place."""


def renamed_line(text: str, number: int, name: str, twin: str, only: str | None = None) -> str:
    """A requirements file in which the line `number` asks for `twin` in place of `name`.

    `only` is the range to ask for (`<=3.4.1`) in place of the one that is there. Raises
    `CannotRewrite` for a line that says more than a name, a range and a marker.
    """
    lines = text.splitlines(keepends=True)
    whole = next((line for start, line, _ in logical_lines(text) if start == number), None)
    if whole is None:
        raise CannotRewrite("there is no such line")
    if "--hash" in whole:
        raise CannotRewrite(f"its hashes are those of {name}")
    line = lines[number - 1]
    body = line.rstrip("\r\n")
    if body.endswith("\\"):
        raise CannotRewrite("it goes on in the next line")
    lines[number - 1] = _renamed(body, name, twin, only) + line[len(body) :]
    return "".join(lines)


def renamed_string(
    text: str, number: int, requirement: str, name: str, twin: str, only: str | None = None
) -> str:
    """The same for a TOML file in which the line `number` holds `requirement`."""
    lines = text.split("\n")
    line = lines[number - 1]
    for quote in _QUOTES:
        literal = f"{quote}{requirement}{quote}"
        if line.count(literal) == 1:
            anew = _renamed(requirement, name, twin, only)
            lines[number - 1] = line.replace(literal, f"{quote}{anew}{quote}")
            return "\n".join(lines)
    raise CannotRewrite(f"`{requirement}` is not there as one string")


def renamed_item(text: str, number: int, name: str, twin: str, only: str | None = None) -> str:
    """The same for an environment of conda, whose `pip:` has an item in the line `number`."""
    before = read_environment(text, "").pip
    lines = text.splitlines(keepends=True)
    match = _ITEM.fullmatch(lines[number - 1])
    if match is None:
        raise CannotRewrite("it is not an item of its own on one line")
    anew = _renamed(match["said"], name, twin, only)
    lines[number - 1] = match["lead"] + anew + match["rest"]
    expected = [replace(item, text=anew) if item.line == number else item for item in before]
    after = "".join(lines)
    try:
        is_same = [item.text for item in read_environment(after, "").pip] == [
            i.text for i in expected
        ]
    except SpecError:
        is_same = False
    if not is_same:
        raise CannotRewrite(f"`{anew}` would not be one item there")
    return after


def _renamed(line: str, name: str, twin: str, only: str | None) -> str:
    match = _PARTS.fullmatch(line)
    if match is None or canonicalize_name(match["name"]) != canonicalize_name(name):
        raise CannotRewrite(f"it says more than a name, a range and a marker: `{line.strip()}`")
    ranged = match["range"] if only is None else only
    anew = f"{match['lead']}{twin}{match['extras'] or ''}{ranged}{match['rest']}"
    try:
        requirement = parse_requirement(re.sub(r"(^|\s)#.*$", "", anew).strip())
    except InvalidRequirement as error:
        raise CannotRewrite(f"`{anew.strip()}` would not be a valid requirement") from error
    if canonicalize_name(requirement.name) != canonicalize_name(twin.partition("[")[0]):
        raise CannotRewrite(f"`{anew.strip()}` would not ask for {twin}")
    return anew


def unified(label: str, before: str, after: str) -> str:
    """The difference of a file, as `git apply` and `patch -p1` take it; empty for none."""
    return "".join(_unified(label, before, after))


def _unified(label: str, before: str, after: str) -> Iterator[str]:
    lines = (_lines(before), _lines(after))
    for line in difflib.unified_diff(*lines, f"a/{label}", f"b/{label}"):
        yield line
        if not line.endswith("\n"):
            yield "\n\\ No newline at end of file\n"


def _lines(text: str) -> list[str]:
    """Lines as `patch` counts them: only a line feed ends one."""
    parts = text.split("\n")
    return [*(f"{part}\n" for part in parts[:-1]), *([parts[-1]] if parts[-1] else [])]
