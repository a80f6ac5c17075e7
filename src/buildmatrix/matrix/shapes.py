"""Shapes: the values that a place of a TOML document allows, and their conversion.

A shape reads, describes itself as JSON schema, and has the example that messages quote. This module
has those of strings, numbers, dates, lists and tables whose keys the user chooses; `tables.row` has
those of tables with fixed keys. `keys` combines them into the table of all keys; the loader and the
schema both come from that table.

Reading never stops at a problem: it is noted, and a stand-in takes its place, so that the rest of
the file can still be checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import date, datetime
from functools import partial
from typing import ClassVar, Generic, Literal, TypeVar, cast, dataclass_transform

from msgspec import Struct

from buildmatrix.matrix.document import (
    Document,
    Float,
    KeyPath,
    Kind,
    Problems,
    did_you_mean,
    quoted,
    toml_string,
)
from buildmatrix.matrix.model import Position

T = TypeVar("T")
First = TypeVar("First")
Second = TypeVar("Second")
T_co = TypeVar("T_co", covariant=True)
Json = dict[str, object]

#: Elements of one list, and entries of one table.
MAX_ENTRIES = 500

_TEMPLATE = Kind("a text with placeholders", "{id}", limit=4096)
#: TOML's names of the types of values.
_TYPES: dict[type, str] = {
    str: "a string",
    bool: "a boolean",
    int: "a whole number",
    Float: "a number",
    list: "a list",
    dict: "a table",
}


class SpecNode(Struct, frozen=True):
    """One entry of a document, and the collector of its problems."""

    document: Document
    problems: Problems
    path: KeyPath = ()

    def child(self, part: str | int) -> SpecNode:
        """Return the entry of a key, or of an element."""
        return SpecNode(self.document, self.problems, (*self.path, part))

    @property
    def key(self) -> Position:
        """Position of its key."""
        return self.document.key(self.path)

    @property
    def value(self) -> Position:
        """Position of its value."""
        return self.document.value(self.path)

    @property
    def name(self) -> str:
        """Path as a user would write it: `backend.cuda.base[0].when`."""
        name = ""
        for part in self.path:
            dot = "." if name else ""
            name += f"[{part}]" if isinstance(part, int) else f"{dot}{part}"
        return quoted(name) if name else "the file"

    def problem(self, message: str, hint: str | None = None) -> None:
        """Note a problem of the value."""
        self.problems.add(self.value, message, hint)

    def mismatch(self, value: object, noun: str, instead: str) -> None:
        """Note that `value` has another TOML type than `noun`; `instead` is the suggestion."""
        found = _TYPES.get(type(value), "a date or a time")
        self.problem(f"{self.name} must be {noun}, but it is {found}", f"write `{instead}`")


class SourceText(Struct, frozen=True):
    """A string of a document. `kind` is checked again after placeholders are filled in."""

    value: str
    at: Position
    kind: Kind
    #: False for the stand-in of a string that was missing or wrong.
    sound: bool = True


class Shape(Struct, Generic[T_co], frozen=True):
    """The values that a place allows."""

    #: With its article: `a list of strings`.
    noun: str
    #: As TOML.
    example: str
    #: Converts a parsed value; notes problems and falls back to the stand-in.
    read: Callable[[object, SpecNode], T_co]
    #: Replaces a missing or wrong value.
    stand_in: Callable[[Position], T_co]
    #: The same as JSON schema, draft 7.
    schema: Callable[[], Json]
    #: True for a list or a table that a more specific layer can add to.
    extensible: bool = False


def text(kind: Kind, *, template: bool = False) -> Shape[SourceText]:
    """Make the shape of a string; with `template`, it may have placeholders."""

    def read(value: object, node: SpecNode) -> SourceText:
        if not isinstance(value, str):
            node.mismatch(value, "a string", _in_quotes(value, kind) or f'"{kind.example}"')
            return stand_in(node.value)
        # Text around placeholders is checked after they are filled in.
        grammar = _TEMPLATE if template and "{" in value else kind
        if complaint := grammar.complaint(value):
            node.problem(f"{node.name} {quoted(value)} {complaint}")
            return stand_in(node.value)
        return SourceText(value, node.value, kind)

    def stand_in(at: Position) -> SourceText:
        return SourceText("", at, kind, sound=False)

    def schema() -> Json:
        if kind.choices:
            return {"type": "string", "enum": list(kind.choices)}
        schema: Json = {"type": "string", "examples": [kind.example]}
        if kind.pattern:
            # A string with a placeholder can only be checked once it is filled in.
            alternative = r"|.*\{.*" if template else ""
            schema["pattern"] = f"^(?:{kind.pattern}{alternative})$"
        elif not kind.may_be_empty:
            schema["minLength"] = 1
        return schema

    return Shape("a string", f'"{kind.example}"', read, stand_in, schema)


def _in_quotes(value: object, kind: Kind) -> str | None:
    """Return a number in quotes, if that is valid."""
    if isinstance(value, Float):
        number = value.written
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**9:
        number = str(value)
    else:
        return None
    return None if kind.complaint(number) else f'"{number}"'


def whole(low: int, high: int, example: str) -> Shape[int]:
    """Make the shape of a whole number between two bounds."""
    noun = f"the number {low}" if low == high else f"a whole number from {low} to {high}"

    def read(value: object, node: SpecNode) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            node.mismatch(value, noun, example)
        elif not low <= value <= high:
            node.problem(f"{node.name} must be {noun}", f"write `{example}`")
        else:
            return value
        return low

    def schema() -> Json:
        return {"type": "integer", "minimum": low, "maximum": high}

    return Shape(noun, example, read, lambda _: low, schema)


def flag() -> Shape[bool]:
    """Make the shape of `true` or `false`."""
    noun = "true or false"

    def read(value: object, node: SpecNode) -> bool:
        if not isinstance(value, bool):
            node.mismatch(value, noun, "true")
        return value is True

    return Shape(noun, "true", read, lambda _: False, lambda: {"type": "boolean"})


def day() -> Shape[date]:
    """Make the shape of a TOML date. Editors hand it to the schema as a string."""
    noun, example = "a date", "2027-01-31"

    def read(value: object, node: SpecNode) -> date:
        if isinstance(value, date) and not isinstance(value, datetime):
            return value
        if isinstance(value, str):
            message = f"{node.name} must be {noun}, but it is a string"
            node.problem(message, f"write it without quotes: `{example}`")
        else:
            node.mismatch(value, noun, example)
        return date.max

    return Shape(
        noun, example, read, lambda _: date.max, lambda: {"type": "string", "format": "date"}
    )


def many(element: Shape[T], *, single: bool = False, at_least: int = 0) -> Shape[tuple[T, ...]]:
    """Make the shape of a list; with `single`, a single element needs no brackets."""
    plural = element.noun.removeprefix("a ").removeprefix("an ").split(" with ")[0] + "s"
    noun, example = f"a list of {plural}", f"[{element.example}]"

    def read(value: object, node: SpecNode) -> tuple[T, ...]:
        if not isinstance(value, list):
            if single:
                return (element.read(value, node),)
            in_brackets = isinstance(value, str) and len(value) < 80 and element.noun == "a string"
            node.mismatch(value, noun, f"[{toml_string(str(value))}]" if in_brackets else example)
            return ()
        if len(value) < at_least:
            node.problem(f"{node.name} is empty", f"write `{example}`")
        if len(value) > MAX_ENTRIES:
            node.problem(f"{node.name} has more than {MAX_ENTRIES} elements")
            value = value[:MAX_ENTRIES]
        return tuple(element.read(item, node.child(number)) for number, item in enumerate(value))

    def schema() -> Json:
        array: Json = {"type": "array", "items": element.schema(), "maxItems": MAX_ENTRIES}
        if at_least:
            array["minItems"] = at_least
        return {"anyOf": [element.schema(), array]} if single else array

    return Shape(noun, example, read, lambda _: (), schema, extensible=True)


def pair(first: Shape[First], second: Shape[Second]) -> Shape[tuple[First, Second]]:
    """Make the shape of a list of exactly two strings."""
    noun, example = "a list of two strings", f"[{first.example}, {second.example}]"

    def read(value: object, node: SpecNode) -> tuple[First, Second]:
        if isinstance(value, list) and len(value) == 2:
            return first.read(value[0], node.child(0)), second.read(value[1], node.child(1))
        if isinstance(value, list):
            message = f"{node.name} must be {noun}, but it is a list of {len(value)}"
            node.problem(message, f"write `{example}`")
        else:
            node.mismatch(value, noun, example)
        return stand_in(node.value)

    def stand_in(at: Position) -> tuple[First, Second]:
        return first.stand_in(at), second.stand_in(at)

    def schema() -> Json:
        elements = [first.schema(), second.schema()]
        return {"type": "array", "items": elements, "minItems": 2, "maxItems": 2}

    return Shape(noun, example, read, stand_in, schema)


def named(kind: Kind, element: Shape[T], *, wildcard: bool = False) -> Shape[dict[str, T]]:
    """Make the shape of a table whose keys the user chooses; with `wildcard`, also `*`."""
    example = f'{{ "{kind.example}" = {element.example} }}'

    def read(value: object, node: SpecNode) -> dict[str, T]:
        if not isinstance(value, dict):
            node.mismatch(value, "a table", example)
            return {}
        if len(value) > MAX_ENTRIES:
            node.problem(f"{node.name} has more than {MAX_ENTRIES} entries")
            return {}
        entries: dict[str, T] = {}
        for name, item in value.items():
            child = node.child(name)
            complaint = None if wildcard and name == "*" else kind.complaint(name)
            if complaint is None:
                entries[name] = element.read(item, child)
                continue
            # `runtime.12.8`: TOML reads a dot outside of quotes as one between two keys.
            before = str(node.path[-1]) if node.path else ""
            hint = None
            if name.isdecimal() and before.isdecimal():
                hint = f'a dot separates keys: write `"{before}.{name}"` in quotes'
            node.problems.add(child.key, f"the key {quoted(name)} {complaint}", hint)
        return entries

    def schema() -> Json:
        schema: Json = {"type": "object", "additionalProperties": element.schema()}
        if kind.pattern:
            alternative = "|[*]" if wildcard else ""
            schema["propertyNames"] = {"pattern": f"^(?:{kind.pattern}{alternative})$"}
        return schema

    return Shape("a table", example, read, lambda _: {}, schema, extensible=True)


def either(first: Shape[First], first_type: type, second: Shape[Second]) -> Shape[First | Second]:
    """Make the shape of either shape, chosen by the TOML type that `first` accepts."""
    noun = f"{first.noun} or {second.noun}"

    def read(value: object, node: SpecNode) -> First | Second:
        if isinstance(value, first_type):
            return first.read(value, node)
        if not isinstance(value, dict | list):
            node.mismatch(value, noun, second.example)
            return second.stand_in(node.value)
        return second.read(value, node)

    def schema() -> Json:
        return {"anyOf": [first.schema(), second.schema()]}

    return Shape(noun, second.example, read, second.stand_in, schema)


Merge = Literal["add", "merge", "replace"]
#: Requirement of a key; if it is missing: None, or the shape's stand-in (an empty list or table).
Absent = Literal["wrong", "none", "empty"]
Default = str | int | list[str] | None


class Key(Struct, frozen=True):
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
