"""Inventory to JSON. Standard library only; `buildmatrix.store` reads and validates it.

Fields with their default value are omitted: most sections, literals and links are many and small.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any

from buildmatrix.inventory.model import Inventory


def encode(inventory: Inventory) -> bytes:
    """Encode as UTF-8 JSON, deterministically; field names are those of the model."""
    return b"{" + b",".join(_encode_members(inventory)) + b"}"


def _encode_members(inventory: Inventory) -> Iterator[bytes]:
    """Yield the fields, entry by entry: plain values take ten times the memory of their text."""
    # The schema is written although it is the default: readers check it first.
    yield b'"schema":' + _encode_value(inventory.schema)
    for name, default in _defaults(Inventory):
        value = getattr(inventory, name)
        if name == "schema" or value == default:
            continue
        if isinstance(value, tuple):
            text = b"[" + b",".join(_encode_value(item) for item in value) + b"]"
        else:
            text = _encode_value(value)
        yield _encode_value(name) + b":" + text


def _encode_value(value: object) -> bytes:
    return json.dumps(_to_plain(value), ensure_ascii=False, separators=(",", ":")).encode()


def _to_plain(value: object) -> object:
    if isinstance(value, str):
        # A lone surrogate, from bytes that are not text, is invalid JSON for strict readers.
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, tuple):
        return [_to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {_to_plain(key): _to_plain(item) for key, item in value.items()}
    return _fields_of(value)


def _fields_of(value: object) -> dict[str, object]:
    return {
        name: _to_plain(item)
        for name, default in _defaults(type(value))  # type: ignore[arg-type]  # a class is hashable
        if (item := getattr(value, name)) != default
    }


@cache
def _defaults(dataclass: Any) -> tuple[tuple[str, object], ...]:
    """Return a dataclass's fields with their defaults; MISSING, which equals nothing, for none."""
    return tuple(
        (
            field.name,
            field.default_factory() if field.default_factory is not MISSING else field.default,
        )
        for field in fields(dataclass)
    )
