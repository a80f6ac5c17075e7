"""Inventory → JSON. Standard library only; `buildmatrix.store` reads it back and checks it.

Fields that have their default value are left out: most sections, literals and links are many and
small.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any

from buildmatrix.inventory.model import Inventory


def encode(inventory: Inventory) -> bytes:
    """UTF-8 JSON, the same bytes for the same inventory; field names are those of the model."""
    return b"{" + b",".join(_members(inventory)) + b"}"


def _members(inventory: Inventory) -> Iterator[bytes]:
    """The fields, entry by entry: plain values take ten times the room of their text."""
    # The schema is written although it is the default: a reader looks at it first.
    yield b'"schema":' + _text(inventory.schema)
    for name, default in _defaults(Inventory):
        value = getattr(inventory, name)
        if name == "schema" or value == default:
            continue
        if isinstance(value, tuple):
            text = b"[" + b",".join(_text(item) for item in value) + b"]"
        else:
            text = _text(value)
        yield _text(name) + b":" + text


def _text(value: object) -> bytes:
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":")).encode()


def _plain(value: object) -> object:
    if isinstance(value, str):
        # A lone surrogate, from bytes that are no text, is no valid JSON for strict readers.
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return _fields_of(value)


def _fields_of(value: object) -> dict[str, object]:
    return {
        name: _plain(item)
        for name, default in _defaults(type(value))  # type: ignore[arg-type]  # a class is hashable
        if (item := getattr(value, name)) != default
    }


@cache
def _defaults(dataclass: Any) -> tuple[tuple[str, object], ...]:
    """Fields of a dataclass with their defaults; MISSING, which nothing equals, for none."""
    return tuple(
        (
            field.name,
            field.default_factory() if field.default_factory is not MISSING else field.default,
        )
        for field in fields(dataclass)
    )
