"""Reads Python that the running interpreter's parser does not take, as far as that goes.

A wheel may be for a newer Python than the scanner runs on. What only the syntax of a newer version
makes different is written anew in one that every parser takes (type parameters, PEP 695; strings
with code, PEP 701 and 750; `except A, B`, PEP 758; `lazy import`, PEP 810). Statements that are no
Python even then are left out and reported; all others are read. Lines keep their numbers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from buildmatrix.python_imports.parser import OtherSyntax, parse, syntax_tree
from buildmatrix.python_imports.tokens import Broken, Token, depths, tokens

#: Blocks inside of blocks that are searched for the statement that does not parse.
_DEEPEST = 12
#: Times the length of a file that may be parsed to find them, below the level of the module.
_MOST_PARSED = 6
_GOES_ON = frozenset({"else", "elif", "except", "finally"})
_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Repaired:
    """What could be read."""

    tree: ast.Module
    #: Numbers of the lines at which statements begin that were left out.
    lost: tuple[int, ...] = ()


def read_tree(source: bytes) -> Repaired:
    """The syntax tree of a Python file, as far as it can be read. Raises Unparsable."""
    try:
        return Repaired(parse(source))
    except OtherSyntax:
        read = repaired(source)
        if read is None:
            raise
        return read


def repaired(source: bytes) -> Repaired | None:
    """What can be read of a file that does not parse as it is; None for nothing."""
    text = _decoded(source)
    try:
        lines = _logical_lines(text)
        rewritten = "".join(_rewritten(lines))
    except Broken:
        return None
    return _Repair(rewritten.split("\n"), lines).all()


def _decoded(source: bytes) -> str:
    """The text of a file: UTF-8, or what its cookie says, or Latin-1, which takes all bytes."""
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
    """One logical line: physical ones that a bracket, a string or a backslash joins."""

    tokens: tuple[Token, ...]
    #: Numbers of its first and last physical line, from 0 on.
    first: int
    last: int

    @property
    def signs(self) -> list[Token]:
        """Its tokens without spaces and comments."""
        return [token for token in self.tokens if token.kind not in ("space", "comment", "newline")]

    @property
    def indent(self) -> int:
        """Columns before its first sign."""
        first = self.tokens[0]
        return len(first.text.expandtabs(8)) if first.kind == "space" else 0

    @property
    def word(self) -> str:
        """Its first sign, or nothing."""
        return next((token.text for token in self.signs), "")


def _logical_lines(text: str) -> list[_Line]:
    lines: list[_Line] = []
    held: list[Token] = []
    first = number = 0
    for token, depth in depths(list(tokens(text))):
        held.append(token)
        number += token.text.count("\n")
        if token.kind == "newline" and not depth:
            lines.append(_Line(tuple(held), first, number - 1))
            held, first = [], number
    if held:
        lines.append(_Line(tuple(held), first, number))
    return lines


# Syntax of other versions


def _rewritten(lines: Sequence[_Line]) -> Iterator[str]:
    """The text of each line, in syntax that every parser takes."""
    for line in lines:
        texts = {token.start: token.text for token in line.tokens}
        signs = line.signs
        if signs:
            if line.tokens[0].kind == "space":
                texts[line.tokens[0].start] = " " * line.indent
            _strings(signs, texts)
            _parameters(line, texts)
            _first_word(line, texts)
        yield _with_all_lines(line, texts)


def _with_all_lines(line: _Line, texts: Mapping[int, str]) -> str:
    """What `line` became, with as many physical lines as it had."""
    text = "".join(texts[token.start] for token in line.tokens)
    missing = sum(token.text.count("\n") for token in line.tokens) - text.count("\n")
    if missing <= 0:
        return text
    end = [token for token in line.tokens if token.kind not in ("space", "comment")][-1]
    held = [token for token in line.tokens if token is not end and token.kind != "comment"]
    return "".join(texts[token.start] for token in held) + " \\\n" * missing + texts[end.start]


def _strings(signs: Sequence[Token], texts: dict[int, str]) -> None:
    """Strings with code as sums, each together with the strings beside it."""
    run: list[Token] = []
    for token in (*signs, None):
        if token is not None and token.kind in ("string", "code-string"):
            run.append(token)
            continue
        if any(part.kind == "code-string" for part in run):
            for number, item in enumerate(run):
                added = _sum(item) if item.pieces else texts[item.start]
                texts[item.start] = f"+{added}" if number else f"({added}"
            texts[run[-1].start] += ")"
        run = []


def _sum(token: Token) -> str:
    pieces = (_plain(piece) if number % 2 else piece for number, piece in enumerate(token.pieces))
    return "+".join(pieces)


def _plain(code: str) -> str:
    """The code in a string, whose own strings have none, and which has no comments."""
    code_tokens = [token for token in tokens(code) if token.kind != "comment"]
    texts = {token.start: token.text for token in code_tokens}
    _strings([token for token in code_tokens if token.kind not in ("space", "newline")], texts)
    return f"({''.join(texts[token.start] for token in code_tokens)})"


def _parameters(line: _Line, texts: dict[int, str]) -> None:
    """`def f[T](x)` and `class A[T]:` without what stands in the brackets."""
    signs = line.signs
    words = [token.text for token in signs[:2]]
    at = 2 if words[:1] in (["def"], ["class"]) else 3 if words == ["async", "def"] else 0
    if not at or len(signs) <= at or signs[at].text != "[":
        return
    closing = (token for token, depth in depths(signs[at:]) if token.text == "]" and not depth)
    _blank(line, texts, signs[at], next(closing, signs[-1]))


def _blank(line: _Line, texts: dict[int, str], first: Token, last: Token) -> None:
    for token in line.tokens:
        if first.start <= token.start <= last.start:
            texts[token.start] = ""


def _first_word(line: _Line, texts: dict[int, str]) -> None:
    signs = line.signs
    words = [token.text for token in signs[:3]]
    if words[0] == "type" and len(words) > 2 and signs[1].kind == "name" and words[2] in ("=", "["):
        # Its value is not evaluated before it is used.
        _blank(line, texts, signs[0], signs[-1])
        texts[signs[0].start] = "pass"
    elif words[0] == "lazy" and words[1:2] in (["import"], ["from"]):
        # It is run when the name is used.
        texts[signs[0].start] = "if 0:"
    elif words[0] == "except":
        _except(signs, texts)


def _except(signs: Sequence[Token], texts: dict[int, str]) -> None:
    """`except A, B:` (PEP 758)."""
    at_top = [token for token, depth in depths(signs) if not depth]
    commas = [item for item in at_top if item.text == ","]
    colon = next((item for item in at_top if item.text == ":"), None)
    if not commas or colon is None or any(item.text == "as" for item in at_top):
        return
    start = 2 if signs[1].text == "*" else 1
    texts[signs[start].start] = f"({texts[signs[start].start]}"
    texts[colon.start] = "):"


# Statements that are no Python


class _Repair:
    """Finds the statements that do not parse, block by block."""

    def __init__(self, physical: list[str], lines: Sequence[_Line]) -> None:
        self._physical = physical
        self._lines = [line for line in lines if line.signs]
        self._lost: list[int] = []
        self._budget = _MOST_PARSED * sum(len(text_line) + 1 for text_line in physical)

    def all(self) -> Repaired | None:
        """The tree of everything that parses; None where that cannot be had."""
        tree = _parsed(self._text(0, len(self._physical)))
        if tree is None:
            self._block(self._lines, 0)
            tree = _parsed(self._text(0, len(self._physical)))
        return None if tree is None else Repaired(tree, tuple(number + 1 for number in self._lost))

    def _text(self, first: int, stop: int) -> str:
        return "\n".join(self._physical[first:stop]) + "\n"

    def _parses(self, text: str) -> bool:
        self._budget -= len(text)
        return self._budget >= 0 and _parsed(text) is not None

    def _block(self, lines: Sequence[_Line], depth: int) -> None:
        """Leave out what does not parse among the statements of one block."""
        for statement in _grouped(lines, lines[0].indent if lines else 0, decorators=True):
            text = self._text(statement[0].first, statement[-1].last + 1)
            if statement[0].indent:
                text = f"if 1:\n{text}"
            if not (self._parses(text) if depth else _parsed(text)):
                self._statement(statement, depth)

    def _statement(self, lines: Sequence[_Line], depth: int) -> None:
        clauses = list(_grouped(lines, lines[0].indent, decorators=False))
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


def _grouped(lines: Sequence[_Line], indent: int, *, decorators: bool) -> Iterator[Sequence[_Line]]:
    """Statements of a block, or, without their `decorators`, the clauses of one statement."""
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


def _parsed(text: str) -> ast.Module | None:
    try:
        return syntax_tree(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
