"""A Python file without the bodies of most functions, which are parsed when they are called.

An import runs the statements of a module and few of its functions, and a syntax tree takes ten
times as long as this. Left out is a body that holds no import. Where the
bytes leave any doubt about what is a body and what is not, there is no skeleton.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from buildmatrix.python_imports.parser import Unparsable, parse

#: Without the quantifiers of this version that never go back, hostile source would take minutes.
#: Groups are repeated in an atomic group: before 3.11.5, and so in Debian 12, `*+` behind a group
#: keeps what a repetition that failed has read (python/cpython#106052).
_LEAST_PYTHON = (3, 11)
#: Columns of a `def` whose body may be left out.
_DEEPEST = 40
#: What is a line or a column to some parsers: tabs, form feeds, carriage returns, and NUL.
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


def _strings() -> bytes:
    """A pattern of all strings, from their quotes on."""
    patterns = []
    for quotes, signs in ((b'"""', rb'[^"\\%s]'), (b"'''", rb"[^'\\%s]")):
        quote = quotes[:1]
        for mark, more in (
            (quotes, rb"|%b(?!%b%b)" % (quote, quote, quote)),
            (quote, b""),
        ):
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


_STRING = _strings()
#: What belongs to a line, but for its end.
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
#: An import stands at the beginning of a line, or behind one of two signs.
_IMPORT_INSIDE = re.compile(rb"(?:^|[;:])[ ]*(?:import|from)\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A file with all its lines, in which `0` stands for the bodies that are left out."""

    text: bytes
    #: Line of a `def` → where the function begins in the file, and where it ends.
    functions: Mapping[int, tuple[int, int]]


def skeleton(source: bytes) -> Skeleton | None:
    """`source` without the bodies that an import need not run; None where that is in doubt."""
    if sys.version_info < _LEAST_PYTHON:
        return None
    if any(sign in source for sign in _DOUBTFUL) or _OTHER_ENCODING.match(source):
        return None
    signature_at, up_to_function = _pattern(_SIGNATURE), _pattern(_UP_TO_FUNCTION)
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
        body = _body(indent).match(source, start) if indent <= _DEEPEST else None
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


class LeftOutBodies:
    """The functions of a file whose bodies are not parsed yet."""

    def __init__(self, source: bytes, functions: Mapping[int, tuple[int, int]]) -> None:
        self._source = source
        self._functions = dict(functions)

    def take(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bytes | None:
        """The text of a function to `fill` it with, once; None for one that is whole."""
        place = self._functions.pop(function.lineno, None)
        if place is None:
            return None
        text = self._source[slice(*place)]
        return b"if 1:\n" + text if function.col_offset else text


NOTHING_LEFT_OUT = LeftOutBodies(b"", {})


def first_line(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The line of the file that the text of a function begins at."""
    return function.lineno - (1 if function.col_offset else 0)


def fill(function: ast.FunctionDef | ast.AsyncFunctionDef, tree: ast.Module) -> None:
    """Put the body that was parsed from the text of `function` into its place."""
    ast.increment_lineno(tree, first_line(function) - 1)
    inner: ast.AST = tree
    while not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
        # A module, or the `if` around it.
        assert isinstance(inner, (ast.Module, ast.If))
        inner = inner.body[0]
    function.body = inner.body


def parse_skeleton(source: bytes) -> tuple[ast.Module, LeftOutBodies] | None:
    """The tree of a file without bodies, and these; None where the whole file is to be parsed.

    What a `try` of the module means depends on what other statements do with its names.
    """
    stripped = skeleton(source)
    if stripped is None or not stripped.functions:
        return None
    try:
        tree = parse(stripped.text)
    except Unparsable:
        return None
    return None if _has_try(tree) else (tree, LeftOutBodies(source, stripped.functions))


def _has_try(tree: ast.Module) -> bool:
    """Whether there is a `try` outside of functions."""
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
def _pattern(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern)


@cache
def _body(indent: int) -> re.Pattern[bytes]:
    """The lines below a `def` with so many spaces before it."""
    return re.compile(rb"(?>(?:(?:[ ]{%d}|[ ]*+(?=[#\n]))%b(?:\n|\Z))*)" % (indent + 1, _REST))
