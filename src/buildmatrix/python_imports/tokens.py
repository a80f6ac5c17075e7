"""Tokens of Python source of any version, on every interpreter.

`tokenize` knows the syntax of its own interpreter. This module knows the common syntax of all
Python versions, and strings with code inside (PEP 498, 701, 750).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

Kind = Literal["name", "number", "string", "code-string", "operator", "newline", "comment", "space"]

#: Depth of strings nested in the code of strings.
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


class InvalidSource(Exception):
    """The source is not valid in any version of Python."""


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of source, which begins at `start` and is `text`."""

    kind: Kind
    start: int
    text: str
    #: For a `code-string`: its literal pieces, with quotes, and the code between them.
    pieces: tuple[str, ...] = ()

    @property
    def end(self) -> int:
        """Offset of the next token."""
        return self.start + len(self.text)


def tokenize(text: str) -> Iterator[Token]:
    """Yield the tokens of `text`, which add up to it. Raises Broken."""
    at = 0
    while at < len(text):
        token = _read_token(text, at, 0)
        yield token
        at = token.end


def add_depths(items: Sequence[Token]) -> Iterator[tuple[Token, int]]:
    """Yield each token with the number of brackets around it; a bracket is outside of itself."""
    depth = 0
    for token in items:
        if token.kind == "operator" and token.text in _CLOSING:
            depth = max(0, depth - 1)
        yield token, depth
        if token.kind == "operator" and token.text in _OPENING:
            depth += 1


def _read_token(text: str, at: int, depth: int) -> Token:
    match = _TOKEN.match(text, at)
    if match is None:
        raise InvalidSource
    kind = cast(Kind, match.lastgroup)
    if kind != "string":
        return Token(kind, at, match[0])
    prefix, quotes = match[0].rstrip("\"'"), match[0].lstrip("rRbBuUfFtT")
    if not {"f", "t"} & {*prefix.lower()}:
        rest = _REST[quotes].match(text, match.end())
        if rest is None:
            raise InvalidSource
        return Token("string", at, text[at : rest.end()])
    stop, pieces = _read_code_string(
        text, match.end(), "r" if "r" in prefix.lower() else "", quotes, depth
    )
    return Token("code-string", at, text[at:stop], pieces)


def _read_code_string(
    text: str, at: int, prefix: str, quotes: str, depth: int
) -> tuple[int, tuple[str, ...]]:
    """Return the end of a string with code, and its pieces: literals and code in turn."""
    if depth > _DEEPEST:
        raise InvalidSource
    pieces: list[str] = []
    literal: list[str] = []
    while True:
        if text.startswith(quotes, at):
            pieces.append(_literal(prefix, quotes, literal))
            return at + len(quotes), tuple(pieces)
        sign = text[at : at + 2]
        if not sign or (sign[0] == "\n" and len(quotes) == 1):
            raise InvalidSource
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
            at, code = _read_code(text, at + 1, quotes, depth)
            pieces.append(code)
        else:
            literal.append(sign[0])
            at += 1


def _literal(prefix: str, quotes: str, signs: Sequence[str]) -> str:
    """Return a literal piece as a string of its own, with an escaped quote at its end."""
    if signs and signs[-1] == quotes[0]:
        signs = [*signs[:-1], f"\\{quotes[0]}"]
    return f"{prefix}{quotes}{''.join(signs)}{quotes}"


def _read_code(text: str, at: int, quotes: str, depth: int) -> tuple[int, str]:
    """Return the end of the code in a string, behind its `}`, and the expression in it."""
    if depth > _DEEPEST:
        raise InvalidSource
    brackets, start, end = 0, at, -1
    while True:
        if text.startswith("!=", at):
            at += 2
            continue
        token = _read_token(text, at, depth + 1)
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
        at = _skip_format(text, at, quotes, depth)
    if code.rstrip().endswith("=") and not code.rstrip().endswith(("==", "!=", "<=", ">=")):
        code = code.rstrip()[:-1]
    if not code.strip():
        raise InvalidSource
    return at, code


def _skip_format(text: str, at: int, quotes: str, depth: int) -> int:
    """Return the end of the format in a string, behind its `}`."""
    while True:
        if at >= len(text) or text.startswith(quotes, at):
            raise InvalidSource
        if text[at] == "}":
            return at + 1
        at = _read_code(text, at + 1, quotes, depth + 1)[0] if text[at] == "{" else at + 1
