"""Tokens of Python source, whichever version it is for; the same on every interpreter.

`tokenize` knows the syntax of the interpreter that it runs on. This knows what all versions of
Python have in common, and strings with code inside (PEP 498, 701, 750).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

Kind = Literal["name", "number", "string", "code-string", "operator", "newline", "comment", "space"]

#: Strings inside of the code of strings.
_DEEPEST = 20
_TOKEN = re.compile(
    r"(?P<space>(?:[ \t\f]|\\\n)+)|(?P<comment>\#[^\n]*)|(?P<newline>\n)"
    r"|(?P<string>[rRbBuUfFtT]{0,2}(?:\"\"\"|'''|\"|'))"
    r"|(?P<name>[^\W\d]\w*)|(?P<number>\.?\d(?:[eE][-+]\d|[\w.])*)"
    r"|(?P<operator><>|[<>=!]=|->|:=|\S)"
)
#: The rest of a string, by its quotes.
_REST = {
    '"': re.compile(r'[^\\"\n]*(?:\\.[^\\"\n]*)*"', re.DOTALL),
    "'": re.compile(r"[^\\'\n]*(?:\\.[^\\'\n]*)*'", re.DOTALL),
    '"""': re.compile(r'[^\\"]*(?:(?:\\.|"(?!""))[^\\"]*)*"""', re.DOTALL),
    "'''": re.compile(r"[^\\']*(?:(?:\\.|'(?!''))[^\\']*)*'''", re.DOTALL),
}
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


class Broken(Exception):
    """Source that is no Python of any version."""


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of source, which begins at `start` and is `text`."""

    kind: Kind
    start: int
    text: str
    #: Of a `code-string`: its literal pieces, with quotes, and the code between them.
    pieces: tuple[str, ...] = ()

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.start + len(self.text)


def tokens(text: str) -> Iterator[Token]:
    """All tokens of `text`, which together are all of it. Raises Broken."""
    at = 0
    while at < len(text):
        token = _token(text, at, 0)
        yield token
        at = token.end


def depths(items: Sequence[Token]) -> Iterator[tuple[Token, int]]:
    """Each token with the number of brackets around it; a bracket counts as outside of itself."""
    depth = 0
    for token in items:
        if token.kind == "operator" and token.text in _CLOSING:
            depth = max(0, depth - 1)
        yield token, depth
        if token.kind == "operator" and token.text in _OPENING:
            depth += 1


def _token(text: str, at: int, depth: int) -> Token:
    match = _TOKEN.match(text, at)
    if match is None:
        raise Broken
    kind = cast(Kind, match.lastgroup)
    if kind != "string":
        return Token(kind, at, match[0])
    prefix, quotes = match[0].rstrip("\"'"), match[0].lstrip("rRbBuUfFtT")
    if not {"f", "t"} & {*prefix.lower()}:
        rest = _REST[quotes].match(text, match.end())
        if rest is None:
            raise Broken
        return Token("string", at, text[at : rest.end()])
    stop, pieces = _with_code(
        text, match.end(), "r" if "r" in prefix.lower() else "", quotes, depth
    )
    return Token("code-string", at, text[at:stop], pieces)


def _with_code(
    text: str, at: int, prefix: str, quotes: str, depth: int
) -> tuple[int, tuple[str, ...]]:
    """Where a string with code ends, and its pieces: literals at even places, code at odd ones."""
    if depth > _DEEPEST:
        raise Broken
    pieces: list[str] = []
    literal: list[str] = []
    while True:
        if text.startswith(quotes, at):
            pieces.append(_literal(prefix, quotes, literal))
            return at + len(quotes), tuple(pieces)
        sign = text[at : at + 2]
        if not sign or (sign[0] == "\n" and len(quotes) == 1):
            raise Broken
        if sign in ("{{", "}}"):
            literal.append(sign[0])
            at += 2
        elif sign == "\\N" and text[at + 2 : at + 3] == "{" and not prefix:
            stop = text.find("}", at) + 1 or len(text)
            literal.append(text[at:stop])
            at = stop
        elif sign in ("\\{", "\\}"):
            literal.append("\\\\")
            at += 1
        elif sign[0] == "\\":
            literal.append(sign)
            at += 2
        elif sign[0] == "{":
            pieces.append(_literal(prefix, quotes, literal))
            literal = []
            at, code = _code(text, at + 1, quotes, depth)
            pieces.append(code)
        else:
            literal.append(sign[0])
            at += 1


def _literal(prefix: str, quotes: str, signs: Sequence[str]) -> str:
    """A literal piece as a string of its own; a quote at its end does not end it too early."""
    if signs and signs[-1] == quotes[0]:
        signs = [*signs[:-1], f"\\{quotes[0]}"]
    return f"{prefix}{quotes}{''.join(signs)}{quotes}"


def _code(text: str, at: int, quotes: str, depth: int) -> tuple[int, str]:
    """Where the code in a string ends, behind its `}`, and the expression in it."""
    if depth > _DEEPEST:
        raise Broken
    brackets, start, end = 0, at, -1
    while True:
        if text.startswith("!=", at):
            at += 2
            continue
        token = _token(text, at, depth + 1)
        at = token.end
        if token.kind != "operator":
            continue
        if token.text in _OPENING:
            brackets += 1
        elif brackets and token.text in _CLOSING:
            brackets -= 1
        elif not brackets and token.text[0] in "!:}":
            end = token.start
            if token.text == ":=":
                at = token.start + 1
            break
    code = text[start:end]
    if text[end] != "}":
        at = _format(text, at, quotes, depth)
    if code.rstrip().endswith("=") and not code.rstrip().endswith(("==", "!=", "<=", ">=")):
        code = code.rstrip()[:-1]
    if not code.strip():
        raise Broken
    return at, code


def _format(text: str, at: int, quotes: str, depth: int) -> int:
    """Where the format in a string ends, behind its `}`."""
    while True:
        if at >= len(text) or text.startswith(quotes, at):
            raise Broken
        if text[at] == "}":
            return at + 1
        at = _code(text, at + 1, quotes, depth + 1)[0] if text[at] == "{" else at + 1
