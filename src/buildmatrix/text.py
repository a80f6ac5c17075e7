"""Foreign text made fit to be shown: no escape sequences, no commands to a CI runner, no secrets.

Names, versions, paths and addresses come from images, wheels, indexes and pull requests that nobody
vouches for. `printable` keeps one piece of such text on its line, `shown` takes secrets out, and
`guarded` is for a whole output just before it is written: there no call site can forget it.

What a CI runner obeys: `::command::` where a line begins
(https://docs.github.com/actions/reference/workflow-commands-for-github-actions), `##[command]` and
`##vso[command]` anywhere in one
(https://learn.microsoft.com/azure/devops/pipelines/scripts/logging-commands), `##teamcity[` too.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar

Value = TypeVar("Value")
#: How a format writes one character that must not stand there as it is.
Escape = Callable[[str], str]

#: C0 without tab and newline, DEL, C1, marks and overrides of direction, what has no width, breaks
#: of lines and paragraphs, halves of surrogate pairs, tags.
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
)
_UNSAFE = rf"[{_HIDDEN}]|(?P<margin>^[^\S\n]*):(?=:)|#(?=#\w*\[)"
#: The styles of `reports.terminal`.
_STYLE = r"\x1b\[(?:0|[12]|3[1-4])(?:;(?:[12]|3[1-4]))*m"
_PLAIN = re.compile(_UNSAFE, re.MULTILINE)
_STYLED = re.compile(rf"(?P<style>{_STYLE})|{_UNSAFE}", re.MULTILINE)
#: The bytes of ASCII that are never any of these, except in such pairs.
_CLEAN = bytes([*b"\t\n", *range(0x20, 0x7F)])
_PAIRS = ("::", "##")

# An address: the lookbehind and the bounds keep the time linear in text that holds none.
_NAMED = r"(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,30}:"
#: One slash is what a path makes of two.
_SCHEME = rf"(?P<scheme>(?:{_NAMED})?//|{_NAMED}/)"
#: An address ends where the next one begins, as behind that of a mirror.
_END = rf"(?={_NAMED}//|\s|\Z)"
_QUOTES = "\"'`<>"
#: In a file that is stored a quote ends an address; a password that is shown may hold one.
_STORED = re.compile(
    rf"{_SCHEME}(?P<rest>[^\s{_QUOTES}]*?)(?:{_END}|(?=[{_QUOTES}]))", re.IGNORECASE
)
_SHOWN = re.compile(rf"{_SCHEME}(?P<rest>\S*?){_END}", re.IGNORECASE)
_HOST = r"(?:localhost|(?:\d{1,3}\.){3}\d{1,3}|(?:[\w-]{1,63}\.){1,8}[a-z]{2,20})(?::\d{1,5})?/"
#: `user:password@host/`, with a slash in the password too. Any name is a host's where the text is
#: known to be an address.
_ANY_HOST = r"[\w.-]{1,255}(?::\d{1,5})?/"
_LOGIN = rf"[^\s:/@{_QUOTES}]{{1,200}}:(?!//)\S{{0,1000}}@"
_KINDS = "dir|wheel|pypi|lock|requirements|pyproject|docker|oci|tar|report"
_BARE_LOGIN = re.compile(
    rf"(?:^|(?<=[\s(=,{_QUOTES}]))"
    rf"(?:(?P<kind>(?:{_KINDS}):){_LOGIN}(?={_ANY_HOST})"
    rf"|{_LOGIN}(?={_HOST}|{_ANY_HOST}\S{{0,1000}}\.whl))",
    re.IGNORECASE,
)
_AFTER_PORT = re.compile(rf"^[^/@]*:\S*@(?={_HOST})", re.IGNORECASE)
_DIGEST = re.compile(r"sha\d+:", re.IGNORECASE)
_WORD = re.compile(rf"[^\s{_QUOTES}]+")
_PAIR = re.compile(r"(?P<key>[?&#][^=&#]*)=(?P<value>[^&#]*)")
#: Keys of a query or a fragment whose values say what is meant, and open nothing.
_HARMLESS = re.compile(
    r"[?&#](?:amp;)?(?:md5|sha\d+|egg|subdirectory|name|version|ref|tag|page|format|download|raw"
    r"|hl|lang|repository_url)",
    re.IGNORECASE,
)
_MASK = "***"


# What terminals and CI runners obey


def printable(text: str) -> str:
    """One piece of foreign text on one line: what cannot be printed is escaped as in Python."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def visible(char: str) -> str:
    r"""An `Escape` for plain text: `\x1b`, `\u202e`."""
    number = ord(char)
    return f"\\x{number:02x}" if number < 0x100 else ascii(char)[1:-1]


