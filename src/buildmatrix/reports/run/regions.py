"""Positions of requirements in a file: lines and columns, as SARIF 2.1.0 counts them (3.30).

Columns count UTF-16 code units from 1, as editors and code hosts do; an end column is the one
behind the last character.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from packaging.utils import canonicalize_name

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_COMMENT = re.compile(r"(?:^|\s)#")


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a file; what is not known is None."""

    start_line: int
    start_column: int | None = None
    end_line: int | None = None
    end_column: int | None = None

    @property
    def form(self) -> dict[str, int]:
        """The region as SARIF writes it."""
        keys = ("startLine", "startColumn", "endLine", "endColumn")
        values = (self.start_line, self.start_column, self.end_line, self.end_column)
        return {key: value for key, value in zip(keys, values, strict=True) if value is not None}


def requirement_region(text: str, line: int, name: str) -> Region:
    """The requirement for the distribution `name` that begins on a line of `text`.

    A quoted one, as in TOML, ends at its quote, another one before a comment, and on a later line
    where lines end with a backslash. Where the line has no such name, the file changed since the
    report was made, or the line names it otherwise: then only the line is known.
    """
    lines = [item.removesuffix("\r") for item in text.removeprefix("\ufeff").split("\n")]
    if not 1 <= line <= len(lines):
        return Region(line)
    first = lines[line - 1]
    match = next((m for m in _NAME.finditer(first) if _is_name(m[0], name)), None)
    if match is None:
        return Region(line)
    begin = match.start()
    quote = first[begin - 1] if begin else ""
    if quote in ("'", '"') and (end := first.find(quote, begin)) > begin:
        return Region(line, column(first, begin), line, column(first, end))
    last, number = first, line
    while last.endswith("\\") and number < len(lines):
        last, number = lines[number], number + 1
    start = begin if number == line else 0
    comment = _COMMENT.search(last, start)
    end = len(last[: comment.start()] if comment else last)
    while end > start and last[end - 1].isspace():
        end -= 1
    return Region(line, column(first, begin), number, column(last, end))


def column(line: str, offset: int) -> int:
    """The column of a character of a line."""
    return len(line[:offset].encode("utf-16-le", "surrogatepass")) // 2 + 1


def _is_name(text: str, name: str) -> bool:
    return canonicalize_name(text) == canonicalize_name(name)
