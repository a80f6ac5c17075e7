"""A TOML file as it was read: its values, their positions, and what is wrong with it."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from buildmatrix import toml
from buildmatrix.errors import Problem, SpecError
from buildmatrix.spec import positions
from buildmatrix.spec.grammar import quoted
from buildmatrix.spec.model import Position

#: Bytes. A specification of a hundred targets has about 10,000.
MAX_SIZE = 250_000

#: After this many the reader has stopped reading, and so does the loader.
MAX_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class Float:
    """A number with a fraction, as written: `3.10` must not become 3.1 in a message."""

    written: str


@dataclass(slots=True)
class Problems:
    """Collects everything that is wrong with one file.

    A *doubtful* problem may be the mere consequence of another one: a glob can match nothing
    because the axis that it names was misspelled. Doubtful problems are reported only where there
    are no certain ones.
    """

    file: str
    #: Problems by their place and by what makes them the same.
    _certain: dict[tuple[Position | None, str], Problem] = field(default_factory=dict)
    _doubtful: dict[tuple[Position | None, str], Problem] = field(default_factory=dict)

    def add(
        self,
        at: Position | None,
        message: str,
        hint: str | None = None,
        *,
        doubtful: bool = False,
        mistake: str = "",
    ) -> None:
        """Note a problem; the same problem at the same place is noted once.

        Args:
            at: its place; None for the file as a whole.
            message: what is wrong.
            hint: what to write instead.
            doubtful: whether another problem may be the cause.
            mistake: the same for all messages about one mistake, where each names another target:
                only the first is noted.

        Raises:
            SpecError: this was number `MAX_PROBLEMS`.
        """
        if doubtful and self._certain:
            return
        line, column = (at.line, at.column) if at else (None, None)
        problems = self._doubtful if doubtful else self._certain
        problems.setdefault(
            (at, mistake or message), Problem(message, self.file, line, column, hint)
        )
        if len(problems) == MAX_PROBLEMS:
            more = "there may be more problems: the search ended after this one"
            problems[at, more] = Problem(more, self.file, line, column)
            self.stop()

    def stop(self) -> None:
        """Raise `SpecError` with all problems, in the order of the file, if there are any."""
        problems = self._certain or self._doubtful
        if problems:
            raise SpecError(sorted(problems.values(), key=_place))


def _place(problem: Problem) -> tuple[int, int]:
    return problem.line or 0, problem.column or 0


@dataclass(frozen=True, slots=True)
class Document:
    """The values of a TOML file and the index of their positions."""

    file: str
    values: Mapping[str, object]
    _lines: positions.Lines
    _marks: Mapping[positions.Path, positions.Offsets]

    def key(self, path: positions.Path) -> Position:
        """The position of the key of the entry at `path`."""
        return self._position(self._mark(path).key)

    def value(self, path: positions.Path) -> Position:
        """Where the value at `path` begins."""
        return self._position(self._mark(path).value)

    def _mark(self, path: positions.Path) -> positions.Offsets:
        return self._marks[path] if path else positions.Offsets(0, 0)

    def _position(self, offset: int) -> Position:
        return Position(self.file, *self._lines.place(offset))


def read(path: Path, problems: Problems, *, absent: str | None = None) -> Document:
    """Read a TOML file.

    Args:
        path: a regular file of at most `MAX_SIZE` bytes.
        problems: receives what is wrong; named `path` in its problems.
        absent: what to do when there is no such file.

    Raises:
        SpecError: the file cannot be read, is not UTF-8, or is not TOML.
    """
    return _parse(_text(_bytes(path, problems, absent), problems), problems)


def _bytes(path: Path, problems: Problems, absent: str | None) -> bytes:
    try:
        if not path.exists():
            _fail(problems, None, "there is no such file", absent)
        if not path.is_file():
            _fail(problems, None, "this is not a regular file")
        with path.open("rb") as stream:
            data = stream.read(MAX_SIZE + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        _fail(problems, None, f"the file cannot be read: {reason}")
    if len(data) > MAX_SIZE:
        _fail(problems, None, f"the file has more than {MAX_SIZE:,} bytes")
    return data


def _text(data: bytes, problems: Problems) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        _fail(problems, (1, 1), "the file is UTF-16", "save it as UTF-8")
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8").replace("\r\n", "\n")
        place = positions.Lines(before).place(len(before))
        byte = data[error.start]
        _fail(problems, place, f"byte 0x{byte:02x} is not UTF-8", "save the file as UTF-8")


def _parse(text: str, problems: Problems) -> Document:
    lines = positions.Lines(text)
    try:
        values = toml.loads(text, parse_float=Float)
        marks = positions.index(text)
    except toml.TomlError as error:
        message = _without_tuples(error.msg[0].lower() + error.msg[1:])
        _fail(problems, (error.lineno, error.colno), f"this is not TOML: {message}", _advice(error))
    except positions.TooDeepError as error:
        _fail(problems, lines.place(error.offset), f"tables or arrays are {error}")
    return Document(problems.file, values, lines, marks)


def _without_tuples(message: str) -> str:
    """Tomli names a table as Python shows it: `('backend', 'cuda')`."""

    def dotted(match: re.Match[str]) -> str:
        return quoted(".".join(re.findall(r"'([^']*)'", match[0])))

    return re.sub(r"\('[^']*',(?: '[^']*'(?:, '[^']*')*)?\)", dotted, message)


def _advice(error: toml.TomlError) -> str | None:
    """What most often solves a mistake at which the parser stopped."""
    line = error.doc.split("\n")[error.lineno - 1]
    if error.msg == "Invalid value":
        return "put strings in quotes; booleans are `true` and `false`"
    if error.msg.startswith("Expected '='"):
        return "write `key = value`"
    if "twice" in error.msg or error.msg == "Cannot overwrite a value":
        return f"{quoted(line.strip()[:60])} was already given above: keep one of the two"
    return None


def _fail(
    problems: Problems, place: tuple[int, int] | None, message: str, hint: str | None = None
) -> NoReturn:
    problems.add(Position(problems.file, *place) if place else None, message, hint)
    problems.stop()
    raise AssertionError("a problem was just added")
