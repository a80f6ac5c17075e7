"""Parts of large Python files that are parsed, instead of all."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice

from buildmatrix.facts.python_imports.parser import Unparsable, parse
from buildmatrix.facts.python_imports.source import has_loading_word

# Skeletons: files without most function bodies, which are parsed when called.
#
# An import runs the statements of a module and few of its functions, and a syntax tree takes ten
# times as long as this. Bodies without an import are omitted. If the bytes leave any doubt about
# the extent of a body, there is no skeleton.


#: Without the possessive quantifiers of this version, hostile source would take minutes. Groups are
#: repeated in an atomic group: before 3.11.5, and so in Debian 12, `*+` behind a group keeps the
#: text of a failed repetition (python/cpython#106052).
_LEAST_PYTHON = (3, 11)
#: Columns of a `def` whose body may be omitted.
_DEEPEST = 40
#: Characters that only some parsers treat as line ends or columns: tabs, form feeds, carriage
#: returns, and NUL.
_DOUBTFUL = (b"\t", b"\f", b"\r", b"\v", b"\0")
_OTHER_ENCODING = re.compile(
    rb"\A(?:[^\n]*\n)?[^\n]*coding[:=][ ]*(?! |utf-?8|ascii)", re.IGNORECASE
)

#: A field of a string with code. One with the quotes of the string itself (PEP 701) is not
#: recognized, so that the file has no skeleton.
_FIELD = rb"\{%(held)s(?>(?:\{%(held)s\}%(held)s)*)\}"
_HELD = {
    b'"': rb"(?>(?:[^{}\"'\\\n#]++|'[^'\"\\\n]*+')*)",
    b"'": rb"(?>(?:[^{}\"'\\\n#]++|\"[^'\"\\\n]*+\")*)",
    b'"""': rb"(?>(?:[^{}\"'\\#]++|'[^'\"\\\n]*+')*)",
    b"'''": rb"(?>(?:[^{}\"'\\#]++|\"[^'\"\\\n]*+\")*)",
}


def _make_string_pattern() -> bytes:
    """Return a pattern of all strings, from their quotes on."""
    patterns = []
    for quotes, signs in ((b'"""', rb'[^"\\%s]'), (b"'''", rb"[^'\\%s]")):
        quote = quotes[:1]
        for mark, more in ((quotes, rb"|%b(?!%b%b)" % (quote, quote, quote)), (quote, b"")):
            plain = signs % (b"" if more else b"\n")
            coded = signs % (b"{" if more else b"\n{")
            field = _FIELD % {b"held": _HELD[mark]}
            patterns.append(
                rb"(?:(?<=[fFtT]%b)|(?<=[fFtT][rR]%b))(?>(?:%b++|\\(?:[^{]|(?={))|\{\{|%b%b)*)%b"
                % (mark, mark, coded, field, more, mark)
            )
            patterns.append(
                rb"(?<![fFtT]%b)(?<![fFtT][rR]%b)(?>(?:%b++|\\[\s\S]%b)*)%b"
                % (mark, mark, plain, more, mark)
            )
            patterns[-2:] = [mark + pattern for pattern in patterns[-2:]]
    return b"|".join(patterns)