def in_json(char: str) -> str:
    """An `Escape` for JSON, where the string keeps its value."""
    return f"\\u{ord(char):04x}" if ord(char) < 0x80 else json.dumps(char)[1:-1]


def in_markup(char: str) -> str:
    """An `Escape` for XML, HTML and Markdown: a reference for what they show as it is."""
    return f"&#{ord(char)};" if char in ":#" else visible(char)


@dataclass(frozen=True, slots=True)
class Syntax:
    """What a whole output is written in, as far as making it safe needs to know."""

    #: How it writes a character that must not stand there as it is.
    escape: Escape
    #: Whether it may hold styles.
    styled: bool = False
    #: Whether the text as a whole is no place to look for addresses: a page has scripts, and a
    #: matrix is all on one line. Secrets are taken out of what it is made from.
    opaque: bool = False
    #: Whether it is no text: nobody reads it but a program that knows where its texts end.
    binary: bool = False


LINES, STYLED = Syntax(visible), Syntax(visible, styled=True)
JSON, JSON_LINE = Syntax(in_json), Syntax(in_json, opaque=True)
MARKUP, PAGE = Syntax(in_markup), Syntax(in_markup, opaque=True)
BINARY = Syntax(visible, opaque=True, binary=True)


def guarded(text: str, escape: Escape = visible, *, styled: bool = False) -> str:
    """A whole output without anything that a terminal or a CI runner would obey.

    Lines stay as they are. `styled` lets the styles of `reports.terminal` pass.
    """
    if _is_clean(text):
        return text

    def escaped(match: re.Match[str]) -> str:
        if styled and match["style"]:
            return match[0]
        margin = match["margin"] or ""
        return margin + escape(match[0][len(margin) :])

    return (_STYLED if styled else _PLAIN).sub(escaped, text)


def _is_clean(text: str) -> bool:
    """Whether nothing is to be escaped, where that is soon said: of most large outputs."""
    if not text.isascii() or any(pair in text for pair in _PAIRS):
        return False
    return not text.encode().translate(None, _CLEAN)


def safe(text: str, syntax: Syntax) -> str:
    """A whole output of this syntax: no secrets, and nothing that is obeyed where it is read."""
    return guarded(text if syntax.opaque else shown(text), syntax.escape, styled=syntax.styled)


# Secrets


def without_login(text: str) -> str:
    """`text` without the user names and passwords of the addresses in it: as it may be stored.

    `ssh://git@host` keeps its `git`, which is no secret. Queries stay, since a file that is stored
    is read from them again: use `shown` for what people see.
    """
    return _STORED.sub(_without_login, text) if "@" in text else text


def shown(text: str) -> str:
    """`text` without the secrets of the addresses in it: as people may see it.

    User names and passwords go, with and without a scheme, and so do the values in queries: tokens
    and signatures have too many names to know them all.
    """
    if "@" in text:
        text = _SHOWN.sub(_without_login, text)
        text = _SHOWN.sub(_without_late_login, text)
        text = _BARE_LOGIN.sub(lambda match: match["kind"] or "", text)
    if "?" in text or "#" in text:
        text = _WORD.sub(_without_values, text)
    return text


