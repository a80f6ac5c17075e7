"""Lines that import, found in the text of a Python file by regular expressions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from sys import intern

_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]*(\([^)]*\)|(?:[^\n#\\]|\\\r?\n)*)"
    rb"|import[ \t]+([^\n#;]*))",
    re.MULTILINE,
)
#: What stands between names that are imported.
_NO_NAME = re.compile(rb"#[^\n]*|[()\\]")
#: What every import and every such call has in it.
_IMPORT_WORD = re.compile(rb"import")


def import_line(source: bytes, name: str) -> int:
    """Number of the first line that imports the module `name`, or something of it; 1 for none."""
    for match in import_matches(source):
        names = imported_names(match)
        if any(imported == name or imported.startswith(f"{name}.") for imported in names):
            return source.count(b"\n", 0, match.start()) + 1
    return 1


def import_matches(source: bytes) -> Iterator[re.Match[bytes]]:
    """The import statements of a file: only lines with the word are looked at, each once."""
    line_end = 0
    for word in _IMPORT_WORD.finditer(source):
        at = word.start()
        if at < line_end:
            continue
        match = _IMPORT.match(source, source.rfind(b"\n", line_end, at) + 1)
        if match is not None:
            yield match
            at = max(at, match.end())
        line_end = source.find(b"\n", at)
        if line_end < 0:
            return


def imported_names(match: re.Match[bytes]) -> Iterator[str]:
    """What an import statement imports, as `Outline.imports` has it."""
    origin, names, modules = match.groups()
    if origin:
        base = origin.decode("utf-8", "replace")
        yield intern(base)
        for words in _names(names):
            yield intern(joined(base, words[0]))
    else:
        for words in _names(modules):
            yield intern(words[0])


def bound_names(match: re.Match[bytes]) -> Iterator[tuple[str, str]]:
    """The names that an import statement makes, and what they stand for."""
    origin, names, modules = match.groups()
    for words in _names(names if origin else modules):
        name = joined(origin.decode("utf-8", "replace"), words[0]) if origin else words[0]
        if len(words) > 2:
            yield words[2], name
        elif origin:
            yield words[0], name
        else:
            first = name.partition(".")[0]
            yield first, first


def joined(base: str, name: str) -> str:
    """The dotted name of `name` in the module `base`, which may be dots alone."""
    return f"{base}{name}" if base.endswith(".") else f"{base}.{name}"


def _names(listing: bytes) -> Iterator[list[str]]:
    """The words of each name in a list of imports: it alone, or with `as` and another one."""
    for part in _NO_NAME.sub(b" ", listing).decode("utf-8", "replace").split(","):
        words = part.split()
        if words and words[0] != "*":
            yield words
