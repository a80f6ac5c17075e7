"""A TOML file as it was read: its values, their positions, and its problems, with hints."""

from __future__ import annotations

import codecs
import difflib
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NoReturn

from msgspec import Struct, field

from buildmatrix.base import toml
from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.base.text import listing, shown
from buildmatrix.matrix.model import Position

#: Characters; the longest string that a specification can need.
MAX_TEXT = 4096
#: Reorder the text around them, so that a line reads differently from its effect.
_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class Kind(Struct, frozen=True):
    """A set of strings."""

    #: With its article, to stand after "this is not": `an image reference`.
    noun: str
    example: str
    #: The whole string must match. Also goes into the JSON schema: only what ECMA-262 knows too.
    pattern: str = ""
    limit: int = 255
    #: Check beyond `pattern`: returns the complaint, or None.
    further: Callable[[str], str | None] | None = None
    #: The values, where there are only a few.
    choices: tuple[str, ...] = ()
    may_be_empty: bool = False
    #: Grammar in words, if the example alone does not show it.
    rule: str = ""
    #: The value that a string of it stands for.
    convert: Callable[[str], object] = str

    def complaint(self, text: str) -> str | None:
        """Return why `text` is not of this kind, as a clause; None if it is."""
        if hidden := next((c for c in text if _is_hidden(c)), None):
            name = unicodedata.name(hidden, "control character").lower()
            return f"contains U+{ord(hidden):04X} ({name}); strings here are one line of plain text"
        if len(text) > self.limit:
            return f"has {len(text)} characters; {self.noun} has at most {self.limit}"
        if not text.strip() and not self.may_be_empty:
            return f"is empty; write {self.noun} such as `{self.example}`"
        if self.choices and text not in self.choices:
            return f"is not {self.noun}; write {' or '.join(f'`{c}`' for c in self.choices)}"
        if self.pattern and not re.fullmatch(self.pattern, text):
            rule = f" ({self.rule})" if self.rule else ""
            return f"is not {self.noun}{rule}; write something like `{self.example}`"
        return self.further(text) if self.further else None


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} or character in _BIDI


def quoted(text: str) -> str:
    """Return `text` for a message: in backticks, short, without passwords and terminal controls."""
    text = shown(text)
    short = text if len(text) <= 80 else text[:77] + "..."
    plain = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in short)
    return f"`{plain}`"


# Hints


