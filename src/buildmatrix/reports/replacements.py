"""Tried fixes as replacements of parts of files, at SARIF positions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct, field
from packaging.utils import canonicalize_name

from buildmatrix.base.text import split_lines

# Positions as in SARIF 2.1.0 (3.30).
#
# Columns count UTF-16 code units from 1, as editors and code hosts do; an end column is one past
# the last character.


_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_COMMENT = re.compile(r"(?:^|\s)#")


class Region(Struct, frozen=True):
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
    plain = canonicalize_name(name)
    match = next((m for m in _NAME.finditer(first) if canonicalize_name(m[0]) == plain), None)
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


# Replacements of parts of files, as applied by editors and code hosts.
#
# A fix contains a difference in the format of `git apply` (`locks.edits.unified`). `audit --fix`
# and these replacements result in the same bytes.


_HUNK = re.compile(r"@@ -(\d{1,9})(?:,\d{1,9})? \+\d{1,9}(?:,\d{1,9})? @@", re.ASCII)
_NO_NEWLINE = "\\ No newline at end of file\n"
_BOM = "\ufeff"


class Replacement(Struct, frozen=True):
    """Text that comes in place of a region."""

    region: Region
    text: str
    #: The lines that go, as the file has them.
    gone: tuple[str, ...] = ()

    def fits(self, text: str) -> bool:
        """Return True if a file holds the text to replace: it did not change, and no secret was
        cut.
        """
        begin = self.region.start_line - 1
        return tuple(split_lines(text)[begin : begin + len(self.gone)]) == self.gone


class _Block(Struct):
    """Neighboring lines that go and come; each with its line feed, where it has one."""

    line: int
    gone: list[str] = field(default_factory=list)
    come: list[str] = field(default_factory=list)


def replacements(patch: str) -> dict[str, tuple[Replacement, ...]]:
    """The replacements of each file that a patch changes; empty for what is no such patch.

    Also empty where the value of a secret was taken out of the text that comes.
    """
    files: dict[str, tuple[Replacement, ...]] = {}
    lines = [f"{line}\n" for line in patch.split("\n")]
    starts = [
        number
        for number, line in enumerate(lines[:-1])
        if line.startswith("--- a/") and lines[number + 1].startswith("+++ b/")
    ]
    if not starts or starts[0] != 0:
        return {}
    for start, end in zip(starts, [*starts[1:], len(lines) - 1], strict=True):
        blocks = list(_blocks(lines[start + 2 : end]))
        if any("***" in line for block in blocks for line in block.come):
            return {}
        files[lines[start][6:-1]] = tuple(map(_replacement, blocks))
    return files


def _blocks(lines: Sequence[str]) -> Iterator[_Block]:
    number, block = 0, _Block(0)
    into: list[str] = []
    for line in lines:
        if hunk := _HUNK.match(line):
            yield from [block] if block.gone or block.come else []
            # A hunk without old lines names the line before it.
            number = int(hunk[1]) + (",0 +" in hunk[0])
            block = _Block(number)
        elif line == _NO_NEWLINE:
            if into:
                into[-1] = into[-1].removesuffix("\n")
        elif line.startswith("-"):
            into = block.gone
            into.append(line[1:])
            number += 1
        elif line.startswith("+"):
            into = block.come
            into.append(line[1:])
        else:
            yield from [block] if block.gone or block.come else []
            number += 1
            block, into = _Block(number), []
    yield from [block] if block.gone or block.come else []


def _replacement(block: _Block) -> Replacement:
    text = "".join(block.come)
    last = block.gone[-1] if block.gone else ""
    end = _ending(last)
    if end and text.endswith(end):
        # The end of the line stays: the region is what stands on the lines.
        text = text.removesuffix(end)
        last = last.removesuffix(end)
        is_whole = False
    else:
        is_whole = bool(end)
    if block.line == 1 and last.startswith(_BOM) and len(block.gone) == 1:
        last = last.removeprefix(_BOM)
    if block.line == 1 and "".join(block.gone).startswith(_BOM):
        # It is the mark of the file, and no character of its first line.
        text = text.removeprefix(_BOM)
    gone = tuple(block.gone)
    after = block.line + len(gone)
    if is_whole or not gone:
        return Replacement(Region(block.line, 1, after, 1), text, gone)
    return Replacement(Region(block.line, 1, after - 1, column(last, len(last))), text, gone)


def _ending(line: str) -> str:
    if line.endswith("\r\n"):
        return "\r\n"
    return "\n" if line.endswith("\n") else ""
