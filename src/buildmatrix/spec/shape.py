"""Shapes: what may stand at a place of a TOML document, and how it becomes a typed value.

A shape reads, describes itself as JSON schema, and gives the example that messages quote. `words`
has those of single values, `containers` those of lists and tables whose keys the user chooses,
`tables` those with fixed keys. `keys` puts them together into the table of all keys; the loader
and the schema both come from that one table.

Reading never stops at a problem. What is wrong is noted, and a stand-in takes its place, so that
everything else of the file can still be checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from buildmatrix.spec.document import Document, Float, Problems
from buildmatrix.spec.kinds import Kind, quoted
from buildmatrix.spec.model import Position
from buildmatrix.spec.positions import Path

T_co = TypeVar("T_co", covariant=True)
Json = dict[str, object]

#: Elements of one list, and entries of one table.
MAX_ENTRIES = 500


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


def mismatch(value: object, entry: Entry, shape: Shape[object], instead: str | None = None) -> None:
    """Note that `value` has another TOML type than `shape`; `instead` is what to write."""
    entry.problem(
        f"{entry.name} must be {shape.what}, but it is {type_name(value)}",
        f"write `{shape.example if instead is None else instead}`",
    )
