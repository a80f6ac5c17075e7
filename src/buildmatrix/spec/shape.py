"""Shapes: what may stand at a place of a TOML document, and how it becomes a typed value.

A shape reads, describes itself as JSON schema, and gives the example that messages quote.
`keys` puts shapes together into the table of all keys; the loader and the schema both come
from that one table.

Reading never stops at a problem. What is wrong is noted, and a stand-in takes its place, so that
everything else of the file can still be checked.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass
from datetime import date, datetime
from typing import Any, Generic, Literal, Protocol, TypeVar, overload

from buildmatrix.spec.document import Document, Float, Problems
from buildmatrix.spec.kinds import Kind, quoted
from buildmatrix.spec.model import Position
from buildmatrix.spec.positions import Path

T = TypeVar("T")
Default = TypeVar("Default")
T_co = TypeVar("T_co", covariant=True)
First = TypeVar("First")
Second = TypeVar("Second")
Json = dict[str, object]

#: Elements of one list, and entries of one table.
MAX_ENTRIES = 500

Merge = Literal["add", "merge", "replace"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a document, and where complaints about it go."""

    document: Document
    problems: Problems
    path: Path = ()

    def child(self, part: str | int) -> Entry:
        """The entry of a key, or of an element."""
        return Entry(self.document, self.problems, (*self.path, part))

    @property
    def key(self) -> Position:
        """Where its key stands."""
        return self.document.key(self.path)

    @property
    def value(self) -> Position:
        """Where its value begins."""
        return self.document.value(self.path)

    @property
    def name(self) -> str:
        """Its path as a user would write it: `backend.cuda.base[0].when`."""
        name = ""
        for part in self.path:
            dot = "." if name else ""
            name += f"[{part}]" if isinstance(part, int) else f"{dot}{part}"
        return quoted(name) if name else "the file"

    def problem(self, message: str, hint: str | None = None) -> None:
        """Note what is wrong with the value."""
        self.problems.add(self.value, message, hint)


@dataclass(frozen=True, slots=True)
class Text:
    """A string of a document. `kind` is checked again after placeholders are filled in."""

    value: str
    at: Position
    kind: Kind
    #: False for the stand-in of a string that was missing or wrong.
    sound: bool = True


class Shape(Protocol[T_co]):
    """What may stand at a place."""

    @property
    def what(self) -> str:
        """With its article: `a list of strings`."""

    @property
    def example(self) -> str:
        """As TOML."""

    def read(self, value: object, entry: Entry) -> T_co:
        """The typed value; notes problems and falls back to the stand-in."""

    def stand_in(self, at: Position) -> T_co:
        """What takes the place of a value that is missing or wrong."""

    def schema(self) -> Json:
        """The same as JSON schema, draft 2020-12."""


def type_name(value: object) -> str:
    """What TOML calls the type of `value`, with its article."""
    match value:
        case str():
            return "a string"
        case bool():
            return "a boolean"
        case int():
            return "a whole number"
        case Float():
            return "a number"
        case list():
            return "a list"
        case dict():
            return "a table"
    return "a date or a time"


def _mismatch(value: object, entry: Entry, shape: Shape[object]) -> None:
    example = shape.example
    match value:
        case Float(written):
            example = f'"{written}"' if isinstance(shape, Word) else example
        case int() if isinstance(shape, Word) and not isinstance(value, bool):
            example = f'"{value}"' if abs(value) < 10**9 else example
        case str() if isinstance(shape, Many) and isinstance(shape.element, Word):
            example = f"[{toml_string(value)}]" if len(value) < 80 else example
    entry.problem(
        f"{entry.name} must be {shape.what}, but it is {type_name(value)}", f"write `{example}`"
    )


