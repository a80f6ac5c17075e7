"""Tables with fixed keys: classes whose fields declare the allowed values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, TypeVar, cast, dataclass_transform

from buildmatrix.matrix.document import did_you_mean, quoted
from buildmatrix.matrix.model import Position
from buildmatrix.matrix.shapes import Json, Shape, SpecNode

T = TypeVar("T")

Merge = Literal["add", "merge", "replace"]
#: Requirement of a key; if it is missing: None, or the shape's stand-in (an empty list or table).
Absent = Literal["wrong", "none", "empty"]
Default = str | int | list[str] | None


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table, as declared."""

    name: str
    field: str
    shape: Shape[object]
    #: One or two sentences; the JSON schema and so the editors show them.
    doc: str
    absent: Absent
    #: Effect of a more specific layer of settings on the value of a more general one.
    merge: Merge = "replace"
    #: Default as a TOML value; None if it cannot be written in the file. Then `otherwise` describes
    #: it.
    default: Default = None
    otherwise: str = ""


# What a class body is given for a field is a value of the field's type to type checkers: hence the
# casts.


def key(shape: Shape[T], doc: str) -> T:
    """Declare a required key, and its only description."""
    return cast(T, partial(Key, shape=shape, doc=doc, absent="wrong"))


def maybe(
    shape: Shape[T],
    doc: str,
    *,
    default: Default = None,
    otherwise: str = "none",
    merge: Merge = "replace",
) -> T | None:
    """Declare a key whose value is None if it is missing.

    `default` is then used in its place; `otherwise` describes it if it cannot be written in TOML.
    """
    declared = partial(Key, shape=shape, doc=doc, absent="none")
    return cast(T, partial(declared, merge=merge, default=default, otherwise=otherwise))


def group(shape: Shape[T], doc: str, *, otherwise: str = "none") -> T:
    """Declare a list or a table that is empty if it is missing.

    `otherwise` describes the effect.
    """
    return cast(T, partial(Key, shape=shape, doc=doc, absent="empty", otherwise=otherwise))


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(key, maybe, group)
)
class _Declared:
    """Collects the keys that a class declares. A dataclass takes fifty times as long to make."""

    #: All keys, in the order of their declaration.
    keys: ClassVar[tuple[Key, ...]] = ()

    def __init_subclass__(cls) -> None:
        declared = [item for item in vars(cls).items() if isinstance(item[1], partial)]
        made = (make(name=name.replace("_", "-"), field=name) for name, make in declared)
        cls.keys = (*cls.keys, *made)

    def __init__(self, **values: object) -> None:
        vars(self).update(values)


class Table(_Declared):
    """Base of the typed tables. Their fields are declared with `key`, `maybe` and `group`."""

    #: Start of the table.
    at: Position
    #: Source of values that this table lacks, in words for editors, if it is another table. Then
    #: the defaults of keys are not those of this table.
    inherited: ClassVar[str] = ""


TableT = TypeVar("TableT", bound=Table)


def row(table: type[TableT], example: str = "{ ... }") -> Shape[TableT]:
    """Make the shape of a table with fixed keys, read into the class that declares them."""

    def read(value: object, node: SpecNode) -> TableT:
        if not isinstance(value, dict):
            node.mismatch(value, "a table", example)
            return stand_in(node.value)
        keys = {key.name: key for key in table.keys}
        for name in [name for name in value if name not in keys]:
            node.problems.add(
                node.child(name).key,
                f"unknown key {quoted(name)} in {node.name}",
                did_you_mean(name, keys, "keys"),
            )
        values: dict[str, object] = {}
        for name, key in keys.items():
            if name in value:
                values[key.field] = key.shape.read(value[name], node.child(name))
                continue
            values[key.field] = _missing_value(key, node.key)
            if key.absent == "wrong":
                hint = f"write `{name} = {key.shape.example}`"
                node.problems.add(node.key, f"{node.name} has no `{name}`", hint)
        return table(at=node.key, **values)

    def stand_in(at: Position) -> TableT:
        return table(at=at, **{key.field: _missing_value(key, at) for key in table.keys})

    def schema() -> Json:
        keys = table.keys
        schema: Json = {
            "type": "object",
            "additionalProperties": False,
            "properties": {key.name: _schema(key, table.inherited) for key in keys},
        }
        if required := [key.name for key in keys if key.absent == "wrong"]:
            schema["required"] = required
        return schema

    return Shape("a table", example, read, stand_in, schema)


def _schema(key: Key, inherited: str) -> Json:
    """Return the schema of one key, with everything that an editor shows of it."""
    doc, schema = key.doc, key.shape.schema()
    if key.absent == "none" and inherited:
        doc += f" Default: {inherited}."
    elif key.default is not None:
        # A single string has no quotes in a sentence.
        is_text = isinstance(key.default, str)
        doc += f" Default: `{key.default if is_text else json.dumps(key.default)}`."
        schema["default"] = key.default
    elif key.absent != "wrong" and not (key.otherwise == "none" and "properties" in schema):
        # The keys of a table describe their own defaults.
        doc += f" Default: {key.otherwise}."
    # Editors show the text of the matching alternative.
    for alternative in _alternatives(schema):
        alternative["description"] = doc
    return {"description": doc, **schema}


def _alternatives(schema: Json) -> Iterator[Json]:
    listed = schema.get("anyOf")
    for alternative in listed if isinstance(listed, list) else ():
        yield alternative
        yield from _alternatives(alternative)


def _missing_value(key: Key, at: Position) -> object:
    """Return the value of a missing key."""
    return None if key.absent == "none" else key.shape.stand_in(at)
