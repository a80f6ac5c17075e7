"""Shapes of single values: strings of a kind, numbers, dates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Generic, TypeVar

from buildmatrix.spec.document import Float
from buildmatrix.spec.kinds import Kind, quoted
from buildmatrix.spec.model import Position
from buildmatrix.spec.shape import Entry, Json, Text, mismatch

T = TypeVar("T")


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
            mismatch(value, entry, self, self._instead(value))
            return self.stand_in(entry.value)
        # Placeholders come first: what stands around them is checked once they are filled in.
        kind = _TEMPLATE if self.template and "{" in value else self.kind
        if complaint := kind.complaint(value):
            entry.problem(f"{entry.name} {quoted(value)} {complaint}")
            return self.stand_in(entry.value)
        return Text(value, entry.value, self.kind)

    def _instead(self, value: object) -> str | None:
        """A number in quotes, where that would do."""
        match value:
            case Float(written):
                text = written
            case int() if not isinstance(value, bool) and abs(value) < 10**9:
                text = str(value)
            case _:
                return None
        return None if self.kind.complaint(text) else f'"{text}"'

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
            mismatch(value, entry, self)
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
            mismatch(value, entry, self)
        return date.max

    def stand_in(self, at: Position) -> date:
        """A day that does not come."""
        return date.max

    def schema(self) -> Json:
        """Editors hand TOML dates to the schema as strings."""
        return {"type": "string", "format": "date"}
