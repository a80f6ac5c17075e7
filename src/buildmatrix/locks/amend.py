"""Entries added to a TOML file, everything else of it as it was, comments included."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from buildmatrix import toml

if TYPE_CHECKING:
    from tomlkit.items import Table

Tree = Mapping[str, Any]


class CannotAmend(ValueError):
    """The file says it in a way that cannot be added to; the message says which."""


def amended(text: str, additions: Tree) -> str:
    """`text` with `additions` in it: tables are merged, lists are added to, texts are set.

    Raises `CannotAmend` where the outcome would not say exactly what the file said before and what
    is added now.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        expected = _merged(toml.loads(text), additions)
        document = tomlkit.parse(text)
        _add(document, additions)
        result = tomlkit.dumps(document)
        if toml.loads(result) == expected:
            return result
    except (TOMLKitError, ValueError, TypeError, RecursionError) as error:
        raise CannotAmend(f"it cannot be changed by a program: {error}") from error
    raise CannotAmend("its tables are spread so that a program cannot add to them safely")


def _merged(present: Any, additions: Any) -> Any:
    if isinstance(additions, Mapping):
        if present is not None and not isinstance(present, dict):
            raise TypeError("what has to be a table is not")
        merged = deepcopy(present) if present is not None else {}
        for key, value in additions.items():
            merged[key] = _merged(merged.get(key), value)
        return merged
    if isinstance(additions, list | tuple):
        if present is not None and not isinstance(present, list):
            raise TypeError("what has to be an array is not")
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
    """Add a key behind the last one: what follows that is a comment of the next table."""
    from tomlkit.items import InlineTable, Table

    item = _item(value, inside=isinstance(node, Table | InlineTable))
    if not isinstance(node, Table):
        node[key] = item
        return
    tail = _tail(node)
    node.add(key, item)
    for entry in tail:
        node.add(entry)


def _tail(table: Table) -> list[Any]:
    """Take what follows the first blank line off the end of a table."""
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


def _item(value: Any, *, inside: bool) -> Any:
    """`{ name = "twin" }` within a table that is there, and a table of its own elsewhere."""
    import tomlkit
    from tomlkit.items import SingleKey

    if not isinstance(value, Mapping):
        return tomlkit.item(list(value) if isinstance(value, tuple) else value)
    if inside:
        entries = (
            f"{SingleKey(name).as_string()} = {_item(content, inside=True).as_string()}"
            for name, content in value.items()
        )
        return tomlkit.value(f"{{ {', '.join(entries)} }}")
    table = tomlkit.table(
        is_super_table=all(isinstance(content, Mapping) for content in value.values())
    )
    for name, content in value.items():
        table.add(name, _item(content, inside=not isinstance(content, Mapping)))
    return table
