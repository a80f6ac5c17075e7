"""The position of every key and every value of a TOML document.

The TOML parsers of Python keep no positions. This index is a second, light walk over a text that a
parser has already accepted: it only has to find where things begin, so it knows the bracketing
and quoting of TOML 1.1 and nothing about types.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

#: Keys and array indices from the root of the document to a value.
Path = tuple[str | int, ...]

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


@dataclass(frozen=True, slots=True)
class Offsets:
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
        """The line and the column of `offset`."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


def index(text: str) -> dict[Path, Offsets]:
    """Every path of a valid TOML text (with `\\n` line ends) and its position.

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
        self.marks: dict[Path, Offsets] = {}
        #: Path of each array of tables → its number of elements so far.
        self.lengths: dict[Path, int] = {}

    def document(self) -> None:
        table: Path = ()
        while True:
            self.skip(_BLANK)
            if self.at >= len(self.text):
                return
            if self.text[self.at] == "[":
                table = self.header()
            else:
                self.pair(table)

    def header(self) -> Path:
        array = self.text.startswith("[[", self.at)
        self.at += 2 if array else 1
        parts = self.key()
        self.skip(_SPACE)
        self.at += 2 if array else 1
        path: Path = ()
        for position, (part, offset) in enumerate(parts, start=1):
            path = self.enter(path, part, offset, offset)
            if array and position == len(parts):
                self.lengths[path] = self.lengths.get(path, 0) + 1
            if path in self.lengths:
                path = self.enter(path, self.lengths[path] - 1, offset, offset)
        return path

    def pair(self, table: Path) -> None:
        """`dotted.key = value`, at the top level or inside an inline table."""
        parts = self.key()
        self.skip(_SPACE)
        self.at += 1  # the equals sign
        self.skip(_SPACE)
        path = table
        for part, offset in parts[:-1]:
            path = self.enter(path, part, offset, offset)
        part, offset = parts[-1]
        path = self.enter(path, part, offset, self.at)
        self.value(path)

    def value(self, path: Path) -> None:
        first = self.text[self.at]
        if first == "[":
            self.array(path)
        elif first == "{":
            self.inline_table(path)
        elif first in "\"'":
            self.skip(_STRING)
        else:
            self.skip(_SCALAR)

    def array(self, path: Path) -> None:
        number = 0
        while self.more("]"):
            element = self.enter(path, number, self.at, self.at)
            self.value(element)
            number += 1

    def inline_table(self, path: Path) -> None:
        while self.more("}"):
            self.pair(path)

    def more(self, end: str) -> bool:
        """Step over an opening bracket or a comma; whether another element follows."""
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
            if self.text[begin] in "\"'":
                self.skip(_STRING)
                parts.append((_unquote(self.text[begin : self.at]), begin))
            else:
                self.skip(_BARE_KEY)
                parts.append((self.text[begin : self.at], begin))
            self.skip(_SPACE)
            if not self.text.startswith(".", self.at):
                return parts
            self.at += 1

    def enter(self, path: Path, part: str | int, key: int, value: int) -> Path:
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
    if key.startswith("'"):
        return key[1:-1]

    def character(match: re.Match[str]) -> str:
        digits = match[1] or match[2] or match[3]
        return chr(int(digits, 16)) if digits else _ESCAPES.get(match[4], match[4])

    return _ESCAPE.sub(character, key[1:-1])
