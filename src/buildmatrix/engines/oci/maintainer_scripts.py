"""Maintainer scripts without an effect on a fresh installation, recognized without running them.

A script is followed for the arguments that dpkg gives it, in a subset of the shell (`shell`).
Every command on the way must be one without an effect; what is not understood raises `Effect`.

Formats: POSIX.1-2017 "Shell Command Language"; deb-preinst(5), deb-postinst(5);
dpkg-maintscript-helper(1) and the script of that name in dpkg 1.21; debhelper's autoscripts.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
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
#: Comparisons of no version with another one.
_COMPARED_TO_NONE: Final = {
    **{"lt": True, "le": True, "eq": False, "ne": True, "ge": False, "gt": False},
    **{"lt-nl": False, "le-nl": False, "ge-nl": True, "gt-nl": True},
}
#: Programs of GLib, at their path in Debian.
_INDEXERS = re.compile(
    r"/usr/lib/([a-z0-9_]+-linux-gnu/)?glib-2\.0/(glib-compile-schemas|gio-querymodules)"
)
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


#: Exit status of a command as a truth value; None if it is not known.
_Status = bool | None


class _Script:
    def __init__(self, tree: Tree, arguments: Sequence[str]) -> None:
        self._tree = tree
        self._arguments = tuple(arguments)
        #: None for a value that is not known.
        self._variables: dict[str, str | None] = {"DPKG_ROOT": ""}
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
                is_true = isinstance(node, Simple) and self._split_fields(node) in (["true"], [":"])
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
        before = dict(self._variables)
        if self._maybe > DEEPEST:
            raise Effect(0)
        self._maybe += 1
        try:
            self.block(block)
        except _End:
            pass  # The rest is followed for the other way.
        finally:
            self._maybe -= 1
        after = self._variables
        for name in {*before, *after}:
            if name not in before or name not in after or before[name] != after[name]:
                after[name] = None

    def _if(self, node: If) -> _Status:
        self._conditions += 1
        status = self.block(node.condition)
        self._conditions -= 1
        if status is None:
            self._try(node.body)
            self._try(node.otherwise)
            return None
        return self.block(node.body if status else node.otherwise)

    def _case(self, node: Case) -> _Status:
        value = self._find_value(node.word, node.line)
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

    def _find_value(self, word: Word, line: int) -> str | None:
        """Return the value of a word that is not split."""
        text = ""
        for part in word:
            value = self._expand(part, line)
            if value is None:
                return None
            text += value
            if len(text) > _LONGEST:
                raise Effect(line)
        return text

    def _expand(self, part: Part, line: int) -> str | None:
        name = part.parameter
        if part.commands is not None:
            return self._substitute(part.commands, line)
        if not name:
            return part.text
        if name in ("@", "*"):
            return " ".join(self._arguments)
        if name == "#":
            return str(len(self._arguments))
        if name.isdigit():
            number = int(name)
            value = self._arguments[number - 1] if 0 < number <= len(self._arguments) else ""
            return None if number == 0 else value or part.text
        if name not in self._variables:
            return None
        known = self._variables[name]
        return (known or part.text) if known is not None else None

    def _substitute(self, commands: Block, line: int) -> str | None:
        """Return the output of `command -v`: nothing, or a path that is not known."""
        chain = commands[0] if len(commands) == 1 else None
        node = chain.items[0][2] if isinstance(chain, Chain) and len(chain.items) == 1 else None
        if not isinstance(node, Simple) or self._split_fields(node)[:1] not in (
            ["command"],
            ["which"],
        ):
            raise Effect(line)
        self._conditions += 1
        status = self.block(commands)
        self._conditions -= 1
        return "" if status is False else None

    def _split_fields(self, node: Simple) -> list[str | None]:
        """Return the words of a command, after splitting."""
        fields: list[str | None] = []
        for word in node.words:
            if [part.parameter for part in word] == ["", "@"] and word[1].is_quoted:
                fields += self._arguments
                continue
            value = self._find_value(word, node.line)
            is_quoted = any(part.is_quoted for part in word)
            for part in word:
                if part.is_quoted:
                    continue
                text = self._expand(part, node.line)
                # Blanks and patterns of an unquoted value would become several words.
                if text is None or text[:1] == "~" or re.search(r"[\s*?{]|\[.", text):
                    raise Effect(node.line)
            if value == "" and not is_quoted:
                continue
            fields.append(value)
        return fields

    def _simple(self, node: Simple) -> _Status:
        for operator, word in node.redirections:
            if (operator, self._find_value(word, node.line)) not in _HARMLESS_OUTPUT:
                raise Effect(node.line)
        fields = self._split_fields(node)
        for name, word in node.assignments:
            if name in ("PATH", "IFS", "DPKG_ROOT", "LD_LIBRARY_PATH") or fields:
                raise Effect(node.line)
            value = self._find_value(word, node.line)
            if value is not None and (value[:1] == "~" or ":~" in value):
                raise Effect(node.line)
            self._variables[name] = value
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
        if None in arguments:
            raise Effect(node.line)
        words = [command, *(argument or "" for argument in arguments)]
        return _command_status(self._tree, words, node.line)

    def _call(self, name: str, arguments: Sequence[str | None], line: int) -> _Status:
        if None in arguments or self._calls > DEEPEST:
            raise Effect(line)
        function = self._functions[name]
        if function.is_pathfind:
            words = ["which", *(argument or "" for argument in arguments)]
            return _command_status(self._tree, words, line)
        before = self._arguments
        self._arguments = tuple(argument or "" for argument in arguments)
        self._calls += 1
        try:
            return self.block(function.body)
        except _Return:
            return True
        finally:
            self._calls -= 1
            self._arguments = before

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


# Commands


def _command_status(tree: Tree, words: Sequence[str], line: int) -> _Status:
    """Return the status of a command without an effect. Raises `Effect` for others."""
    match words:
        case [":" | "true" | "echo" | "printf", *_]:
            return True
        case ["false", *_]:
            return False
        case ["set", *options] if all(re.fullmatch(r"[-+][eux]+", word) for word in options):
            return True
        case ["ldconfig" | "/sbin/ldconfig"] | ["umask", "022"]:
            return True
        case ["command", "-v", name] | ["which", name] if re.fullmatch(r"[a-z0-9][\w.+-]*", name):
            kinds = {tree.kind(f"{folder}/{name}") for folder in _PATH.split(":")}
            return False if kinds == {""} else None
        case ["dpkg-maintscript-helper", *rest] if _is_harmless_help(tree, rest):
            return True
        case ["dpkg", *rest]:
            # The version before is empty: there was none, which `-nl` takes for the latest.
            match [word for word in rest if word != "--"]:
                case ["--compare-versions", "", operator, version] if version:
                    if operator in _COMPARED_TO_NONE:
                        return _COMPARED_TO_NONE[operator]
        case ["rm", *rest]:
            paths = [word for word in rest if not re.fullmatch(r"-[rf]+|--", word)]
            has_force = any(re.fullmatch(r"-r?fr?", word) for word in rest)
            if has_force and all(_is_absent(tree, path) for path in paths):
                return True
        case ["cmp", "-s", one, other] if not (one.startswith("-") or other.startswith("-")):
            return False if _is_absent(tree, one) or _is_absent(tree, other) else None
        case ["update-alternatives", *rest]:
            # A removal succeeds without a change if there is nothing of that name.
            match [word for word in rest if word != "--quiet"]:
                case ["--remove", name, _] if re.fullmatch(r"[\w.+-]+", name):
                    if tree.kind(f"/var/lib/dpkg/alternatives/{name}") == "":
                        return True
        case ["mkdir", "-p", path] | ["install", "-d", path] if _exists(tree, "-d", path):
            return True
        case [program, folder] if _INDEXERS.fullmatch(program):
            # It writes an index of the files of the folder, if there are any.
            if folder.startswith("/usr/") and ".." not in folder and tree.is_empty(folder):
                return None
    raise Effect(line)


def _is_harmless_help(tree: Tree, words: Sequence[str]) -> bool:
    """Judge dpkg-maintscript-helper, which asks for the version that was installed before.

    Its two commands for folders also look for what the first of two scripts has set aside.
    """
    name, *rest = words or ("",)
    if name == "supports":
        return len(rest) == 1 and rest[0] in _HELPERS
    if name not in _HELPERS or "--" not in rest:
        return False
    mine, given = rest[: rest.index("--")], rest[rest.index("--") + 1 :]
    paths = mine[: _HELPERS[name]] if name == "mv_conffile" else mine[:1]
    return (
        _HELPERS[name] <= len(mine) <= _HELPERS[name] + 2
        and "" not in mine[: _HELPERS[name]]
        and all(path.startswith("/") and ".." not in path for path in paths)
        and given[:1] in (["install"], ["configure"])
        and not any(given[1:])
        and (name.endswith("conffile") or tree.kind(f"{mine[0].rstrip('/')}.dpkg-backup") == "")
    )


def _is_absent(tree: Tree, path: str) -> bool:
    if not path.startswith("/") or ".." in path or f"{path}/".startswith(_SPECIAL):
        return False
    return tree.kind(path) == ""


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
