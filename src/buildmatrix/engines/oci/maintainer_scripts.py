"""Maintainer scripts without an effect on a fresh installation, recognized without running them.

A script is followed for the arguments that dpkg gives it, in a subset of the shell (`shell`).
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

from buildmatrix.engines.oci.shell import (
    DEEPEST,
    Block,
    Case,
    Chain,
    Effect,
    Function,
    If,
    Node,
    Opaque,
    Part,
    Simple,
    Word,
    parse_script,
)

#: Maximum bytes of a script, and commands that are followed.
_LARGEST: Final = 64 << 10
_STEPS: Final = 20_000
#: Maximum length of a value, and words of a test.
_LONGEST: Final = 4096
_MOST_WORDS: Final = 50
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHELL = re.compile(r"#!\s*(/bin/(sh|dash|bash)|/usr/bin/(sh|dash|bash))(\s+-[eu]+)?\s*")
_HARMLESS_OUTPUT: Final = frozenset(
    {(">", "/dev/null"), (">&", "1"), (">&", "2"), ("<", "/dev/null")}
)
_HELPERS: Final = {"rm_conffile": 1, "mv_conffile": 2, "symlink_to_dir": 2, "dir_to_symlink": 2}
#: What the programs that install and run containers write.
_SPECIAL: Final = (
    *("/dev/", "/proc/", "/run/", "/sys/", "/tmp/", "/var/tmp/", "/var/run/"),  # noqa: S108
    *("/etc/hosts/", "/etc/hostname/", "/etc/mtab/", "/etc/resolv.conf/", "/etc/ld.so.cache/"),
    *("/var/cache/", "/var/log/", "/var/lib/apt/", "/var/lib/dpkg/"),
)


class Tree(Protocol):
    """The file system that a script sees. None where it depends on the order of packages."""

    def kind(self, path: str) -> str | None:
        """Return `file`, `folder` or `symlink`, `""` for nothing."""

    def is_empty(self, folder: str) -> bool:
        """Return True if no package and no layer has anything in `folder`."""


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
        self._functions: dict[str, Function] = {}
        self._calls = 0
        self._steps = _STEPS
        #: Depth of branches that may or may not be taken.
        self._maybe = 0
        #: Depth of commands that may fail in spite of `set -e`.
        self._conditions = 0

    def block(self, block: Block) -> _Status:
        status: _Status = True
        for node in block:
            status = self._node(node)
        return status

    def _node(self, node: Node) -> _Status:
        if isinstance(node, tuple):
            return self.block(node)
        self._steps -= 1
        if self._steps < 0 or isinstance(node, Opaque):
            raise Effect(node.line)
        if isinstance(node, Chain):
            return self._chain(node)
        if isinstance(node, If):
            return self._if(node)
        if isinstance(node, Case):
            return self._case(node)
        if isinstance(node, Function):
            if self._maybe:
                raise Effect(node.line)
            self._functions[node.name] = node
            return True
        return self._simple(node)

    def _chain(self, chain: Chain) -> _Status:
        status: _Status = True
        last = len(chain.items) - 1
        for number, (joined, is_negated, node) in enumerate(chain.items):
            if status is (joined == "||"):
                continue
            is_condition = number < last or is_negated
            self._conditions += is_condition
            if status is None:
                self._try((node,))
                is_true = isinstance(node, Simple) and self._fields(node) in (["true"], [":"])
                status = True if is_true and joined == "||" else None
            else:
                status = self._node(node)
                status = (not status) if is_negated and status is not None else status
            self._conditions -= is_condition
            is_final = isinstance(node, Simple) and not is_condition
            if is_final and not status and not self._conditions:
                raise Effect(chain.line)  # The installation may fail.
        return status

    def _try(self, block: Block) -> None:
        """Follow commands that may run: afterward, variables that they set are not known."""
        before = dict(self._state.variables)
        if self._maybe > DEEPEST:
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

    def _if(self, node: If) -> _Status:
        for condition, body in node.branches:
            self._conditions += 1
            status = self.block(condition)
            self._conditions -= 1
            if status:
                return self.block(body)
            if status is None:
                self._try(body)
                rest = node.branches[node.branches.index((condition, body)) + 1 :]
                self._try((If(node.line, rest, node.otherwise),) if rest else node.otherwise)
                return None
        return self.block(node.otherwise)

    def _case(self, node: Case) -> _Status:
        value = self._value(node.word, node.line)
        for patterns, body in node.branches:
            if value is None:
                self._try(body)
            elif any(self._matches(value, pattern, node.line) for pattern in patterns):
                return self.block(body)
        return True if value is not None else None

    def _matches(self, value: str, pattern: Word, line: int) -> bool:
        text = ""
        for part in pattern:
            if part.parameter:
                raise Effect(line)
            quoted = re.sub(r"([*?\[])", r"[\1]", part.text)
            text += quoted if part.is_quoted else part.text
        return fnmatch.fnmatchcase(value, text)

    def _value(self, word: Word, line: int) -> str | None:
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

    def _expanded(self, part: Part, line: int) -> str | None:
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

    def _substituted(self, commands: Block, line: int) -> str | None:
        """Return the output of `command -v`: nothing, or a path that is not known."""
        chain = commands[0] if len(commands) == 1 else None
        node = chain.items[0][2] if isinstance(chain, Chain) and len(chain.items) == 1 else None
        if not isinstance(node, Simple) or self._fields(node)[:1] not in (["command"], ["which"]):
            raise Effect(line)
        self._conditions += 1
        status = self.block(commands)
        self._conditions -= 1
        return "" if status is False else None

    def _fields(self, node: Simple) -> list[str | None]:
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

    def _simple(self, node: Simple) -> _Status:
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
        return _status_of(known(self._tree, [argument or "" for argument in arguments]), node.line)

    def _call(self, name: str, arguments: Sequence[str | None], line: int) -> _Status:
        if None in arguments or self._calls > DEEPEST:
            raise Effect(line)
        function = self._functions[name]
        if function.is_pathfind:
            return _status_of(_which(self._tree, [argument or "" for argument in arguments]), line)
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


def _status_of(answer: _Answer, line: int) -> _Status:
    if isinstance(answer, str):
        raise Effect(line)
    return answer


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
        _Script(tree, arguments).block(parse_script(text))
    except _End:
        return None
    except Effect as effect:
        return effect.line
    return None
