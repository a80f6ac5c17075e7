"""Strict parser for untrusted JSON: refuses documents that readers may take differently."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, inspect

from buildmatrix.base.threads import prepare_type

Value = TypeVar("Value")

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


def decode_json(data: bytes, kind: type[Value], *, has_numbers_as_text: bool = False) -> Value:
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
