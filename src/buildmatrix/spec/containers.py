"""Shapes of several values: lists, pairs, tables whose keys the user chooses, and alternatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from buildmatrix.spec.hints import toml_string
from buildmatrix.spec.kinds import Kind, quoted
from buildmatrix.spec.model import Position
from buildmatrix.spec.shape import MAX_ENTRIES, Entry, Json, Shape, mismatch
from buildmatrix.spec.words import Word

T = TypeVar("T")
First = TypeVar("First")
Second = TypeVar("Second")


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
            mismatch(value, entry, self, self._instead(value))
            return ()
        if len(value) < self.at_least:
            entry.problem(f"{entry.name} is empty", f"write `{self.example}`")
        if len(value) > MAX_ENTRIES:
            entry.problem(f"{entry.name} has more than {MAX_ENTRIES} elements")
            value = value[:MAX_ENTRIES]
        return tuple(
            self.element.read(element, entry.child(number)) for number, element in enumerate(value)
        )

    def _instead(self, value: object) -> str | None:
        """A string in brackets, where strings are what the list is of."""
        if isinstance(value, str) and len(value) < 80 and isinstance(self.element, Word):
            return f"[{toml_string(value)}]"
        return None

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
            mismatch(value, entry, self)
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
            mismatch(value, entry, self)
            return {}
        if len(value) > MAX_ENTRIES:
            entry.problem(f"{entry.name} has more than {MAX_ENTRIES} entries")
            return {}
        entries: dict[str, T] = {}
        for name, element in value.items():
            child = entry.child(name)
            complaint = None if self.wildcard and name == "*" else self.name.complaint(name)
            if complaint:
                # `runtime.12.8`: TOML reads a dot outside of quotes as one between two keys.
                before = str(entry.path[-1]) if entry.path else ""
                hint = None
                if name.isdecimal() and before.isdecimal():
                    hint = f'a dot separates keys: write `"{before}.{name}"` in quotes'
                entry.problems.add(child.key, f"the key {quoted(name)} {complaint}", hint)
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
            mismatch(value, entry, self)
            return self.second.stand_in(entry.value)
        return self.second.read(value, entry)

    def stand_in(self, at: Position) -> First | Second:
        """That of the second."""
        return self.second.stand_in(at)

    def schema(self) -> Json:
        """Either."""
        return {"anyOf": [self.first.schema(), self.second.schema()]}