def _without_login(match: re.Match[str]) -> str:
    scheme, rest = match["scheme"], match["rest"]
    authority, slash, path = rest.partition("/")
    _, colon, password = authority.partition(":")
    if "@" in authority and (scheme.endswith("//") or colon):
        login, _, host = authority.rpartition("@")
        behind = host + slash + path
    elif colon and slash and "@" in path and not re.fullmatch(r"\d*|\$\{\w+\}", password):
        # No port looks so: it is the begin of a password with a raw slash in it.
        login, _, behind = rest.rpartition("@")
    else:
        return match[0]
    if _DIGEST.match(behind):
        return match[0]
    is_shell = scheme.lower().endswith(("ssh://", "git://"))
    name = login.partition(":")[0]
    return scheme + (f"{name}@" if is_shell and re.fullmatch(r"[\w.-]+", name) else "") + behind


def _without_late_login(match: re.Match[str]) -> str:
    """`http://user:12/34@host/`: what looks like a port is the begin of a password."""
    return match["scheme"] + _AFTER_PORT.sub("", match["rest"])


def _without_values(match: re.Match[str]) -> str:
    """One word without the values of its query and, where it is an address, of its fragment."""
    word = match[0]
    begin = word.find("//")
    at = re.compile(r"[?#]" if begin >= 0 else r"\?").search(word, max(begin, 0))
    if at is None:
        return word
    head, tail = word[: at.start()], word[at.start() :]
    if "=" not in tail:
        is_token = tail[0] == "?" and begin >= 0 and len(tail) > 1
        is_token = is_token and not _is_masked(tail[1:])
        return f"{head}?{_MASK}" if is_token else word
    return head + _PAIR.sub(_masked, tail)


def _masked(pair: re.Match[str]) -> str:
    if _HARMLESS.fullmatch(pair["key"]) or _is_masked(pair["value"]):
        return pair[0]
    return f"{pair['key']}={_MASK}"


def _is_masked(value: str) -> bool:
    r"""Whether a value was masked before, in Markdown `\*\*\*`.

    Such a value stays as it is: behind it may stand the backslash that escapes what follows.
    """
    return value.replace("\\", "") == _MASK


# Data


def each_text(
    value: Value, change: Callable[[str], str], *, lines: Collection[str] = frozenset()
) -> Value:
    """The same data with `change` made to every string in it.

    Dataclasses, mappings, tuples and lists are followed. Of the fields named `lines`, whose texts
    have several lines, each line is changed by itself.
    """
    # A report of hundreds of targets says the same thing hundreds of times.
    answers: dict[str, str] = {}

    def changed_text(text: str) -> str:
        answer = answers.get(text)
        if answer is None:
            answer = change(text)
            answers[text] = text if answer == text else answer
        return answers[text]

    def changed(value: Any) -> Any:
        type_of: Any = type(value)
        kind = _kind(type_of)
        if kind is None:
            return value
        if kind is str:
            return changed_text(value)
        if kind is tuple:
            items = [changed(item) for item in value]
            return value if all(map(operator.is_, items, value)) else type(value)(items)
        if kind is Mapping:
            pairs = {changed(key): changed(item) for key, item in value.items()}
            unchanged = len(pairs) == len(value) and all(
                key in value and value[key] is item for key, item in pairs.items()
            )
            return value if unchanged else pairs
        return with_changes(value, _names(kind))

    def with_changes(value: Any, names: Sequence[str]) -> Any:
        differing = {}
        for name in names:
            before = getattr(value, name)
            if name in lines and isinstance(before, str):
                after = "\n".join(map(changed_text, before.split("\n")))
            else:
                after = changed(before)
            if after is not before and after != before:
                differing[name] = after
        return replace(value, **differing) if differing else value

    result: Value = changed(value)
    return result


@cache
def _kind(kind: Any) -> Any:
    """What stands for all types that are followed in the same way; None for what holds no text."""
    if issubclass(kind, str):
        return str
    if issubclass(kind, tuple | list):
        return tuple
    if issubclass(kind, Mapping):
        return Mapping
    return kind if is_dataclass(kind) else None


@cache
def _names(data: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(data) if field.init)