_STRING = _make_string_pattern()
#: The rest of a line, without its end.
_REST = rb"(?>(?:[^\"'#\n\\]++|%b|#[^\n]*+|\\[\s\S])*)" % _STRING
#: Everything up to the next line that begins a function.
_UP_TO_FUNCTION = rb"(?>(?:%b\n(?![ ]*+(?:async[ ]++)?def[ ]))*)%b(?:\n|\Z)" % (_REST, _REST)
_BRACKETS = rb"\((?>(?:[^()\"'#]++|%b|#[^\n]*+%b)*)\)"
_INNER = _BRACKETS % (_STRING, b"")
_PARAMETERS = _BRACKETS % (_STRING, b"|" + _BRACKETS % (_STRING, b"|" + _INNER))
_SIGNATURE = (
    rb"([ ]*+)(?:async[ ]++)?def[ ]++(\w++)[ ]*+%b"
    rb"(?:[ ]*+->(?>(?:[^:\n#\"'()\\]++|%b|%b)*))?[ ]*+:[ ]*+(?:#[^\n]*+)?\n"
    % (_PARAMETERS, _STRING, _INNER)
)
#: An import begins a line, or follows one of two signs.
_IMPORT_INSIDE = re.compile(rb"(?:^|[;:])[ ]*(?:import|from)\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A file with all its lines, in which `0` replaces the omitted bodies."""

    text: bytes
    #: Line of a `def` to the offsets of the function in the file.
    functions: Mapping[int, tuple[int, int]]


def make_skeleton(source: bytes) -> Skeleton | None:
    """Return `source` without bodies that an import need not run; None in case of doubt."""
    if sys.version_info < _LEAST_PYTHON:
        return None
    if any(sign in source for sign in _DOUBTFUL) or _OTHER_ENCODING.match(source):
        return None
    signature_at, up_to_function = _compile(_SIGNATURE), _compile(_UP_TO_FUNCTION)
    pieces: list[bytes] = []
    functions: dict[int, tuple[int, int]] = {}
    at = copied = counted = 0
    line = 1
    while at < len(source):
        if (signature := signature_at.match(source, at)) is None:
            passed = up_to_function.match(source, at)
            if passed is None:
                return None
            at = passed.end()
            continue
        begin, start = at, signature.end()
        indent, name = len(signature[1]), signature[2]
        body = _body_pattern(indent).match(source, start) if indent <= _DEEPEST else None
        if body is None:
            return None
        at = body.end()
        if at == start or name == b"__exit__" or _IMPORT_INSIDE.search(source, start, at):
            continue
        line += source.count(b"\n", counted, begin)
        counted = begin
        functions[line] = (begin, at)
        lines = source.count(b"\n", start, at)
        pieces += (source[copied:start], b" " * indent, b" 0", b"\n" * lines)
        copied = at
    return Skeleton(b"".join((*pieces, source[copied:])), functions)


class OmittedBodies:
    """The functions of a file with bodies that are not parsed yet."""

    def __init__(self, source: bytes, functions: Mapping[int, tuple[int, int]]) -> None:
        self._source = source
        self._functions = dict(functions)

    def take(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bytes | None:
        """Return the text of a function to `fill` it with, once; None if it is complete."""
        place = self._functions.pop(function.lineno, None)
        if place is None:
            return None
        text = self._source[slice(*place)]
        return b"if 1:\n" + text if function.col_offset else text


NOTHING_OMITTED = OmittedBodies(b"", {})


def first_line(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the line of the file at which the text of a function begins."""
    return function.lineno - (1 if function.col_offset else 0)


def fill_body(function: ast.FunctionDef | ast.AsyncFunctionDef, tree: ast.Module) -> None:
    """Insert the body that was parsed from the text of `function`."""
    ast.increment_lineno(tree, first_line(function) - 1)
    inner: ast.AST = tree
    while not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
        # A module, or the `if` around it.
        assert isinstance(inner, (ast.Module, ast.If))
        inner = inner.body[0]
    function.body = inner.body


def parse_skeleton(source: bytes) -> tuple[ast.Module, OmittedBodies] | None:
    """Parse a file without bodies, and return these; None if the whole file must be parsed.

    The effect of a `try` in the module depends on how other statements use its names.
    """
    stripped = make_skeleton(source)
    if stripped is None or not stripped.functions:
        return None
    try:
        tree = parse(stripped.text)
    except Unparsable:
        return None
    return None if _has_try(tree) else (tree, OmittedBodies(source, stripped.functions))


def _has_try(tree: ast.Module) -> bool:
    """True if there is a `try` outside of functions."""
    ahead: list[ast.AST] = [tree]
    while ahead:
        node = ahead.pop()
        if isinstance(node, ast.Try):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for name in ("body", "orelse", "cases"):
                ahead.extend(
                    child for child in getattr(node, name, ()) if isinstance(child, ast.AST)
                )
    return False


@cache
def _compile(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern)


@cache
def _body_pattern(indent: int) -> re.Pattern[bytes]:
    """Return the pattern of the lines below a `def` that is indented this much."""
    return re.compile(rb"(?>(?:(?:[ ]{%d}|[ ]*+(?=[#\n]))%b(?:\n|\Z))*)" % (indent + 1, _REST))


# Excerpts of large generated files.
#
# Bindings of a whole interface have tens of thousands of statements, and load their library in one
# of them. A syntax tree takes some 60 times its source, so all others are omitted.


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
    #: Names that the statement defines or assigns.
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
        for name in statement.names:
            defining.setdefault(name, []).append(number)
    loading: set[bytes] = set()
    for statement in (statements[number] for number in selected):
        if has_loading_word(statement.text):
            loading.update(statement.names, _RENAMED.findall(statement.text))
    for number, statement in enumerate(statements if loading else ()):
        if number not in selected and not loading.isdisjoint(_WORD.findall(statement.text)):
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
        match = _DEFINES.match(text) or _ASSIGNS.match(text)
        names = frozenset(_WORD.findall(match[1])) if match else frozenset[bytes]()
        statements.append(_SourceStatement(begin, names, text))
        begin = None
    return statements
