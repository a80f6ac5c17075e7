"""Partial parsing of Python that the running interpreter's parser rejects.

A wheel may be for a newer Python than the scanner's. Syntax of newer versions is rewritten to
syntax that every parser accepts (type parameters, PEP 695; strings with code, PEP 701 and 750;
`except A, B`, PEP 758; `lazy import`, PEP 810). Statements that are still invalid are omitted and
reported; all others are read. Line numbers do not change.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
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
#: The next sign of a string with code, by the prefix `r`; a name in braces is no code.
_SIGN = {
    prefix: re.compile(names + r"\{\{|\}\}|\\(?=[{}])|\\?[\s\S]")
    for prefix, names in (("", r"\\N\{[^}]*\}?|"), ("r", ""))
}
#: Signs that are written otherwise in a string without code.
_UNESCAPED = {"{{": "{", "}}": "}", "\\": "\\\\"}
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
    prefix, quotes = match[0].rstrip("\"'").lower(), match[0].lstrip("rRbBuUfFtT")
    if {"f", "t"} & {*prefix}:
        raw = "r" if "r" in prefix else ""
        stop, pieces = _read_code_string(text, match.end(), raw, quotes, depth)
        return Token("code-string", at, text[at:stop], pieces)
    rest = _REST[quotes].match(text, match.end())
    if rest is None:
        raise InvalidSource
    return Token("string", at, text[at : rest.end()])


def _read_code_string(
    text: str, at: int, prefix: str, quotes: str, depth: int
) -> tuple[int, tuple[str, ...]]:
    """Return the end of a string with code, and its pieces: literals and code in turn."""
    pieces: list[str] = []
    literal: list[str] = []
    while not text.startswith(quotes, at):
        match = _SIGN[prefix].match(text, at)
        if match is None or (match[0] == "\n" and len(quotes) == 1):
            raise InvalidSource
        at = match.end()
        if match[0] == "{":
            pieces.append(_literal(prefix, quotes, literal))
            literal.clear()
            at, code = _read_code(text, at, quotes, depth)
            pieces.append(code)
        else:
            literal.append(_UNESCAPED.get(match[0], match[0]))
    return at + len(quotes), (*pieces, _literal(prefix, quotes, literal))


def _literal(prefix: str, quotes: str, signs: Sequence[str]) -> str:
    """Return a literal piece as a string of its own, with an escaped quote at its end."""
    if signs and signs[-1] == quotes[0]:
        signs = [*signs[:-1], f"\\{quotes[0]}"]
    return f"{prefix}{quotes}{''.join(signs)}{quotes}"


def _read_code(text: str, at: int, quotes: str, depth: int) -> tuple[int, str]:
    """Return the end of the code in a string, behind its `}`, and the expression in it."""
    if depth > _DEEPEST_BRACKETS:
        raise InvalidSource
    brackets, start = 0, at
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
            break
    code = text[start : token.start].rstrip()
    if code.endswith("=") and not code.endswith(("==", "!=", "<=", ">=")):
        code = code[:-1]
    if not code.strip():
        raise InvalidSource
    if token.text != "}":
        # A format, which begins with one sign: `:=` is none.
        at = token.start + 1
        while text[at : at + 1] != "}":
            if at >= len(text) or text.startswith(quotes, at):
                raise InvalidSource
            is_code = text[at] == "{"
            at = _read_code(text, at + 1, quotes, depth + 1)[0] if is_code else at + 1
        at += 1
    return at, code


# Parser


#: Depth of nested blocks searched for the invalid statement.
_DEEPEST = 12
#: Text parsed in that search below module level, as a multiple of the file's length.
_MOST_PARSED = 6
_GOES_ON = frozenset({"else", "elif", "except", "finally"})


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
    source = source.removeprefix(b"\xef\xbb\xbf")
    try:
        text = source.decode()
    except ValueError:
        text = source.decode("latin-1")  # accepts all bytes
    try:
        lines = _logical_lines(re.sub(r"\r\n?", "\n", text))
        rewritten = "".join(map(_rewrite_line, lines))
    except InvalidSource:
        return None
    return _Repair(rewritten.split("\n"), lines).all()


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


def _rewrite_line(line: _Line) -> str:
    """Return the text of a line in syntax that every parser accepts, in as many physical lines."""
    texts = {token.start: token.text for token in line.tokens}
    if signs := line.signs:
        if line.tokens[0].kind == "space":
            texts[line.tokens[0].start] = " " * line.indent
        _rewrite_strings(signs, texts)
        _rewrite_words(signs, texts)
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
    """Return a string with code as a sum, in which code has plain strings and no comments."""
    pieces = list(token.pieces)
    for number, code in enumerate(pieces[1::2]):
        code_tokens = [item for item in tokenize(code) if item.kind != "comment"]
        texts = {item.start: item.text for item in code_tokens}
        signs = [item for item in code_tokens if item.kind not in ("space", "newline")]
        _rewrite_strings(signs, texts)
        pieces[2 * number + 1] = f"({''.join(texts.values())})"
    return "+".join(pieces)


def _rewrite_words(signs: Sequence[Token], texts: dict[int, str]) -> None:
    """Rewrite a statement by its first words."""
    words = [token.text for token in signs[:3]]
    dropped: Sequence[Token] = ()
    at = 3 if words[:2] == ["async", "def"] else 2 if words[0] in ("def", "class") else len(signs)
    if at < len(signs) and signs[at].text == "[":
        # Type parameters: `def f[T](x)` and `class A[T]:`.
        depths = enumerate(add_depths(signs[at:]), at + 1)
        ends = (end for end, (token, depth) in depths if token.text == "]" and not depth)
        dropped = signs[at : next(ends, len(signs))]
    elif words[0] == "type" and words[2:] in (["="], ["["]) and signs[1].kind == "name":
        # The value of an alias is evaluated only when it is used.
        dropped = signs
    elif words[0] == "lazy" and words[1:2] in (["import"], ["from"]):
        # It runs when the name is used.
        texts[signs[0].start] = "if 0:"
    elif words[0] == "except":
        _rewrite_except(signs, texts)
    for start in texts if dropped else ():
        if dropped[0].start <= start <= dropped[-1].start:
            texts[start] = ""
    if dropped is signs:
        texts[signs[0].start] = "pass"


def _rewrite_except(signs: Sequence[Token], texts: dict[int, str]) -> None:
    """Rewrite `except A, B:` (PEP 758)."""
    at_top = {token.text: token for token, depth in add_depths(signs) if not depth}
    if {",", ":"} <= at_top.keys() and "as" not in at_top:
        start = signs[2 if signs[1].text == "*" else 1].start
        texts[start] = f"({texts[start]}"
        texts[at_top[":"].start] = "):"


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
        if (tree := self._parse_all()) is None:
            self._block(self._lines, 0)
            tree = self._parse_all()
        return None if tree is None else RepairedTree(tree, tuple(self._lost))

    def _parse_all(self) -> ast.Module | None:
        return _try_parse(self._text(0, len(self._physical)))

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
        self._lost.append(first + 1)
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
