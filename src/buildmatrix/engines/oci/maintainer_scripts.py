"""Maintainer scripts without an effect on a fresh installation, recognized without running them.

A strict reader of a subset of the shell follows a script for the arguments that dpkg gives it.
Every command on the way must be one without an effect; what is not understood raises `Effect`.

Formats: POSIX.1-2017 "Shell Command Language"; deb-preinst(5), deb-postinst(5);
dpkg-maintscript-helper(1) and the script of that name in dpkg 1.21; debhelper's autoscripts.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

#: Maximum bytes of a script, depth of its commands, and commands that are followed.
_LARGEST: Final = 64 << 10
_DEEPEST: Final = 30
_STEPS: Final = 20_000
#: Maximum length of a value, and words of a test.
_LONGEST: Final = 4096
_MOST_WORDS: Final = 50
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHELL = re.compile(r"#!\s*(/bin/(sh|dash|bash)|/usr/bin/(sh|dash|bash))(\s+-[eu]+)?\s*")
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
_HARMLESS_OUTPUT: Final = frozenset(
    {(">", "/dev/null"), (">&", "1"), (">&", "2"), ("<", "/dev/null")}
)
_CLOSERS: Final = frozenset({"then", "else", "elif", "fi", "do", "done", "esac", "}"})
#: Bodies of functions that look for a program on PATH: Debian Developer's Reference, 6.4.
_PATHFIND: Final = (
    'OLDIFS="$IFS" IFS=: for p in $PATH; do if [ -x "$p/$*" ]; then IFS="$OLDIFS" return 0 fi '
    'done IFS="$OLDIFS" return 1'
)
_HELPERS: Final = {"rm_conffile": 1, "mv_conffile": 2, "symlink_to_dir": 2, "dir_to_symlink": 2}
#: What the programs that install and run containers write.
_SPECIAL: Final = (
    *("/dev/", "/proc/", "/run/", "/sys/", "/tmp/", "/var/tmp/", "/var/run/"),  # noqa: S108
    *("/etc/hosts/", "/etc/hostname/", "/etc/mtab/", "/etc/resolv.conf/", "/etc/ld.so.cache/"),
    *("/var/cache/", "/var/log/", "/var/lib/apt/", "/var/lib/dpkg/"),
)


class Effect(Exception):
    """A line of a script that has an effect, or that is not understood."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


class Tree(Protocol):
    """The file system that a script sees. None where it depends on the order of packages."""

    def kind(self, path: str) -> str | None:
        """Return `file`, `folder` or `symlink`, `""` for nothing."""

    def is_empty(self, folder: str) -> bool:
        """Return True if no package and no layer has anything in `folder`."""


# Syntax


@dataclass(frozen=True, slots=True)
class _Part:
    """Text, or a parameter with its default, or the commands of a substitution."""

    text: str
    is_quoted: bool
    parameter: str = ""
    commands: _Block | None = None


_Word = tuple[_Part, ...]


@dataclass(frozen=True, slots=True)
class _Simple:
    line: int
    words: tuple[_Word, ...]
    assignments: tuple[tuple[str, _Word], ...]
    redirections: tuple[tuple[str, _Word], ...]


@dataclass(frozen=True, slots=True)
class _Chain:
    """Commands joined by `&&` and `||`; each may be negated."""

    line: int
    items: tuple[tuple[str, bool, _Node], ...]


@dataclass(frozen=True, slots=True)
class _If:
    line: int
    branches: tuple[tuple[_Block, _Block], ...]
    otherwise: _Block


@dataclass(frozen=True, slots=True)
class _Case:
    line: int
    word: _Word
    branches: tuple[tuple[tuple[_Word, ...], _Block], ...]


@dataclass(frozen=True, slots=True)
class _Function:
    line: int
    name: str
    body: _Block
    is_pathfind: bool


@dataclass(frozen=True, slots=True)
class _Opaque:
    """A pipeline, loop or subshell, which is read and never followed."""

    line: int


