"""Tables with fixed keys: dataclasses whose fields say what may stand there."""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, dataclass
from typing import Any, Generic, Literal, TypeVar, overload

from buildmatrix.spec.hints import did_you_mean
from buildmatrix.spec.kinds import quoted
from buildmatrix.spec.model import Position
from buildmatrix.spec.shape import Entry, Json, Shape, mismatch

T = TypeVar("T")
Default = TypeVar("Default")

Merge = Literal["add", "merge", "replace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Base of the typed tables. Their fields are declared with `key`."""

    #: Where the table begins.
    at: Position


RowT = TypeVar("RowT", bound=Table)


@overload
def key(shape: Shape[T], doc: str, *, optional: bool = False, merge: Merge = "replace") -> T: ...
@overload
def key(
    shape: Shape[T], doc: str, *, default: Default, merge: Merge = "replace"
) -> T | Default: ...
def key(
    shape: Shape[T],
    doc: str,
    *,
    default: object = MISSING,
    optional: bool = False,
    merge: Merge = "replace",
) -> object:
    """Declare one key of a table: the only place where it is described.

    The key is the field's name with hyphens. With neither `default` nor `optional` it is required.

    Args:
        shape: what may stand there.
        doc: one or two sentences; the JSON schema and so the editors show them.
        default: the value where the key is missing.
        optional: where the key is missing, the shape's stand-in is the value: an empty list or
            table.
        merge: what a more special layer of settings does to the value of a more general one.
    """
    metadata = {"shape": shape, "doc": doc, "optional": optional, "merge": merge}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table, as declared."""

    name: str
    field: str
    shape: Shape[object]
    doc: str
    has_default: bool
    optional: bool
    merge: Merge


def keys_of(table: type[Table]) -> tuple[Key, ...]:
    """All keys of a table, in the order of their declaration."""
    return tuple(
        Key(
            name=field.name.replace("_", "-"),
            field=field.name,
            shape=field.metadata["shape"],
            doc=field.metadata["doc"],
            has_default=field.default is not MISSING,
            optional=field.metadata["optional"],
            merge=field.metadata["merge"],
        )
        for field in dataclasses.fields(table)
        if field.metadata
    )


@dataclass(frozen=True, slots=True)
class Row(Generic[RowT]):
    """A table with fixed keys, read into the dataclass that declares them."""

    table: type[RowT]
    example: str = "{ ... }"

    @property
    def what(self) -> str:
        """`a table`."""
        return "a table"

    def read(self, value: object, entry: Entry) -> RowT:
        """The typed table."""
        if not isinstance(value, dict):
            mismatch(value, entry, self)
            return self.stand_in(entry.value)
        keys = {key.name: key for key in keys_of(self.table)}
        found: dict[str, Any] = {}
        for name in [name for name in value if name not in keys]:
            entry.problems.add(
                entry.child(name).key,
                f"unknown key {quoted(name)} in {entry.name}",
                did_you_mean(name, keys, "keys"),
            )
        for name, key in keys.items():
            if name in value:
                found[key.field] = key.shape.read(value[name], entry.child(name))
            elif not key.has_default:
                if not key.optional:
                    entry.problems.add(
                        entry.key,
                        f"{entry.name} has no `{name}`",
                        f"write `{name} = {key.shape.example}`",
                    )
                found[key.field] = key.shape.stand_in(entry.key)
        return self.table(at=entry.key, **found)

    def stand_in(self, at: Position) -> RowT:
        """The table as if it were empty."""
        values = {
            key.field: key.shape.stand_in(at) for key in keys_of(self.table) if not key.has_default
        }
        return self.table(at=at, **values)

    def schema(self) -> Json:
        """An object that allows no other properties."""
        keys = keys_of(self.table)
        schema: Json = {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                key.name: {"description": key.doc, **key.shape.schema()} for key in keys
            },
        }
        if required := [key.name for key in keys if not (key.has_default or key.optional)]:
            schema["required"] = required
        return schema
