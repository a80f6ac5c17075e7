"""Edits of a project's files: TOML entries and requirements change, everything else stays."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name

from buildmatrix.base import toml
from buildmatrix.base.errors import SpecError
from buildmatrix.base.parsing import parse_requirement
from buildmatrix.base.text import split_lines
from buildmatrix.locks.lines import logical_lines
from buildmatrix.locks.requirement_files import read_environment

if TYPE_CHECKING:
    from tomlkit.items import Table


# Additions to TOML


Tree = Mapping[str, Any]


class CannotAmend(ValueError):
    """A program cannot safely add to the file; the message says why."""


def amend_toml(text: str, additions: Tree) -> str:
    """Return `text` with `additions`: tables are merged, lists extended, texts set.

    Raises `CannotAmend` if the result would not mean exactly the old content plus the additions.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        expected = _merge(toml.loads(text), additions)
        document = tomlkit.parse(text)
        _add(document, additions)
        result = tomlkit.dumps(document)
        if toml.loads(result) == expected:
            return result
    except (TOMLKitError, ValueError, TypeError, RecursionError) as error:
        raise CannotAmend(f"it cannot be changed by a program: {error}") from error
    raise CannotAmend("its tables are spread so that a program cannot add to them safely")


def _merge(present: Any, additions: Any) -> Any:
    if isinstance(additions, Mapping):
        if present is not None and not isinstance(present, dict):
            raise TypeError("a table was expected")
        merged = deepcopy(present) if present is not None else {}
        for key, value in additions.items():
            merged[key] = _merge(merged.get(key), value)
        return merged
    if isinstance(additions, list | tuple):
        if present is not None and not isinstance(present, list):
            raise TypeError("an array was expected")
        items = list(present or ())
        return [*items, *(item for item in additions if item not in items)]
    return additions


def _add(node: Any, additions: Tree) -> None:
    for key, value in additions.items():
        if key not in node:
            _append(node, key, value)
        elif isinstance(value, Mapping):
            _add(node[key], value)
        elif isinstance(value, list | tuple):
            for item in value:
                if item not in node[key]:
                    node[key].append(item)
        else:
            node[key] = value


def _append(node: Any, key: str, value: Any) -> None:
    """Add a key behind the last one: text behind that is a comment of the next table."""
    from tomlkit.items import InlineTable, Table

    item = _make_item(value, inside=isinstance(node, Table | InlineTable))
    if not isinstance(node, Table):
        node[key] = item
        return
    tail = _cut_tail(node)
    node.add(key, item)
    for entry in tail:
        node.add(entry)


def _cut_tail(table: Table) -> list[Any]:
    """Take everything behind the first blank line off the end of a table."""
    from tomlkit.items import Whitespace

    body = table.value.body
    end = len(body)
    while end and body[end - 1][0] is None:
        end -= 1
    while end < len(body) and not isinstance(body[end][1], Whitespace):
        end += 1
    tail = [item for _, item in body[end:]]
    del body[end:]
    return tail


def _make_item(value: Any, *, inside: bool) -> Any:
    """Make `{ name = "twin" }` within an existing table, and a table of its own elsewhere."""
    import tomlkit
    from tomlkit.items import SingleKey

    if not isinstance(value, Mapping):
        return tomlkit.item(list(value) if isinstance(value, tuple) else value)
    if inside:
        entries = (
            f"{SingleKey(name).as_string()} = {_make_item(content, inside=True).as_string()}"
            for name, content in value.items()
        )
        return tomlkit.value(f"{{ {', '.join(entries)} }}")
    table = tomlkit.table(
        is_super_table=all(isinstance(content, Mapping) for content in value.values())
    )
    for name, content in value.items():
        table.add(name, _make_item(content, inside=not isinstance(content, Mapping)))
    return table


# Replacement of one requirement


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
    """A line that cannot name another distribution; the message begins with its place."""


def rename_in_line(text: str, number: int, name: str, twin: str, only: str | None = None) -> str:
    """Return a requirements file in which the line `number` asks for `twin` in place of `name`.

    `only` is the range to ask for (`<=3.4.1`) in place of the present one. Raises `CannotRewrite`
    for a line with more than a name, a range and a marker.
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
        raise CannotRewrite("it continues on the next line")
    lines[number - 1] = _rename(body, name, twin, only) + line[len(body) :]
    return "".join(lines)


def rename_in_toml(
    text: str, number: int, requirement: str, name: str, twin: str, only: str | None = None
) -> str:
    """Return a TOML file with `twin` in the line `number`, which has `requirement`."""
    lines = text.split("\n")
    line = lines[number - 1]
    for quote in _QUOTES:
        literal = f"{quote}{requirement}{quote}"
        if line.count(literal) == 1:
            anew = _rename(requirement, name, twin, only)
            lines[number - 1] = line.replace(literal, f"{quote}{anew}{quote}")
            return "\n".join(lines)
    raise CannotRewrite(f"`{requirement}` is not in the file as one string")


def rename_in_environment(
    text: str, number: int, name: str, twin: str, only: str | None = None
) -> str:
    """Return an environment of conda with `twin` in the item of `pip:` in the line `number`."""
    before = read_environment(text, "").pip
    lines = text.splitlines(keepends=True)
    match = _ITEM.fullmatch(lines[number - 1])
    if match is None:
        raise CannotRewrite("it is not an item of its own on one line")
    anew = _rename(match["said"], name, twin, only)
    lines[number - 1] = match["lead"] + anew + match["rest"]
    expected = [anew if item.line == number else item.text for item in before]
    after = "".join(lines)
    with suppress(SpecError):
        if [item.text for item in read_environment(after, "").pip] == expected:
            return after
    raise CannotRewrite(f"`{anew}` would not be one list item")


def _rename(line: str, name: str, twin: str, only: str | None) -> str:
    match = _PARTS.fullmatch(line)
    if match is None or canonicalize_name(match["name"]) != canonicalize_name(name):
        raise CannotRewrite(f"it has more than a name, a range and a marker: `{line.strip()}`")
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
    """Return the difference of a file for `git apply` and `patch -p1`; empty if there is none."""
    lines = difflib.unified_diff(
        split_lines(before), split_lines(after), f"a/{label}", f"b/{label}"
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
