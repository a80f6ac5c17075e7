"""Relevant parts of large generated Python files.

Bindings of a whole interface have tens of thousands of statements, and load their library in one of
them. A syntax tree takes some 60 times its source, so all others are omitted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice

from buildmatrix.python_imports.source import has_loading_word

#: Rounds of adding statements that selected ones refer to.
_ROUNDS = 4
#: Statements of a module; the bindings of Vulkan have 11,000.
MOST_STATEMENTS = 100_000
#: Size limit of an excerpt, in bytes.
LARGEST_EXCERPT = 256 << 10
#: A line that begins a statement of the module; `else:` and the like continue one.
_BEGINS = re.compile(rb"^(?!(?:else|elif|except|finally)\b)(?:[^\W\d]|[@(\[*\"'])", re.MULTILINE)
_DEFINES = re.compile(rb"(?:@[^\n]*\n)*(?:async[ \t]+def|def|class)[ \t]+(\w+)")
_ASSIGNS = re.compile(rb"((?:\w+[ \t]*(?:,[ \t]*\w+[ \t]*)*(?::[^=\n]*)?=(?!=)[ \t]*)+)")
_IMPORTS = re.compile(rb"(?:from|import)\b")
_RENAMED = re.compile(rb"\bas[ \t]+(\w+)")
_WORD = re.compile(rb"[^\W\d]\w*")


@dataclass(slots=True)
class _SourceStatement:
    start: int
    end: int
    #: Function or class defined by the statement, or None.
    function: bytes | None
    #: Names assigned by the statement.
    names: frozenset[bytes]
    text: bytes


def make_excerpt(source: bytes) -> bytes:
    """Return `source` with blank lines for all statements unrelated to loading.

    Imports, statements with a loading word, those that call such a function, and everything these
    refer to are kept. Line numbers do not change. Empty if the result is too large.
    """
    statements = _split_statements(source)
    selected = {
        number
        for number, item in enumerate(statements)
        if _IMPORTS.match(item.text) or has_loading_word(item.text)
    }
    defining: dict[bytes, list[int]] = {}
    for number, statement in enumerate(statements):
        for name in (*statement.names, *([statement.function] if statement.function else [])):
            defining.setdefault(name, []).append(number)
    loading: set[bytes] = set()
    for statement in (statements[number] for number in selected):
        if has_loading_word(statement.text):
            loading.update(statement.names, _RENAMED.findall(statement.text))
            if statement.function is not None:
                loading.add(statement.function)
    for number, statement in enumerate(statements):
        if (
            number not in selected
            and loading
            and not loading.isdisjoint(_WORD.findall(statement.text))
        ):
            selected.add(number)
    ahead = [number for number in selected if not _IMPORTS.match(statements[number].text)]
    for _ in range(_ROUNDS):
        used = {word for number in ahead for word in _WORD.findall(statements[number].text)}
        ahead = [
            number for word in used for number in defining.get(word, ()) if number not in selected
        ]
        selected.update(ahead)
    if not statements or sum(len(statements[number].text) for number in selected) > LARGEST_EXCERPT:
        return b""
    pieces = []
    for number, statement in enumerate(statements):
        pieces.append(statement.text if number in selected else b"\n" * statement.text.count(b"\n"))
    before = source[: statements[0].start].count(b"\n")
    return b"\n" * before + b"".join(pieces)


def _split_statements(source: bytes) -> list[_SourceStatement]:
    starts = [match.start() for match in islice(_BEGINS.finditer(source), MOST_STATEMENTS + 1)]
    if not starts or len(starts) > MOST_STATEMENTS:
        return []
    statements: list[_SourceStatement] = []
    begin: int | None = None
    quotes = 0
    for start, end in zip(starts, [*starts[1:], len(source)], strict=True):
        begin = start if begin is None else begin
        # A triple-quoted text may have lines like statements; this count misjudges few.
        quotes += source.count(b'"""', start, end) + source.count(b"'''", start, end)
        # A decorator precedes its function or class.
        if quotes % 2 or source.startswith(b"@", start):
            continue
        text = source[begin:end]
        match = _DEFINES.match(text)
        assigned = None if match else _ASSIGNS.match(text)
        names = frozenset(_WORD.findall(assigned[1])) if assigned else frozenset()
        statements.append(_SourceStatement(begin, end, match[1] if match else None, names, text))
        begin = None
    return statements
