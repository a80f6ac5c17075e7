"""Partial parsing of Python that the running interpreter's parser rejects.

A wheel may be for a newer Python than the scanner's. Syntax of newer versions is rewritten to
syntax that every parser accepts (type parameters, PEP 695; strings with code, PEP 701 and 750;
`except A, B`, PEP 758; `lazy import`, PEP 810). Statements that are still invalid are omitted and
reported; all others are read. Line numbers do not change.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, cast

from buildmatrix.facts.python_imports.parser import OtherSyntax, parse, parse_with_lock

# Tokens. `tokenize` knows the syntax of its own interpreter. This module knows the common syntax of
# all Python versions, and strings with code inside (PEP 498, 701, 750).


Kind = Literal["name", "number", "string", "code-string", "operator", "newline", "comment", "space"]

#: Depth of strings nested in the code of strings.
_DEEPEST_BRACKETS = 20
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
    if depth > _DEEPEST_BRACKETS:
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
    if depth > _DEEPEST_BRACKETS:
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


# Parser


#: Depth of nested blocks searched for the invalid statement.
_DEEPEST = 12
#: Text parsed in that search below module level, as a multiple of the file's length.
_MOST_PARSED = 6
_GOES_ON = frozenset({"else", "elif", "except", "finally"})
_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RepairedTree:
    """The readable part of a file."""

    tree: ast.Module
    #: Line numbers of the omitted statements.
    lost: tuple[int, ...] = ()


def read_tree(source: bytes) -> RepairedTree:
    """Parse a Python file as far as possible. Raises Unparsable."""
    try:
        return RepairedTree(parse(source))
    except OtherSyntax:
        read = repair(source)
        if read is None:
            raise
        return read


def repair(source: bytes) -> RepairedTree | None:
    """Return the readable part of a file that does not parse; None if there is none."""
    text = _decode(source)
    try:
        lines = _logical_lines(text)
        rewritten = "".join(_rewrite_lines(lines))
    except InvalidSource:
        return None
    return _Repair(rewritten.split("\n"), lines).all()


def _decode(source: bytes) -> str:
    """Decode a file: as UTF-8, by its cookie, or as Latin-1, which accepts all bytes."""
    source = source.removeprefix(b"\xef\xbb\xbf")
    cookie = _COOKIE.search(b"\n".join(source[:1000].split(b"\n")[:2]))
    for name in ("utf-8", cookie[1].decode("ascii", "replace") if cookie else "latin-1"):
        try:
            text = source.decode(name)
            break
        except (ValueError, LookupError):
            text = source.decode("latin-1")
    return re.sub(r"\r\n?", "\n", text)


@dataclass(frozen=True, slots=True)
class _Line:
    """One logical line: physical lines joined by a bracket, a string or a backslash."""

    tokens: tuple[Token, ...]
    #: Numbers of its first and last physical line, counted from 0.
    first: int
    last: int

    @property
    def signs(self) -> list[Token]:
        """Tokens without spaces and comments."""
        return [token for token in self.tokens if token.kind not in ("space", "comment", "newline")]

    @property
    def indent(self) -> int:
        """Columns before its first sign."""
        first = self.tokens[0]
        return len(first.text.expandtabs(8)) if first.kind == "space" else 0

    @property
    def word(self) -> str:
        """First sign, or nothing."""
        return next((token.text for token in self.signs), "")


def _logical_lines(text: str) -> list[_Line]:
    lines: list[_Line] = []
    held: list[Token] = []
    first = number = 0
    for token, depth in add_depths(list(tokenize(text))):
        held.append(token)
        number += token.text.count("\n")
        if token.kind == "newline" and not depth:
            lines.append(_Line(tuple(held), first, number - 1))
            held, first = [], number
    if held:
        lines.append(_Line(tuple(held), first, number))
    return lines


# Syntax of other versions


def _rewrite_lines(lines: Sequence[_Line]) -> Iterator[str]:
    """Yield the text of each line in syntax that every parser accepts."""
    for line in lines:
        texts = {token.start: token.text for token in line.tokens}
        signs = line.signs
        if signs:
            if line.tokens[0].kind == "space":
                texts[line.tokens[0].start] = " " * line.indent
            _rewrite_strings(signs, texts)
            _remove_type_parameters(line, texts)
            _rewrite_first_word(line, texts)
        yield _pad_lines(line, texts)


def _pad_lines(line: _Line, texts: Mapping[int, str]) -> str:
    """Return the rewritten text of `line`, with as many physical lines as before."""
    text = "".join(texts[token.start] for token in line.tokens)
    missing = sum(token.text.count("\n") for token in line.tokens) - text.count("\n")
    if missing <= 0:
        return text
    end = [token for token in line.tokens if token.kind not in ("space", "comment")][-1]
    held = [token for token in line.tokens if token is not end and token.kind != "comment"]
    return "".join(texts[token.start] for token in held) + " \\\n" * missing + texts[end.start]


def _rewrite_strings(signs: Sequence[Token], texts: dict[int, str]) -> None:
    """Rewrite strings with code as sums, each together with adjacent strings."""
    run: list[Token] = []
    for token in (*signs, None):
        if token is not None and token.kind in ("string", "code-string"):
            run.append(token)
            continue
        if any(part.kind == "code-string" for part in run):
            for number, item in enumerate(run):
                added = _make_sum(item) if item.pieces else texts[item.start]
                texts[item.start] = f"+{added}" if number else f"({added}"
            texts[run[-1].start] += ")"
        run = []


def _make_sum(token: Token) -> str:
    pieces = (
        _plain_code(piece) if number % 2 else piece for number, piece in enumerate(token.pieces)
    )
    return "+".join(pieces)


def _plain_code(code: str) -> str:
    """Return the code in a string, with plain strings and without comments."""
    code_tokens = [token for token in tokenize(code) if token.kind != "comment"]
    texts = {token.start: token.text for token in code_tokens}
    _rewrite_strings(
        [token for token in code_tokens if token.kind not in ("space", "newline")], texts
    )
    return f"({''.join(texts[token.start] for token in code_tokens)})"


def _remove_type_parameters(line: _Line, texts: dict[int, str]) -> None:
    """Remove the brackets and their contents in `def f[T](x)` and `class A[T]:`."""
    signs = line.signs
    words = [token.text for token in signs[:2]]
    at = 2 if words[:1] in (["def"], ["class"]) else 3 if words == ["async", "def"] else 0
    if not at or len(signs) <= at or signs[at].text != "[":
        return
    closing = (token for token, depth in add_depths(signs[at:]) if token.text == "]" and not depth)
    _blank(line, texts, signs[at], next(closing, signs[-1]))


def _blank(line: _Line, texts: dict[int, str], first: Token, last: Token) -> None:
    for token in line.tokens:
        if first.start <= token.start <= last.start:
            texts[token.start] = ""


def _rewrite_first_word(line: _Line, texts: dict[int, str]) -> None:
    signs = line.signs
    words = [token.text for token in signs[:3]]
    if words[0] == "type" and len(words) > 2 and signs[1].kind == "name" and words[2] in ("=", "["):
        # Its value is evaluated only when it is used.
        _blank(line, texts, signs[0], signs[-1])
        texts[signs[0].start] = "pass"
    elif words[0] == "lazy" and words[1:2] in (["import"], ["from"]):
        # It runs when the name is used.
        texts[signs[0].start] = "if 0:"
    elif words[0] == "except":
        _rewrite_except(signs, texts)


def _rewrite_except(signs: Sequence[Token], texts: dict[int, str]) -> None:
    """Rewrite `except A, B:` (PEP 758)."""
    at_top = [token for token, depth in add_depths(signs) if not depth]
    commas = [item for item in at_top if item.text == ","]
    colon = next((item for item in at_top if item.text == ":"), None)
    if not commas or colon is None or any(item.text == "as" for item in at_top):
        return
    start = 2 if signs[1].text == "*" else 1
    texts[signs[start].start] = f"({texts[signs[start].start]}"
    texts[colon.start] = "):"


# Invalid statements


class _Repair:
    """Finds the statements that do not parse, block by block."""

    def __init__(self, physical: list[str], lines: Sequence[_Line]) -> None:
        self._physical = physical
        self._lines = [line for line in lines if line.signs]
        self._lost: list[int] = []
        self._budget = _MOST_PARSED * sum(len(text_line) + 1 for text_line in physical)

    def all(self) -> RepairedTree | None:
        """Return the tree of everything that parses; None if impossible."""
        tree = _try_parse(self._text(0, len(self._physical)))
        if tree is None:
            self._block(self._lines, 0)
            tree = _try_parse(self._text(0, len(self._physical)))
        return (
            None if tree is None else RepairedTree(tree, tuple(number + 1 for number in self._lost))
        )

    def _text(self, first: int, stop: int) -> str:
        return "\n".join(self._physical[first:stop]) + "\n"

    def _parses(self, text: str) -> bool:
        self._budget -= len(text)
        return self._budget >= 0 and _try_parse(text) is not None

    def _block(self, lines: Sequence[_Line], depth: int) -> None:
        """Omit the statements of one block that do not parse."""
        for statement in _group(lines, lines[0].indent if lines else 0, decorators=True):
            text = self._text(statement[0].first, statement[-1].last + 1)
            if statement[0].indent:
                text = f"if 1:\n{text}"
            if not (self._parses(text) if depth else _try_parse(text)):
                self._statement(statement, depth)

    def _statement(self, lines: Sequence[_Line], depth: int) -> None:
        clauses = list(_group(lines, lines[0].indent, decorators=False))
        skeleton = "".join(
            self._text(item[0].first, item[0].last + 1)
            + (" " * (item[0].indent + 1) + "pass\n" if len(item) > 1 else "")
            for item in clauses
        )
        if lines[0].indent:
            skeleton = f"if 1:\n{skeleton}"
        if len(lines) > 1 and depth < _DEEPEST and self._parses(skeleton):
            for clause in clauses:
                if len(clause) > 1:
                    self._block(clause[1:], depth + 1)
            return
        first = lines[0].first
        self._lost.append(first)
        self._physical[first] = " " * lines[0].indent + "pass"
        for number in range(first + 1, lines[-1].last + 1):
            self._physical[number] = ""


def _group(lines: Sequence[_Line], indent: int, *, decorators: bool) -> Iterator[Sequence[_Line]]:
    """Yield the statements of a block, or, without `decorators`, the clauses of a statement."""
    starts: list[int] = []
    is_decorated = False
    for number, line in enumerate(lines):
        if line.indent > indent and starts:
            continue
        if not (decorators and starts and (is_decorated or line.word in _GOES_ON)):
            starts.append(number)
        is_decorated = line.word == "@"
    for start, stop in pairwise([*starts, len(lines)]):
        yield lines[start:stop]


def _try_parse(text: str) -> ast.Module | None:
    try:
        return parse_with_lock(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
