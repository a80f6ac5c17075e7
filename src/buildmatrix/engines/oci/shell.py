"""Reader of a subset of the shell: a script as nested commands, nothing expanded.

What is not in the subset raises `Effect` with its line. Format: POSIX.1-2017, "Shell Command
Language".
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

#: Maximum depth of commands.
DEEPEST: Final = 30
_TOKEN = re.compile(r"(;;|&&|\|\||[0-9]?(?:>&|>>|<<|<&|>|<)|[;&|()\n])")
_BARE = re.compile(r"[^\s;&|()<>$`\"'\\#{}]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARAMETER = re.compile(
    r"\$(?:([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?])|\{([A-Za-z_][A-Za-z0-9_]*|[0-9])(?::-([\w./-]*))?\})"
)
#: Another expansion, which is read and never followed.
_OTHER_PARAMETER = re.compile(r"\$\{(?:[^{}`\\'$]|\$[A-Za-z_]+)*\}")
_KEYWORD = re.compile(r"[a-z{}!\[]+(?=[ \t\n;&|()]|\Z)")
_PLAIN_IN_QUOTES = re.compile(r'[^"$`\\]+')
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_CLOSERS: Final = frozenset({"then", "else", "elif", "fi", "do", "done", "esac", "}"})
#: Bodies of functions that look for a program on PATH: Debian Developer's Reference, 6.4.
_PATHFIND: Final = (
    'OLDIFS="$IFS" IFS=: for p in $PATH; do if [ -x "$p/$*" ]; then IFS="$OLDIFS" return 0 fi '
    'done IFS="$OLDIFS" return 1'
)


class Effect(Exception):
    """A line of a script that has an effect, or that is not understood."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


class Part(Struct, frozen=True):
    """Text, or a parameter with its default, or the commands of a substitution."""

    text: str
    is_quoted: bool
    parameter: str = ""
    commands: Block | None = None


Word = tuple[Part, ...]


class Simple(Struct, frozen=True):
    """A command with its words, assignments and redirections."""

    line: int
    words: tuple[Word, ...]
    assignments: tuple[tuple[str, Word], ...]
    redirections: tuple[tuple[str, Word], ...]


class Chain(Struct, frozen=True):
    """Commands joined by `&&` and `||`; each may be negated."""

    line: int
    items: tuple[tuple[str, bool, Node], ...]


class If(Struct, frozen=True):
    """A condition, and the blocks for either outcome; `elif` is in the second one."""

    line: int
    condition: Block
    body: Block
    otherwise: Block


class Case(Struct, frozen=True):
    """A word, and blocks by patterns."""

    line: int
    word: Word
    branches: tuple[tuple[tuple[Word, ...], Block], ...]


class Function(Struct, frozen=True):
    """A function with its body."""

    line: int
    name: str
    body: Block
    is_pathfind: bool


class Opaque(Struct, frozen=True):
    """A pipeline, loop or subshell, which is read and never followed."""

    line: int


