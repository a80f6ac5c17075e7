"""Strict parsers for untrusted JSON and YAML: refuse what readers may take differently."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, inspect

from buildmatrix.base.threads import prepare_type

Document = TypeVar("Document")

# JSON


#: Brackets within brackets; documents of tools have ten.
_DEEPEST_JSON = 200
#: How msgspec ends a sentence about a malformed document.
_BYTE = re.compile(r"\(byte ([0-9]+)\)\Z")
_CONTAINERS = (dict, list)


class JsonError(json.JSONDecodeError):
    """A reason to refuse a document, without the line that the base class adds to its text."""

    def __init__(self, why: str, read: bytes = b"") -> None:
        super().__init__(why, read.decode("latin-1"), len(read))
        self.args = (why,)


def parse_json(text: str | bytes) -> Any:
    """Read a JSON document that every reader takes for the same value.

    Raises `json.JSONDecodeError` where readers differ: a key that comes twice (Go and Python take
    the last one), bytes that are not UTF-8, halves of surrogate pairs, a byte order mark, numbers
    beyond 64 bits, and brackets nested deeper than in any real document.
    """
    try:
        data = text.encode() if isinstance(text, str) else text
        value = msgspec.json.decode(data)
        again = msgspec.json.encode(value)
        msgspec.msgpack.encode(value)  # has no integers beyond 64 bits
    except OverflowError:
        raise JsonError("a number in it has more than 64 bits") from None
    except RecursionError:
        raise JsonError("it nests too deeply") from None
    except ValueError as error:
        place = _BYTE.search(str(error))
        raise JsonError(str(error), data[: int(place[1])] if place else b"") from None
    # A repeated key is decoded once, so the document written again has fewer quotes.
    if data.count(b'"') != again.count(b'"') or b"\\u0022" in data:
        json.loads(data, object_pairs_hook=_check_repetition)
    if data.count(b"[") + data.count(b"{") > _DEEPEST_JSON:
        _check_depth(value)
    return value


def decode_json(
    data: bytes, kind: type[Document], *, has_numbers_as_text: bool = False
) -> Document:
    """Read a JSON document of a type. Raises `ValueError`; see `parse_json`, `check_spelling`."""
    check_spelling(parse_json(data), kind)
    return msgspec.json.decode(data, type=prepare_type(kind), strict=not has_numbers_as_text)


def check_spelling(value: Any, kind: Any) -> None:
    """Raise `ValueError` where a key differs from a field of `kind` in upper and lower case only.

    Go's decoder takes such a key for the field, and the last one wins.
    """
    _check_spelling(value, _shape(kind))


class _Shape(Struct):
    """The objects of a type: their fields by folded name, or the type of their free keys."""

    fields: dict[str, tuple[str, _Shape]]
    items: _Shape | None = None


@cache
def _shape(kind: Any) -> _Shape:
    known: dict[Any, _Shape] = {}

    def of(info: inspect.Type) -> _Shape:
        shape = _Shape({})
        if isinstance(info, inspect.UnionType):
            # JSON has one type of object and one of arrays: a union has one struct at most.
            shapes = [of(part) for part in info.types]
            return next((part for part in shapes if part.fields or part.items), shape)
        if isinstance(info, inspect.DictType):
            shape.items = of(info.value_type)
        elif isinstance(info, inspect.ListType | inspect.VarTupleType | inspect.SetType):
            shape.items = of(info.item_type)
        elif isinstance(info, inspect.StructType | inspect.DataclassType):
            if info.cls in known:
                return known[info.cls]
            known[info.cls] = shape
            for field in info.fields:
                shape.fields[field.encode_name.casefold()] = (field.encode_name, of(field.type))
        return shape

    return of(inspect.type_info(prepare_type(kind)))


def _check_spelling(value: Any, shape: _Shape) -> None:
    if shape.items is not None:
        parts = value.values() if isinstance(value, dict) else value
        if (shape.items.fields or shape.items.items) and isinstance(value, dict | list):
            for part in parts:
                _check_spelling(part, shape.items)
    elif shape.fields and isinstance(value, dict):
        for key, part in value.items():
            field = shape.fields.get(key.casefold())
            if field is None:
                continue
            if key != field[0]:
                raise ValueError(f"its key {key[:100]!r} differs from {field[0]!r} in case only")
            if isinstance(part, dict | list):
                _check_spelling(part, field[1])


def _check_repetition(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise JsonError(f"the key {key[:100]!r} comes twice in it")
        seen.add(key)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_DEEPEST_JSON):
        level = [
            part
            for item in level
            for part in (item.values() if type(item) is dict else item)
            if type(part) in _CONTAINERS
        ]
        if not level:
            return
    raise JsonError("it nests too deeply")


# YAML that a tool wrote: lists, tables and text, with the lines of tables.
#
# Events are read, and no objects are made by tags. Refused is what two readers may take differently
# or what makes a small text large: aliases, tags, a key that comes twice, `<<`, several documents.
# Tools that write locks use none of these.


#: Lists and tables within one another; locks have seven.
_DEEPEST = 30
#: Texts, lists and tables; a lock of 5,000 packages has 150,000.
MOST_VALUES = 1_000_000
#: Spellings of no value, outside of quotes.
_NULL = frozenset({"", "~", "null", "Null", "NULL"})


class YamlError(ValueError):
    """A reason to refuse a document, with its line and column, from 1; 0 if unknown."""

    def __init__(self, why: str, line: int = 0, column: int = 0) -> None:
        super().__init__(why)
        self.line = line
        self.column = column


class Table(dict[str, "Value"]):
    """A table, and the line where it begins, from 1."""

    line: int = 0


Value = Table | list["Value"] | str | None


def parse_yaml(text: str) -> Value:
    """Return the one document in `text`; all scalars are text. Raises `YamlError`."""
    import yaml

    loader: Any = yaml.CBaseLoader if yaml.__with_libyaml__ else yaml.BaseLoader
    try:
        with yaml_errors():
            return _build(yaml.parse(text, Loader=loader))
    except RecursionError as error:
        raise YamlError("it nests too deeply") from error


@contextmanager
def yaml_errors() -> Iterator[None]:
    """Raise `YamlError` for what PyYAML raises of a text that is not YAML."""
    import yaml

    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
        raise YamlError(str(error.problem or error.context), *place) from error
    except YamlError:
        raise
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # Characters that YAML does not have, and numbers in escapes and in `%YAML`.
        raise YamlError(str(error).splitlines()[0]) from error


def _build(events: Iterable[Any]) -> Value:
    """Build the document of a stream of events."""
    from yaml import events as kinds

    root: list[Value] = []
    above: list[Table | list[Value]] = [root]
    keys: list[str | None] = [None]
    values = 0
    for event in events:
        if isinstance(event, (kinds.MappingEndEvent, kinds.SequenceEndEvent)):
            above.pop()
            keys.pop()
            continue
        if not isinstance(event, kinds.NodeEvent):
            continue
        node: Any = event
        mark = node.start_mark
        line, column = mark.line + 1, mark.column + 1
        values += 1
        if values > MOST_VALUES:
            raise YamlError(f"it has more than {MOST_VALUES:,} values", line, column)
        if len(above) > _DEEPEST:
            raise YamlError("it nests too deeply", line, column)
        if isinstance(event, kinds.AliasEvent) or node.anchor is not None:
            raise YamlError("anchors and aliases (`&`, `*`) are not supported", line, column)
        if node.tag is not None:
            raise YamlError(f"tags (`{node.tag[:80]}`) are not supported", line, column)
        value: Value
        if isinstance(event, kinds.ScalarEvent):
            value = None if node.implicit[0] and node.value in _NULL else node.value
        elif isinstance(event, kinds.MappingStartEvent):
            value = Table()
            value.line = line
        else:
            value = []
        parent = above[-1]
        if isinstance(parent, list):
            if parent is root and root:
                raise YamlError("there is more than one document", line, column)
            parent.append(value)
        elif keys[-1] is None:
            # A key: of a list or a table, readers make different things.
            if not isinstance(value, str) or value == "<<":
                raise YamlError("a key is not a text", line, column)
            if value in parent:
                raise YamlError(f"the key `{value[:80]}` comes twice", line, column)
            keys[-1] = value
            continue
        else:
            parent[keys[-1]], keys[-1] = value, None
        if isinstance(value, (Table, list)):
            above.append(value)
            keys.append(None)
    return root[0] if root else None