def toml_string(text: str) -> str:
    """Return `text` as a TOML basic string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in escaped) + '"'


def closest(word: str, words: Iterable[str]) -> str | None:
    """Return the known word that was probably meant."""
    matches = difflib.get_close_matches(word[:64], list(words), n=1)
    return matches[0] if matches else None


def did_you_mean(word: str, words: Iterable[str], plural: str) -> str:
    """Return a hint for an unknown word: the closest known one, else all of them."""
    words = list(words)
    if near := closest(word, words):
        return f"did you mean `{near}`?"
    if not words:
        return f"there are no {plural}"
    return f"known {plural}: {listing(words, 20)}"


# Positions. The TOML parsers of Python keep none. This index is a second, light walk over a text
# that a parser has already accepted: it only finds where things begin, so it knows the bracketing
# and quoting of TOML 1.1 and nothing about types.


#: Keys and array indices from the root of the document to a value.
KeyPath = tuple[str | int, ...]

#: Levels of tables and arrays below the root. A specification needs six.
MAX_DEPTH = 24

_BLANK = re.compile(r"(?:[ \t\n\r]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_STRING = re.compile(
    r'"""(?:[^"\\]++|\\.|"{1,2}(?!"))*"{3,5}'
    r"|'''(?:[^']++|'{1,2}(?!'))*'{3,5}"
    r'|"(?:[^"\\\n]++|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]+")


class TooDeepError(ValueError):
    """A document nests deeper than `MAX_DEPTH`; `offset` is where."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"nested deeper than {MAX_DEPTH} levels")
        self.offset = offset


class Offsets(Struct, frozen=True):
    """Offsets at which an entry begins: its key, and its value.

    The two are equal for elements of arrays. For `[table]` headers both are the header's key.
    """

    key: int
    value: int


class Lines:
    """Turns offsets into lines and columns, both counted from 1; columns count characters."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def place(self, offset: int) -> tuple[int, int]:
        """Return the line and the column of `offset`."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


def index(text: str) -> dict[KeyPath, Offsets]:
    """Return every path of a valid TOML text (with `\\n` line ends) and its position.

    A table that several places write to (`[a.b]` and `[a.c]` for `a`) is marked at the first.

    Raises:
        TooDeepError: the text nests deeper than `MAX_DEPTH`.
    """
    walker = _Walker(text)
    walker.document()
    return walker.marks


class _Walker:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.marks: dict[KeyPath, Offsets] = {}
        #: Path of each array of tables → its number of elements so far.
        self.lengths: dict[KeyPath, int] = {}

    def document(self) -> None:
        table: KeyPath = ()
        while True:
            self.skip(_BLANK)
            if self.at >= len(self.text):
                return
            if self.text[self.at] == "[":
                table = self.header()
            else:
                self.pair(table)

    def header(self) -> KeyPath:
        array = self.text.startswith("[[", self.at)
        self.at += 2 if array else 1
        parts = self.key()
        self.skip(_SPACE)
        self.at += 2 if array else 1
        path: KeyPath = ()
        for position, (part, offset) in enumerate(parts, start=1):
            path = self.enter(path, part, offset, offset)
            if array and position == len(parts):
                self.lengths[path] = self.lengths.get(path, 0) + 1
            if path in self.lengths:
                path = self.enter(path, self.lengths[path] - 1, offset, offset)
        return path

    def pair(self, table: KeyPath) -> None:
        """Read `dotted.key = value`, at the top level or inside an inline table."""
        parts = self.key()
        self.skip(_SPACE)
        self.at += 1  # the equals sign
        self.skip(_SPACE)
        path = table
        for part, offset in parts[:-1]:
            path = self.enter(path, part, offset, offset)
        part, offset = parts[-1]
        self.value(self.enter(path, part, offset, self.at))

    def value(self, path: KeyPath) -> None:
        first = self.text[self.at]
        if first == "[":
            number = 0
            while self.more("]"):
                self.value(self.enter(path, number, self.at, self.at))
                number += 1
        elif first == "{":
            while self.more("}"):
                self.pair(path)
        else:
            self.skip(_STRING if first in "\"'" else _SCALAR)

    def more(self, end: str) -> bool:
        """Step over an opening bracket or a comma; return True if another element follows."""
        self.skip(_BLANK)
        if self.text[self.at] in "[{,":
            self.at += 1
            self.skip(_BLANK)
        if self.text[self.at] == end:
            self.at += 1
            return False
        return True

    def key(self) -> list[tuple[str, int]]:
        parts: list[tuple[str, int]] = []
        while True:
            self.skip(_SPACE)
            begin = self.at
            self.skip(_STRING if self.text[begin] in "\"'" else _BARE_KEY)
            parts.append((_unquote(self.text[begin : self.at]), begin))
            self.skip(_SPACE)
            if not self.text.startswith(".", self.at):
                return parts
            self.at += 1

    def enter(self, path: KeyPath, part: str | int, key: int, value: int) -> KeyPath:
        if len(path) >= MAX_DEPTH:
            raise TooDeepError(key)
        path = (*path, part)
        self.marks.setdefault(path, Offsets(key, value))
        return path

    def skip(self, pattern: re.Pattern[str]) -> None:
        if match := pattern.match(self.text, self.at):
            self.at = match.end()


_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b"}


def _unquote(key: str) -> str:
    if not key.startswith('"'):
        return key.strip("'")

    def character(match: re.Match[str]) -> str:
        digits = match[1] or match[2] or match[3]
        return chr(int(digits, 16)) if digits else _ESCAPES.get(match[4], match[4])

    return _ESCAPE.sub(character, key[1:-1])


# The file


#: Bytes. A specification of a hundred targets has about 10,000.
MAX_SIZE = 250_000

#: After this many problems, the loader stops.
MAX_PROBLEMS = 100


class Float(Struct, frozen=True):
    """A number with a fraction, as written: `3.10` must not become 3.1 in a message."""

    written: str


class Problems(Struct):
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

    def doubt(self, at: Position, message: str, hint: str | None = None, mistake: str = "") -> None:
        """Note a doubtful problem."""
        self.add(at, message, hint, doubtful=True, mistake=mistake)

    def stop(self) -> None:
        """Raise `SpecError` with all problems, in the order of the file, if there are any."""
        problems = self._certain or self._doubtful
        if problems:
            raise SpecError(sorted(problems.values(), key=lambda p: (p.line or 0, p.column or 0)))


class Document(Struct, frozen=True):
    """The values of a TOML file and the index of their positions."""

    file: str
    values: Mapping[str, object]
    _lines: Lines
    _marks: Mapping[KeyPath, Offsets]

    def key(self, path: KeyPath) -> Position:
        """Return the position of the key of the entry at `path`."""
        return Position(self.file, *self._lines.place(self._marks[path].key if path else 0))

    def value(self, path: KeyPath) -> Position:
        """Return the position of the value at `path`."""
        return Position(self.file, *self._lines.place(self._marks[path].value if path else 0))


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
        place = Lines(before).place(len(before))
        byte = data[error.start]
        _fail(problems, place, f"byte 0x{byte:02x} is not UTF-8", "save the file as UTF-8")


def _parse(text: str, problems: Problems) -> Document:
    lines = Lines(text)
    try:
        values = toml.loads(text, parse_float=Float)
        marks = index(text)
    except toml.TomlError as error:
        message = _without_tuples(error.msg[0].lower() + error.msg[1:])
        _fail(problems, (error.lineno, error.colno), f"this is not TOML: {message}", _advice(error))
    except TooDeepError as error:
        _fail(problems, lines.place(error.offset), f"tables or arrays are {error}")
    return Document(problems.file, values, lines, marks)


def _without_tuples(message: str) -> str:
    """Replace Tomli's names of tables, which are Python tuples: `('backend', 'cuda')`."""

    def dotted(match: re.Match[str]) -> str:
        return quoted(".".join(re.findall(r"'([^']*)'", match[0])))

    return re.sub(r"\('[^']*',(?: '[^']*'(?:, '[^']*')*)?\)", dotted, message)


def _advice(error: toml.TomlError) -> str | None:
    """Return the usual fix for a mistake that stopped the parser."""
    line = error.doc.split("\n")[error.lineno - 1]
    if error.msg == "Invalid value":
        return "put strings in quotes; booleans are `true` and `false`"
    if error.msg.startswith("Expected '='"):
        return "write `key = value`"
    if "twice" in error.msg or error.msg == "Cannot overwrite a value":
        return f"{quoted(line.strip()[:60])} is already set above; keep one of the two"
    return None


def _fail(
    problems: Problems, place: tuple[int, int] | None, message: str, hint: str | None = None
) -> NoReturn:
    problems.add(Position(problems.file, *place) if place else None, message, hint)
    problems.stop()
    raise AssertionError("a problem was just added")
