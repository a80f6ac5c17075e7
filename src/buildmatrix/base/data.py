"""Records: msgspec Structs, and dataclasses where only the standard library may be imported.

A Struct is made in 0.02 ms, a frozen dataclass with slots in 1.2 ms, and a command loads hundreds.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any, TypeVar

import msgspec

Record = TypeVar("Record")


def replace(record: Record, /, **changes: Any) -> Record:
    """Return a copy of `record` with some fields changed, as `copy.replace` of Python 3.13 does."""
    if isinstance(record, msgspec.Struct):
        return msgspec.structs.replace(record, **changes)
    return dataclasses.replace(record, **changes)  # type: ignore[type-var]  # the other kind


def is_record(kind: Any) -> bool:
    """Return True for a class of records."""
    return isinstance(kind, type) and (
        issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind)
    )


def field_names(kind: Any) -> tuple[str, ...]:
    """Return the names of a record's arguments, in order."""
    if issubclass(kind, msgspec.Struct):
        return tuple(kind.__struct_fields__)
    return _dataclass_names(kind)


@cache
def _dataclass_names(kind: Any) -> tuple[str, ...]:
    return tuple(item.name for item in dataclasses.fields(kind) if item.init)


def required_names(kind: Any) -> frozenset[str]:
    """Return the names of a Struct's fields without a default."""
    names: tuple[str, ...] = kind.__struct_fields__
    defaults = kind.__struct_defaults__
    known = zip(names[len(names) - len(defaults) :], defaults, strict=True)
    return frozenset(names) - {name for name, value in known if value is not msgspec.NODEFAULT}