def toml_string(text: str) -> str:
    """`text` as a TOML basic string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in escaped) + '"'


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    found = difflib.get_close_matches(word[:64], list(known), n=1)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str], what: str) -> str:
    """A hint for an unknown word: the closest known one, else all of them."""
    known = list(known)
    if near := closest(word, known):
        return f"did you mean `{near}`?"
    if not known:
        return f"there are no {what}"
    more = f" and {len(known) - 20} more" if len(known) > 20 else ""
    return f"known {what}: {', '.join(known[:20])}{more}"


@dataclass(frozen=True, slots=True)
class Word:
    """A string of one kind; with `template`, placeholders may stand in it."""

    kind: Kind
    template: bool = False

    @property
    def what(self) -> str:
        """`a string`: the kind is the example's business."""
        return "a string"

    @property
    def example(self) -> str:
        """The kind's example in quotes."""
        return f'"{self.kind.example}"'

    def read(self, value: object, entry: Entry) -> Text:
        """The string with its place."""
        if not isinstance(value, str):
            _mismatch(value, entry, self)
            return self.stand_in(entry.value)
        # Placeholders come first: what stands around them is checked once they are filled in.
        kind = _TEMPLATE if self.template and "{" in value else self.kind
        if complaint := kind.complaint(value):
            entry.problem(f"{entry.name} {quoted(value)} {complaint}")
            return self.stand_in(entry.value)
        return Text(value, entry.value, self.kind)

    def stand_in(self, at: Position) -> Text:
        """An empty string that no later check looks at."""
        return Text("", at, self.kind, sound=False)

    def schema(self) -> Json:
        """A string with the kind's pattern."""
        kind = self.kind
        if kind.choices:
            return {"type": "string", "enum": list(kind.choices)}
        schema: Json = {"type": "string", "examples": [kind.example]}
        if kind.pattern:
            # A string with a placeholder is judged only when it is filled in.
            alternative = r"|.*\{.*" if self.template else ""
            schema["pattern"] = f"^(?:{kind.pattern}{alternative})$"
        elif not kind.may_be_empty:
            schema["minLength"] = 1
        return schema


_TEMPLATE = Kind("a text with placeholders", "{id}", limit=4096)