Node = Simple | Chain | If | Case | Function | Opaque | tuple["Node", ...]
Block = tuple[Node, ...]


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> Block:
        block = self._block(())
        self._blanks()
        if self._at < len(self._text):
            raise Effect(self._line)
        return block

    @property
    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1

    def _blanks(self, *, with_lines: bool = False) -> None:
        while self._at < len(self._text):
            if self._text.startswith("\\\n", self._at):
                self._at += 2
            elif self._text[self._at] in (" \t\n" if with_lines else " \t"):
                self._at += 1
            elif self._text[self._at] == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            else:
                return

    def _operator(self) -> str:
        """Return the operator ahead, if any."""
        self._blanks()
        match = _TOKEN.match(self._text, self._at)
        return match[0] if match else ""

    def _take(self, operator: str) -> bool:
        if self._operator() != operator:
            return False
        self._at += len(operator)
        return True

    def _keyword(self) -> str:
        """Return the bare word ahead, if it is one as a whole."""
        self._blanks()
        match = _KEYWORD.match(self._text, self._at)
        return match[0] if match else ""

    def _expect(self, keyword: str) -> None:
        self._blanks(with_lines=True)
        if self._keyword() != keyword:
            raise Effect(self._line)
        self._at += len(keyword)

    def _block(self, ends: tuple[str, ...]) -> Block:
        """Read commands up to one of `ends`, which is not read."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise Effect(self._line)
        nodes: list[Node] = []
        while True:
            self._blanks(with_lines=True)
            if self._at >= len(self._text) or self._operator() in (")", ";;"):
                break
            if self._keyword() in _CLOSERS:
                if self._keyword() not in ends:
                    raise Effect(self._line)
                break
            nodes.append(self._chain())
            if not (self._take(";") or self._take("\n") or self._at >= len(self._text)) and (
                self._operator() not in (")", ";;")
            ):
                raise Effect(self._line)
        self._depth -= 1
        return tuple(nodes)

    def _chain(self) -> Node:
        line = self._line
        items = []
        joined = "&&"
        while True:
            is_negated = self._keyword() == "!"
            self._at += is_negated
            node = self._command()
            while self._operator() == "|":
                self._take("|")
                self._blanks(with_lines=True)
                self._command()
                node = Opaque(line)
            items.append((joined, is_negated, node))
            joined = self._operator()
            if joined not in ("&&", "||"):
                return Chain(line, tuple(items))
            self._take(joined)
            self._blanks(with_lines=True)

    def _command(self) -> Node:
        line = self._line
        keyword = self._keyword()
        node: Node
        if keyword == "if":
            node = self._if("if")
        elif keyword == "case":
            node = self._case()
        elif keyword == "{":
            node = self._clause("{", "}")
            self._expect("}")
        elif keyword in ("for", "while", "until"):
            self._clause(keyword, "do")
            self._clause("do", "done")
            self._expect("done")
            node = Opaque(line)
        elif self._take("("):
            self._block(())
            if not self._take(")"):
                raise Effect(self._line)
            node = Opaque(line)
        else:
            return self._simple()
        while self._is_redirection():
            self._redirection()
            node = Opaque(line)
        return node

    def _clause(self, keyword: str, *ends: str) -> Block:
        """Read a keyword, and commands up to one of `ends`."""
        self._expect(keyword)
        return self._block(ends)

    def _if(self, keyword: str) -> Node:
        line = self._line
        self._depth += 1
        condition = self._clause(keyword, "then")
        body = self._clause("then", "elif", "else", "fi")
        otherwise: Block = ()
        if self._keyword() == "elif":
            otherwise = (self._if("elif"),)
        else:
            if self._keyword() == "else":
                otherwise = self._clause("else", "fi")
            self._expect("fi")
        self._depth -= 1
        return If(line, condition, body, otherwise)

    def _case(self) -> Node:
        line = self._line
        self._expect("case")
        word = self._word()
        self._expect("in")
        branches = []
        while True:
            self._blanks(with_lines=True)
            if self._keyword() == "esac":
                break
            self._take("(")
            patterns = [self._word()]
            while self._take("|"):
                patterns.append(self._word())
            if not self._take(")"):
                raise Effect(self._line)
            branches.append((tuple(patterns), self._block(("esac",))))
            self._take(";;")
        self._expect("esac")
        return Case(line, word, tuple(branches))

    def _simple(self) -> Node:
        line = self._line
        words: list[Word] = []
        assignments: list[tuple[str, Word]] = []
        redirections: list[tuple[str, Word]] = []
        while True:
            operator = self._operator()
            if self._is_redirection():
                redirections.append(self._redirection())
                continue
            if operator == "(" and len(words) == 1 and not assignments:
                return self._function(line, words[0])
            if operator or self._at >= len(self._text):
                break
            word = self._word()
            first = word[0] if word else Part("", True)
            match = None if first.is_quoted or first.parameter else _ASSIGNMENT.match(first.text)
            if match and not words:
                rest = Part(first.text[match.end() :], False)
                assignments.append((match[1], (rest, *word[1:])))
            else:
                words.append(word)
        if not words and not assignments and not redirections:
            raise Effect(line)
        return Simple(line, tuple(words), tuple(assignments), tuple(redirections))

    def _function(self, line: int, word: Word) -> Node:
        self._take("(")
        name = word[0].text
        if not self._take(")") or len(word) != 1 or not _NAME.fullmatch(name):
            raise Effect(line)
        self._expect("{")
        start = self._at
        body = self._block(("}",))
        text = " ".join(self._text[start : self._at].split())
        self._expect("}")
        return Function(line, name, body, text == _PATHFIND)

    def _is_redirection(self) -> bool:
        return self._operator().lstrip("0123456789") in (">", ">>", ">&", "<", "<<", "<&")

    def _redirection(self) -> tuple[str, Word]:
        operator = self._operator()
        self._at += len(operator)
        if "<<" in operator:
            raise Effect(self._line)  # the lines of a here-document are not commands
        return operator.lstrip("0123456789"), self._word()

    def _word(self) -> Word:
        self._blanks()
        parts: list[Part] = []
        start = self._at
        text = self._text
        while self._at < len(text):
            char = text[self._at]
            if char == "'":
                end = text.find("'", self._at + 1)
                if end < 0:
                    raise Effect(self._line)
                parts.append(Part(text[self._at + 1 : end], True))
                self._at = end + 1
            elif char == '"':
                self._at += 1
                parts.append(Part("", True))
                while self._at < len(text) and text[self._at] != '"':
                    if text[self._at] in "$`\\":
                        parts.append(self._expansion(is_quoted=True))
                    else:
                        match = _PLAIN_IN_QUOTES.match(text, self._at)
                        assert match is not None
                        parts.append(Part(match[0], True))
                        self._at = match.end()
                if self._at >= len(text):
                    raise Effect(self._line)
                self._at += 1
            elif char in "$`\\":
                if text.startswith("\\\n", self._at):
                    self._at += 2
                    continue
                parts.append(self._expansion(is_quoted=False))
            elif char in "{}" or (char == "#" and self._at > start):
                parts.append(Part(char, False))
                self._at += 1
            elif match := _BARE.match(text, self._at):
                parts.append(Part(match[0], False))
                self._at = match.end()
            else:
                break
        if self._at == start:
            raise Effect(self._line)
        return tuple(parts)

    def _expansion(self, *, is_quoted: bool) -> Part:
        text = self._text
        if text[self._at] == "\\":
            char = text[self._at + 1 : self._at + 2]
            if not char:
                raise Effect(self._line)
            self._at += 2
            if char == "\n":
                return Part("", is_quoted)
            return Part(f"\\{char}" if is_quoted and char not in '$`"\\' else char, True)
        if text.startswith("$(", self._at) and not text.startswith("$((", self._at):
            self._at += 2
            commands = self._block(())
            self._blanks(with_lines=True)
            if not self._take(")"):
                raise Effect(self._line)
            return Part("", is_quoted, commands=commands)
        if text[self._at] == "`":
            end = text.find("`", self._at + 1)
            content = text[self._at + 1 : end]
            if end < 0 or "\\" in content or '"' in content:
                raise Effect(self._line)
            line = self._line
            self._at = end + 1
            try:
                return Part("", is_quoted, commands=_Parser(content).parse())
            except Effect:
                raise Effect(line) from None
        match = _PARAMETER.match(text, self._at)
        if match is None:
            match = _OTHER_PARAMETER.match(text, self._at)
            if match is None:
                raise Effect(self._line)
            self._at = match.end()
            return Part("", is_quoted, commands=())
        self._at = match.end()
        return Part(match[3] or "", is_quoted, match[1] or match[2])


def parse_script(text: str) -> Block:
    """Return the commands of a script. Raises `Effect` for what is not in the subset."""
    return _Parser(text).parse()