_Node = _Simple | _Chain | _If | _Case | _Function | _Opaque | tuple["_Node", ...]
_Block = tuple[_Node, ...]


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> _Block:
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

    def _block(self, ends: tuple[str, ...]) -> _Block:
        """Read commands up to one of `ends`, which is not read."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise Effect(self._line)
        nodes: list[_Node] = []
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

    def _chain(self) -> _Node:
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
                node = _Opaque(line)
            items.append((joined, is_negated, node))
            joined = self._operator()
            if joined not in ("&&", "||"):
                return _Chain(line, tuple(items))
            self._take(joined)
            self._blanks(with_lines=True)

    def _command(self) -> _Node:
        line = self._line
        keyword = self._keyword()
        node: _Node
        if keyword == "if":
            node = self._if()
        elif keyword == "case":
            node = self._case()
        elif keyword == "{":
            self._expect("{")
            node = self._block(("}",))
            self._expect("}")
        elif keyword in ("for", "while", "until"):
            self._loop(keyword)
            node = _Opaque(line)
        elif self._take("("):
            self._block(())
            if not self._take(")"):
                raise Effect(self._line)
            node = _Opaque(line)
        else:
            return self._simple()
        while self._is_redirection():
            self._redirection()
            node = _Opaque(line)
        return node

    def _if(self) -> _Node:
        line = self._line
        branches = []
        otherwise: _Block = ()
        self._expect("if")
        while True:
            condition = self._block(("then",))
            self._expect("then")
            branches.append((condition, self._block(("elif", "else", "fi"))))
            if self._keyword() != "elif":
                break
            self._expect("elif")
        if self._keyword() == "else":
            self._expect("else")
            otherwise = self._block(("fi",))
        self._expect("fi")
        return _If(line, tuple(branches), otherwise)

    def _case(self) -> _Node:
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
        return _Case(line, word, tuple(branches))

    def _loop(self, keyword: str) -> None:
        self._expect(keyword)
        self._block(("do",))
        self._expect("do")
        self._block(("done",))
        self._expect("done")

    def _simple(self) -> _Node:
        line = self._line
        words: list[_Word] = []
        assignments: list[tuple[str, _Word]] = []
        redirections: list[tuple[str, _Word]] = []
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
            first = word[0] if word else _Part("", True)
            match = None if first.is_quoted or first.parameter else _ASSIGNMENT.match(first.text)
            if match and not words:
                rest = _Part(first.text[match.end() :], False)
                assignments.append((match[1], (rest, *word[1:])))
            else:
                words.append(word)
        if not words and not assignments and not redirections:
            raise Effect(line)
        return _Simple(line, tuple(words), tuple(assignments), tuple(redirections))

    def _function(self, line: int, word: _Word) -> _Node:
        self._take("(")
        name = word[0].text
        if not self._take(")") or len(word) != 1 or not _NAME.fullmatch(name):
            raise Effect(line)
        self._expect("{")
        start = self._at
        body = self._block(("}",))
        text = " ".join(self._text[start : self._at].split())
        self._expect("}")
        return _Function(line, name, body, text == _PATHFIND)

    def _is_redirection(self) -> bool:
        return self._operator().lstrip("0123456789") in (">", ">>", ">&", "<", "<<", "<&")

    def _redirection(self) -> tuple[str, _Word]:
        operator = self._operator()
        self._at += len(operator)
        if "<<" in operator:
            raise Effect(self._line)  # a document, whose lines are no commands
        return operator.lstrip("0123456789"), self._word()

    def _word(self) -> _Word:
        self._blanks()
        parts: list[_Part] = []
        start = self._at
        text = self._text
        while self._at < len(text):
            char = text[self._at]
            if char == "'":
                end = text.find("'", self._at + 1)
                if end < 0:
                    raise Effect(self._line)
                parts.append(_Part(text[self._at + 1 : end], True))
                self._at = end + 1
            elif char == '"':
                self._at += 1
                parts.append(_Part("", True))
                while self._at < len(text) and text[self._at] != '"':
                    if text[self._at] in "$`\\":
                        parts.append(self._expansion(is_quoted=True))
                    else:
                        match = _PLAIN_IN_QUOTES.match(text, self._at)
                        assert match is not None
                        parts.append(_Part(match[0], True))
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
                parts.append(_Part(char, False))
                self._at += 1
            elif match := _BARE.match(text, self._at):
                parts.append(_Part(match[0], False))
                self._at = match.end()
            else:
                break
        if self._at == start:
            raise Effect(self._line)
        return tuple(parts)

    def _expansion(self, *, is_quoted: bool) -> _Part:
        text = self._text
        if text[self._at] == "\\":
            char = text[self._at + 1 : self._at + 2]
            if not char:
                raise Effect(self._line)
            self._at += 2
            if char == "\n":
                return _Part("", is_quoted)
            return _Part(f"\\{char}" if is_quoted and char not in '$`"\\' else char, True)
        if text.startswith("$(", self._at) and not text.startswith("$((", self._at):
            self._at += 2
            commands = self._block(())
            self._blanks(with_lines=True)
            if not self._take(")"):
                raise Effect(self._line)
            return _Part("", is_quoted, commands=commands)
        if text[self._at] == "`":
            end = text.find("`", self._at + 1)
            content = text[self._at + 1 : end]
            if end < 0 or "\\" in content or '"' in content:
                raise Effect(self._line)
            line = self._line
            self._at = end + 1
            try:
                return _Part("", is_quoted, commands=_Parser(content).parse())
            except Effect:
                raise Effect(line) from None
        match = _PARAMETER.match(text, self._at)
        if match is None:
            match = _OTHER_PARAMETER.match(text, self._at)
            if match is None:
                raise Effect(self._line)
            self._at = match.end()
            return _Part("", is_quoted, commands=())
        self._at = match.end()
        return _Part(match[3] or "", is_quoted, match[1] or match[2])


# Evaluation


class _End(Exception):
    """`exit 0`, or `return 0` of a function."""


@dataclass
class _State:
    arguments: tuple[str, ...]
    #: None for a value that is not known.
    variables: dict[str, str | None] = field(default_factory=dict)


#: Exit status of a command as a truth value; None if it is not known.
_Status = bool | None


class _Script:
    def __init__(self, tree: Tree, arguments: Sequence[str]) -> None:
        self._tree = tree
        self._state = _State(tuple(arguments), {"DPKG_ROOT": ""})
        self._functions: dict[str, _Function] = {}
        self._calls = 0
        self._steps = _STEPS
        #: Depth of branches that may or may not be taken.
        self._maybe = 0
        #: Depth of commands that may fail in spite of `set -e`.
        self._conditions = 0

    def block(self, block: _Block) -> _Status:
        status: _Status = True
        for node in block:
            status = self._node(node)
        return status

    def _node(self, node: _Node) -> _Status:
        if isinstance(node, tuple):
            return self.block(node)
        self._steps -= 1
        if self._steps < 0 or isinstance(node, _Opaque):
            raise Effect(node.line)
        if isinstance(node, _Chain):
            return self._chain(node)
        if isinstance(node, _If):
            return self._if(node)
        if isinstance(node, _Case):
            return self._case(node)
        if isinstance(node, _Function):
            if self._maybe:
                raise Effect(node.line)
            self._functions[node.name] = node
            return True
        return self._simple(node)

    def _chain(self, chain: _Chain) -> _Status:
        status: _Status = True
        last = len(chain.items) - 1
        for number, (joined, is_negated, node) in enumerate(chain.items):
            if status is (joined == "||"):
                continue
            is_condition = number < last or is_negated
            self._conditions += is_condition
            if status is None:
                self._try((node,))
                is_true = isinstance(node, _Simple) and self._fields(node) in (["true"], [":"])
                status = True if is_true and joined == "||" else None
            else:
                status = self._node(node)
                status = (not status) if is_negated and status is not None else status
            self._conditions -= is_condition
            is_final = isinstance(node, _Simple) and not is_condition
            if is_final and not status and not self._conditions:
                raise Effect(chain.line)  # The installation may fail.
        return status

    def _try(self, block: _Block) -> None:
        """Follow commands that may run: afterward, variables that they set are not known."""
        before = dict(self._state.variables)
        if self._maybe > _DEEPEST:
            raise Effect(0)
        self._maybe += 1
        try:
            self.block(block)
        except _End:
            pass  # The rest is followed for the other way.
        finally:
            self._maybe -= 1
        after = self._state.variables
        for name in {*before, *after}:
            if name not in before or name not in after or before[name] != after[name]:
                after[name] = None

    def _if(self, node: _If) -> _Status:
        for condition, body in node.branches:
            self._conditions += 1
            status = self.block(condition)
            self._conditions -= 1
            if status:
                return self.block(body)
            if status is None:
                self._try(body)
                rest = node.branches[node.branches.index((condition, body)) + 1 :]
                self._try((_If(node.line, rest, node.otherwise),) if rest else node.otherwise)
                return None
        return self.block(node.otherwise)

    def _case(self, node: _Case) -> _Status:
        value = self._value(node.word, node.line)
        for patterns, body in node.branches:
            if value is None:
                self._try(body)
            elif any(self._matches(value, pattern, node.line) for pattern in patterns):
                return self.block(body)
        return True if value is not None else None

    def _matches(self, value: str, pattern: _Word, line: int) -> bool:
        text = ""
        for part in pattern:
            if part.parameter:
                raise Effect(line)
            quoted = re.sub(r"([*?\[])", r"[\1]", part.text)
            text += quoted if part.is_quoted else part.text
        return fnmatch.fnmatchcase(value, text)

    def _value(self, word: _Word, line: int) -> str | None:
        """Return the value of a word that is not split."""
        text = ""
        for part in word:
            value = self._expanded(part, line)
            if value is None:
                return None
            text += value
            if len(text) > _LONGEST:
                raise Effect(line)
        return text

    def _expanded(self, part: _Part, line: int) -> str | None:
        name, state = part.parameter, self._state
        if part.commands is not None:
            return self._substituted(part.commands, line)
        if not name:
            return part.text
        if name in ("@", "*"):
            return " ".join(state.arguments)
        if name == "#":
            return str(len(state.arguments))
        if name.isdigit():
            number = int(name)
            value = state.arguments[number - 1] if 0 < number <= len(state.arguments) else ""
            return None if number == 0 else value or part.text
        if name not in state.variables:
            return None
        known = state.variables[name]
        return (known or part.text) if known is not None else None

    def _substituted(self, commands: _Block, line: int) -> str | None:
        """Return the output of `command -v`: nothing, or a path that is not known."""
        chain = commands[0] if len(commands) == 1 else None
        node = chain.items[0][2] if isinstance(chain, _Chain) and len(chain.items) == 1 else None
        if not isinstance(node, _Simple) or self._fields(node)[:1] not in (["command"], ["which"]):
            raise Effect(line)
        self._conditions += 1
        status = self.block(commands)
        self._conditions -= 1
        return "" if status is False else None

    def _fields(self, node: _Simple) -> list[str | None]:
        """Return the words of a command, after splitting."""
        fields: list[str | None] = []
        for word in node.words:
            if [part.parameter for part in word] == ["", "@"] and word[1].is_quoted:
                fields += self._state.arguments
                continue
            value = self._value(word, node.line)
            is_quoted = any(part.is_quoted for part in word)
            for part in word:
                if part.is_quoted:
                    continue
                text = self._expanded(part, node.line)
                # Blanks and patterns of an unquoted value would become several words.
                if text is None or text[:1] == "~" or re.search(r"[\s*?{]|\[.", text):
                    raise Effect(node.line)
            if value == "" and not is_quoted:
                continue
            fields.append(value)
        return fields

    def _simple(self, node: _Simple) -> _Status:
        for operator, word in node.redirections:
            if (operator, self._value(word, node.line)) not in _HARMLESS_OUTPUT:
                raise Effect(node.line)
        fields = self._fields(node)
        for name, word in node.assignments:
            if name in ("PATH", "IFS", "DPKG_ROOT", "LD_LIBRARY_PATH") or fields:
                raise Effect(node.line)
            value = self._value(word, node.line)
            if value is not None and (value[:1] == "~" or ":~" in value):
                raise Effect(node.line)
            self._state.variables[name] = value
        if not fields:
            return True
        command, arguments = fields[0] or "", fields[1:]
        if command in ("exit", "return"):
            if arguments != ["0"] or (command == "return" and not self._calls):
                raise Effect(node.line)
            raise _Return if command == "return" else _End
        if command in self._functions:
            return self._call(command, arguments, node.line)
        if command in ("test", "["):
            if command == "[" and arguments[-1:] != ["]"]:
                raise Effect(node.line)
            return self._test(arguments[:-1] if command == "[" else arguments, node.line)
        known = _index if _INDEXERS.fullmatch(command) else _COMMANDS.get(command)
        if known is None or None in arguments:
            raise Effect(node.line)
        status = known(self._tree, [argument or "" for argument in arguments])
        if status == "effect":
            raise Effect(node.line)
        return status  # type: ignore[return-value]

    def _call(self, name: str, arguments: Sequence[str | None], line: int) -> _Status:
        if None in arguments or self._calls > _DEEPEST:
            raise Effect(line)
        function = self._functions[name]
        if function.is_pathfind:
            status = _which(self._tree, [argument or "" for argument in arguments])
            if status == "effect":
                raise Effect(line)
            return status  # type: ignore[return-value]
        before = self._state.arguments
        self._state.arguments = tuple(argument or "" for argument in arguments)
        self._calls += 1
        try:
            return self.block(function.body)
        except _Return:
            return True
        finally:
            self._calls -= 1
            self._state.arguments = before

    def _test(self, words: Sequence[str | None], line: int) -> _Status:
        if len(words) > _MOST_WORDS:
            raise Effect(line)
        for joined, stop in (("-o", True), ("-a", False)):
            if joined in words[1:-1] and len(words) > 3:
                at = words.index(joined, 1)
                left = self._test(words[:at], line)
                right = self._test(words[at + 1 :], line)
                if stop in (left, right):
                    return stop
                return None if None in (left, right) else not stop
        if len(words) > 1 and words[0] == "!":
            status = self._test(words[1:], line)
            return None if status is None else not status
        if len(words) <= 1:
            return words[0] != "" if words and words[0] is not None else (None if words else False)
        if len(words) == 3 and words[1] in ("=", "==", "!=", "-eq", "-ne", "-gt", "-lt", "-ge"):
            left_word, operator, right_word = words
            if left_word is None or right_word is None:
                return None
            if operator in ("=", "==", "!="):
                return (left_word == right_word) == (operator != "!=")
            if not (left_word.isdecimal() and right_word.isdecimal()):
                raise Effect(line)
            one, two = int(left_word), int(right_word)
            return {"-eq": one == two, "-ne": one != two, "-gt": one > two, "-lt": one < two,
                    "-ge": one >= two}[operator or ""]  # fmt: skip
        if len(words) == 2 and words[1] is not None:
            if words[0] in ("-n", "-z"):
                return bool(words[1]) == (words[0] == "-n")
            if words[0] in ("-e", "-f", "-d", "-x", "-h", "-L", "-r", "-s", "-w"):
                return _exists(self._tree, words[0] or "", words[1])
        raise Effect(line)


class _Return(_End):
    """`return 0` of a function."""


def _exists(tree: Tree, operator: str, path: str) -> _Status:
    if not path:
        return False
    if path.startswith("/run/systemd/") or path == "/run/systemd":
        return False  # No system runs in a build.
    if not path.startswith("/") or ".." in path or f"{path}/".startswith(_SPECIAL):
        return None
    kind = tree.kind(path)
    if not kind:
        return None if kind is None else False
    if operator in ("-h", "-L"):
        return kind == "symlink"
    if kind == "symlink" or operator not in ("-e", "-d", "-f"):
        return None
    return operator == "-e" or (kind == "folder") == (operator == "-d")


# Commands: each returns its status, or "effect".

_Answer = bool | None | str


def _succeed(_tree: Tree, _arguments: Sequence[str]) -> _Answer:
    return True


def _set(_tree: Tree, arguments: Sequence[str]) -> _Answer:
    return True if all(re.fullmatch(r"[-+][eux]+", word) for word in arguments) else "effect"


def _command(tree: Tree, arguments: Sequence[str]) -> _Answer:
    if len(arguments) != 2 or arguments[0] != "-v":
        return "effect"
    return _which(tree, arguments[1:])


def _which(tree: Tree, arguments: Sequence[str]) -> _Answer:
    if len(arguments) != 1 or not re.fullmatch(r"[a-z0-9][\w.+-]*", arguments[0]):
        return "effect"
    kinds = {tree.kind(f"{folder}/{arguments[0]}") for folder in _PATH.split(":")}
    return False if kinds == {""} else None


def _helper(tree: Tree, arguments: Sequence[str]) -> _Answer:
    """Judge dpkg-maintscript-helper, which asks for the version that was installed before.

    Its two commands for folders also look for what the first of two scripts has set aside.
    """
    name, *rest = arguments or ("",)
    if name == "supports" and len(rest) == 1 and rest[0] in _HELPERS:
        return True
    if name not in _HELPERS or "--" not in rest:
        return "effect"
    mine, given = rest[: rest.index("--")], rest[rest.index("--") + 1 :]
    paths = mine[: _HELPERS[name]] if name == "mv_conffile" else mine[:1]
    if not _HELPERS[name] <= len(mine) <= _HELPERS[name] + 2 or "" in mine[: _HELPERS[name]]:
        return "effect"
    if not all(path.startswith("/") and ".." not in path for path in paths):
        return "effect"
    if given[:1] not in (["install"], ["configure"]) or any(given[1:]):
        return "effect"
    backup = f"{mine[0].rstrip('/')}.dpkg-backup"
    return True if name.endswith("conffile") or tree.kind(backup) == "" else "effect"


def _dpkg(_tree: Tree, arguments: Sequence[str]) -> _Answer:
    """Judge a comparison with the version before: none, which `-nl` takes for the latest."""
    words = [word for word in arguments if word != "--"]
    if len(words) != 4 or words[:2] != ["--compare-versions", ""] or not words[3]:
        return "effect"
    earlier = {"lt": True, "le": True, "eq": False, "ne": True, "ge": False, "gt": False}
    operator = words[2]
    if operator.removesuffix("-nl") not in earlier:
        return "effect"
    if operator.endswith("-nl") and operator not in ("lt-nl", "le-nl", "ge-nl", "gt-nl"):
        return "effect"
    return earlier[operator.removesuffix("-nl")] != operator.endswith("-nl")


def _loader_cache(_tree: Tree, arguments: Sequence[str]) -> _Answer:
    return "effect" if arguments else True


def _remove(tree: Tree, arguments: Sequence[str]) -> _Answer:
    paths = [word for word in arguments if not re.fullmatch(r"-[rf]+|--", word)]
    has_force = any(re.fullmatch(r"-r?fr?", word) for word in arguments)
    if not has_force or not all(_is_absent(tree, path) for path in paths):
        return "effect"
    return True


def _compare(tree: Tree, arguments: Sequence[str]) -> _Answer:
    paths = arguments[1:]
    if len(paths) != 2 or arguments[0] != "-s" or any(path.startswith("-") for path in paths):
        return "effect"
    return False if any(_is_absent(tree, path) for path in paths) else None


def _alternatives(tree: Tree, arguments: Sequence[str]) -> _Answer:
    """Judge a removal, which succeeds without a change if there is nothing of that name."""
    words = [word for word in arguments if word != "--quiet"]
    if len(words) != 3 or words[0] != "--remove" or not re.fullmatch(r"[\w.+-]+", words[1]):
        return "effect"
    return True if tree.kind(f"/var/lib/dpkg/alternatives/{words[1]}") == "" else "effect"


def _umask(_tree: Tree, arguments: Sequence[str]) -> _Answer:
    return True if arguments == ["022"] else "effect"


def _make_folder(tree: Tree, arguments: Sequence[str]) -> _Answer:
    if len(arguments) != 2 or arguments[0] not in ("-d", "-p"):
        return "effect"
    return True if _exists(tree, "-d", arguments[1]) is True else "effect"


def _install(tree: Tree, arguments: Sequence[str]) -> _Answer:
    return _make_folder(tree, arguments) if arguments[:1] == ["-d"] else "effect"


def _mkdir(tree: Tree, arguments: Sequence[str]) -> _Answer:
    return _make_folder(tree, arguments) if arguments[:1] == ["-p"] else "effect"


def _index(tree: Tree, arguments: Sequence[str]) -> _Answer:
    """Judge a program of GLib that writes an index of the files of a folder, if it has any."""
    if len(arguments) != 1 or not arguments[0].startswith("/usr/") or ".." in arguments[0]:
        return "effect"
    return None if tree.is_empty(arguments[0]) else "effect"


def _is_absent(tree: Tree, path: str) -> bool:
    if not path.startswith("/") or ".." in path or f"{path}/".startswith(_SPECIAL):
        return False
    return tree.kind(path) == ""


_COMMANDS: Final[Mapping[str, Callable[[Tree, Sequence[str]], _Answer]]] = {
    ":": _succeed,
    "true": _succeed,
    "echo": _succeed,
    "printf": _succeed,
    "false": lambda _tree, _arguments: False,
    "set": _set,
    "command": _command,
    "which": _which,
    "dpkg-maintscript-helper": _helper,
    "dpkg": _dpkg,
    "rm": _remove,
    "cmp": _compare,
    "update-alternatives": _alternatives,
    "umask": _umask,
    "mkdir": _mkdir,
    "install": _install,
    "ldconfig": _loader_cache,
    "/sbin/ldconfig": _loader_cache,
}
#: Programs of GLib, at their path in Debian.
_INDEXERS = re.compile(
    r"/usr/lib/([a-z0-9_]+-linux-gnu/)?glib-2\.0/(glib-compile-schemas|gio-querymodules)"
)


def find_effect(text: str, arguments: Sequence[str], tree: Tree) -> int | None:
    """Return the number of the first line with an effect; None if the script has none.

    `arguments` are those of dpkg. A line that is not understood has an effect.
    """
    first = text.partition("\n")[0]
    if len(text) > _LARGEST or not _SHELL.fullmatch(first):
        return 1
    try:
        _Script(tree, arguments).block(_Parser(text).parse())
    except _End:
        return None
    except Effect as effect:
        return effect.line
    return None