@dataclass(frozen=True, slots=True)
class Converted(Generic[T]):
    """A string of one kind that stands for something else, such as `3GB` for a number of bytes."""

    kind: Kind
    convert: Callable[[str], T]
    fallback: T

    @property
    def what(self) -> str:
        """What the kind is."""
        return f"a string with {self.kind.what}"

    @property
    def example(self) -> str:
        """The kind's example in quotes."""
        return f'"{self.kind.example}"'

    def read(self, value: object, entry: Entry) -> T:
        """The converted value."""
        text = Word(self.kind).read(value, entry)
        return self.convert(text.value) if text.sound else self.fallback

    def stand_in(self, at: Position) -> T:
        """The fallback."""
        return self.fallback

    def schema(self) -> Json:
        """That of the string."""
        return Word(self.kind).schema()


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number between two bounds."""

    low: int
    high: int
    example: str

    @property
    def what(self) -> str:
        """Names the bounds."""
        if self.low == self.high:
            return f"the number {self.low}"
        return f"a whole number from {self.low} to {self.high}"

    def read(self, value: object, entry: Entry) -> int:
        """The number."""
        if not isinstance(value, int) or isinstance(value, bool):
            _mismatch(value, entry, self)
        elif not self.low <= value <= self.high:
            entry.problem(f"{entry.name} must be {self.what}", f"write `{self.example}`")
        else:
            return value
        return self.low

    def stand_in(self, at: Position) -> int:
        """The lower bound."""
        return self.low

    def schema(self) -> Json:
        """An integer with bounds."""
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Day:
    """A TOML date."""

    what = "a date"
    example = "2027-01-31"

    def read(self, value: object, entry: Entry) -> date:
        """The date."""
        if isinstance(value, date) and not isinstance(value, datetime):
            return value
        if isinstance(value, str):
            entry.problem(
                f"{entry.name} must be {self.what}, but it is a string",
                f"write it without quotes: `{self.example}`",
            )
        else:
            _mismatch(value, entry, self)
        return date.max

    def stand_in(self, at: Position) -> date:
        """A day that does not come."""
        return date.max

    def schema(self) -> Json:
        """Editors hand TOML dates to the schema as strings."""
        return {"type": "string", "format": "date"}


@dataclass(frozen=True, slots=True)
class Many(Generic[T]):
    """A list; with `or_one`, a single element may stand without brackets."""

    element: Shape[T]
    or_one: bool = False
    at_least: int = 0

    @property
    def what(self) -> str:
        """`a list of strings`."""
        plural = self.element.what.removeprefix("a ").removeprefix("an ").split(" with ")[0] + "s"
        return f"a list of {plural}"

    @property
    def example(self) -> str:
        """A list of one element."""
        return f"[{self.element.example}]"

    def read(self, value: object, entry: Entry) -> tuple[T, ...]:
        """The elements, in order."""
        if not isinstance(value, list):
            if self.or_one:
                return (self.element.read(value, entry),)
            _mismatch(value, entry, self)
            return ()
        if len(value) < self.at_least:
            entry.problem(f"{entry.name} is empty", f"write `{self.example}`")
        if len(value) > MAX_ENTRIES:
            entry.problem(f"{entry.name} has more than {MAX_ENTRIES} elements")
            value = value[:MAX_ENTRIES]
        return tuple(
            self.element.read(element, entry.child(number)) for number, element in enumerate(value)
        )

    def stand_in(self, at: Position) -> tuple[T, ...]:
        """No elements."""
        return ()

    def schema(self) -> Json:
        """An array."""
        array: Json = {"type": "array", "items": self.element.schema(), "maxItems": MAX_ENTRIES}
        if self.at_least:
            array["minItems"] = self.at_least
        return {"anyOf": [self.element.schema(), array]} if self.or_one else array


@dataclass(frozen=True, slots=True)
class Pair(Generic[First, Second]):
    """A list of exactly two."""

    first: Shape[First]
    second: Shape[Second]
    what = "a list of two strings"

    @property
    def example(self) -> str:
        """Both examples."""
        return f"[{self.first.example}, {self.second.example}]"

    def read(self, value: object, entry: Entry) -> tuple[First, Second]:
        """Both elements."""
        if isinstance(value, list) and len(value) == 2:
            return (
                self.first.read(value[0], entry.child(0)),
                self.second.read(value[1], entry.child(1)),
            )
        if isinstance(value, list):
            entry.problem(
                f"{entry.name} must be {self.what}, but it has {len(value)}",
                f"write `{self.example}`",
            )
        else:
            _mismatch(value, entry, self)
        return self.stand_in(entry.value)

    def stand_in(self, at: Position) -> tuple[First, Second]:
        """Two stand-ins."""
        return self.first.stand_in(at), self.second.stand_in(at)

    def schema(self) -> Json:
        """An array of two."""
        return {
            "type": "array",
            "prefixItems": [self.first.schema(), self.second.schema()],
            "minItems": 2,
            "maxItems": 2,
        }


@dataclass(frozen=True, slots=True)
class Named(Generic[T]):
    """A table whose keys the user chooses, within a kind."""

    name: Kind
    element: Shape[T]
    #: A key that is allowed beside the kind: `*`.
    wildcard: bool = False

    @property
    def what(self) -> str:
        """`a table`."""
        return "a table"

    @property
    def example(self) -> str:
        """An inline table of one entry."""
        return f'{{ "{self.name.example}" = {self.element.example} }}'

    def read(self, value: object, entry: Entry) -> dict[str, T]:
        """The entries, in the order of the file."""
        if not isinstance(value, dict):
            _mismatch(value, entry, self)
            return {}
        if len(value) > MAX_ENTRIES:
            entry.problem(f"{entry.name} has more than {MAX_ENTRIES} entries")
            return {}
        entries: dict[str, T] = {}
        for name, element in value.items():
            child = entry.child(name)
            complaint = None if self.wildcard and name == "*" else self.name.complaint(name)
            if complaint:
                entry.problems.add(child.key, f"the key {quoted(name)} {complaint}")
            else:
                entries[name] = self.element.read(element, child)
        return entries

    def stand_in(self, at: Position) -> dict[str, T]:
        """No entries."""
        return {}

    def schema(self) -> Json:
        """An object with constrained property names."""
        schema: Json = {"type": "object", "additionalProperties": self.element.schema()}
        if pattern := self.name.pattern:
            schema["propertyNames"] = {
                "pattern": f"^(?:{pattern}{'|[*]' if self.wildcard else ''})$"
            }
        return schema


@dataclass(frozen=True, slots=True)
class Either(Generic[First, Second]):
    """One of two shapes, told apart by the TOML type that `first` accepts."""

    first: Shape[First]
    first_type: type
    second: Shape[Second]

    @property
    def what(self) -> str:
        """Names both."""
        return f"{self.first.what} or {self.second.what}"

    @property
    def example(self) -> str:
        """That of the second, the one with more to say."""
        return self.second.example

    def read(self, value: object, entry: Entry) -> First | Second:
        """As the type says."""
        if isinstance(value, self.first_type):
            return self.first.read(value, entry)
        if not isinstance(value, dict | list):
            _mismatch(value, entry, self)
            return self.second.stand_in(entry.value)
        return self.second.read(value, entry)

    def stand_in(self, at: Position) -> First | Second:
        """That of the second."""
        return self.second.stand_in(at)

    def schema(self) -> Json:
        """Either."""
        return {"anyOf": [self.first.schema(), self.second.schema()]}


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
            _mismatch(value, entry, self)
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
