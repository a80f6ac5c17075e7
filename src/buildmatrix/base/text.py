"""Text for people: sanitized, without secrets, and with numbers and lists in words.

Names, versions, paths and URLs come from images, wheels, indexes and pull requests that no one
vouches for. `printable` keeps one piece of such text on its line, `shown` removes secrets, and
`guarded` is for a whole output just before it is written, where no call site can forget it.

They are stored in this process, and nowhere else, so that files of the same server can be read; all
other modules get URLs without them (`buildmatrix.base.text.without_login`).
"""

from __future__ import annotations

import json
import operator
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from buildmatrix.base.data import field_names, is_record, replace

# CI runners obey `::command::` at the beginning of a line
# (https://docs.github.com/actions/reference/workflow-commands-for-github-actions), `##[command]`
# and `##vso[command]` anywhere in one
# (https://learn.microsoft.com/azure/devops/pipelines/scripts/logging-commands), and `##teamcity[`.


Value = TypeVar("Value")
#: Returns the text of a format for one character that must not stand there as it is.
Escape = Callable[[str], str]

#: C0 without tab and newline, DEL, C1, direction marks and overrides, characters without width,
#: line and paragraph separators, surrogates, tags.
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
)
_UNSAFE = rf"[{_HIDDEN}]|(?P<margin>^[^\S\n]*):(?=:)|#(?=#\w*\[)"
#: The styles of `reports.terminal`.
_STYLE = r"\x1b\[(?:0|[12]|3[1-4])(?:;(?:[12]|3[1-4]))*m"
_PLAIN = re.compile(_UNSAFE, re.MULTILINE)
_STYLED = re.compile(rf"(?P<style>{_STYLE})|{_UNSAFE}", re.MULTILINE)
#: ASCII bytes that are never unsafe, except in the pairs below.
_CLEAN = bytes([*b"\t\n", *range(0x20, 0x7F)])
_PAIRS = ("::", "##")

# A URL: the lookbehind and the bounds keep the time linear in text without one.
_NAMED = r"(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,30}:"
#: A path normalizes two slashes to one.
_SCHEME = rf"(?P<scheme>(?:{_NAMED})?//|{_NAMED}/)"
#: A URL ends where the next one begins, as after a mirror's.
_END = rf"(?={_NAMED}//|\s|\Z)"
_QUOTES = "\"'`<>"
#: In a stored file a quote ends a URL; a displayed password may contain one.
_STORED = rf"{_SCHEME}(?P<rest>[^\s{_QUOTES}]*?)(?:{_END}|(?=[{_QUOTES}]))"
_SHOWN = rf"{_SCHEME}(?P<rest>\S*?){_END}"
_HOST = r"(?:localhost|(?:\d{1,3}\.){3}\d{1,3}|(?:[\w-]{1,63}\.){1,8}[a-z]{2,20})(?::\d{1,5})?/"
#: `user:password@host/`, also with a slash in the password. Any name may be a host if the text is
#: known to be a URL.
_ANY_HOST = r"[\w.-]{1,255}(?::\d{1,5})?/"
_LOGIN = rf"[^\s:/@{_QUOTES}]{{1,200}}:(?!//)\S{{0,1000}}@"
_KINDS = "dir|wheel|pypi|lock|requirements|pyproject|docker|oci|tar|report"
_BARE_LOGIN = (
    rf"(?:^|(?<=[\s(=,{_QUOTES}]))"
    rf"(?:(?P<kind>(?:{_KINDS}):){_LOGIN}(?={_ANY_HOST})"
    rf"|{_LOGIN}(?={_HOST}|{_ANY_HOST}\S{{0,1000}}\.whl))"
)
_AFTER_PORT = rf"^[^/@]*:\S*@(?={_HOST})"
_DIGEST = re.compile(r"sha\d+:", re.IGNORECASE)
#: A word with a query or a fragment.
_WORD = re.compile(rf"(?<![^\s{_QUOTES}])[^\s{_QUOTES}?#]*+[?#][^\s{_QUOTES}]*")
_PAIR = re.compile(r"(?P<key>[?&#][^=&#]*)=(?P<value>[^&#]*)")
#: Keys of a query or fragment whose values are no secrets.
_HARMLESS = re.compile(
    r"[?&#](?:amp;)?(?:md5|sha\d+|egg|subdirectory|name|version|ref|tag|page|format|download|raw"
    r"|hl|lang|repository_url|arch|distro|epoch)",
    re.IGNORECASE,
)
_MASK = "***"


# Terminals and CI runners


def printable(text: str) -> str:
    """Return untrusted text on one line, with unprintable characters escaped as in Python."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def visible(char: str) -> str:
    r"""Escape a character in plain text: `\x1b`, `\u202e`."""
    number = ord(char)
    return f"\\x{number:02x}" if number < 0x100 else ascii(char)[1:-1]


def in_json(char: str) -> str:
    """Escape a character in JSON, where the string keeps its value."""
    return f"\\u{ord(char):04x}" if ord(char) < 0x80 else json.dumps(char)[1:-1]


def in_markup(char: str) -> str:
    """Escape a character in XML, HTML or Markdown, by a reference if it is printable."""
    return f"&#{ord(char)};" if char in ":#" else visible(char)


class Syntax(Struct, frozen=True):
    """Syntax of a whole output, as far as sanitizing depends on it."""

    #: Writes a character that must not stand there as it is.
    escape: Escape
    #: True if it may contain terminal styles.
    styled: bool = False
    #: True if the text as a whole is not searched for URLs: a page has scripts, and a matrix is a
    #: single line. Secrets are removed from the data instead.
    opaque: bool = False
    #: True if it is not text; only programs that know its format read it.
    binary: bool = False


LINES, STYLED = Syntax(visible), Syntax(visible, styled=True)
JSON, JSON_LINE = Syntax(in_json), Syntax(in_json, opaque=True)
MARKUP, PAGE = Syntax(in_markup), Syntax(in_markup, opaque=True)
BINARY = Syntax(visible, opaque=True, binary=True)


def guarded(text: str, escape: Escape = visible, *, styled: bool = False) -> str:
    """Return a whole output without anything that a terminal or a CI runner would obey.

    Lines are kept. `styled` keeps the styles of `reports.terminal`.
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
    """Return True if nothing has to be escaped; fast for most large outputs."""
    if not text.isascii() or any(pair in text for pair in _PAIRS):
        return False
    return not text.encode().translate(None, _CLEAN)


def safe(text: str, syntax: Syntax) -> str:
    """Return a whole output of this syntax without secrets and commands."""
    return guarded(text if syntax.opaque else shown(text), syntax.escape, styled=syntax.styled)


# Secrets


@cache
def _url_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern when it is needed first: few outputs have a URL with a login."""
    return re.compile(pattern, re.IGNORECASE)


def without_login(text: str) -> str:
    """Return `text` without user names and passwords in its URLs, for storing.

    `ssh://git@host` keeps its `git`, which is no secret. Queries are kept, since stored URLs are
    requested again; use `shown` for text that people see.
    """
    return _url_pattern(_STORED).sub(_without_login, text) if "@" in text else text


def shown(text: str) -> str:
    """Return `text` without the secrets of its URLs, for display.

    Removes user names and passwords, with and without a scheme, and the values in queries: tokens
    and signatures have too many names to know them all.
    """
    if "\n" in text:
        # No match goes beyond its line, and few lines of a report have one.
        return "\n".join(map(shown, text.split("\n")))
    if "@" in text:
        text = _url_pattern(_SHOWN).sub(_without_login, text)
        text = _url_pattern(_SHOWN).sub(_without_late_login, text)
        text = _url_pattern(_BARE_LOGIN).sub(lambda match: match["kind"] or "", text)
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
        # Not a port, but the beginning of a password that contains a slash.
        login, _, behind = rest.rpartition("@")
    else:
        return match[0]
    if _DIGEST.match(behind):
        return match[0]
    is_shell = scheme.lower().endswith(("ssh://", "git://"))
    name = login.partition(":")[0]
    return scheme + (f"{name}@" if is_shell and re.fullmatch(r"[\w.-]+", name) else "") + behind


def _without_late_login(match: re.Match[str]) -> str:
    """Return a URL without a password that looks like a port: `http://user:12/34@host/`."""
    return match["scheme"] + _url_pattern(_AFTER_PORT).sub("", match["rest"])


def _without_values(match: re.Match[str]) -> str:
    """Return a word without the values of its query and, if it is a URL, of its fragment."""
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
    r"""Return True if a value was masked before; in Markdown, that is `\*\*\*`.

    Such a value is kept: after it may follow the backslash that escapes the next character.
    """
    return value.replace("\\", "") == _MASK


# Data


def each_text(
    value: Value, change: Callable[[str], str], *, lines: Collection[str] = frozenset()
) -> Value:
    """Return `value` with `change` applied to every string in it.

    Recurses into dataclasses, mappings, tuples and lists. In fields named in `lines`, whose texts
    have several lines, each line is changed separately.
    """
    # A report of hundreds of targets repeats the same strings hundreds of times.
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
        return with_changes(value, field_names(kind))

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
    """Return the base of all types that are traversed alike; None for types without text."""
    if issubclass(kind, str):
        return str
    if issubclass(kind, tuple | list):
        return tuple
    if issubclass(kind, Mapping):
        return Mapping
    return kind if is_record(kind) else None


# Numbers and lists


_UNITS = ("kB", "MB", "GB", "TB")


def size(count: int) -> str:
    """Return a size in powers of 1000: `512 B`, `48.1 MB`."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in _UNITS:
        value /= 1000
        if value < 999.95 or unit == _UNITS[-1]:
            break
    return f"{value:.1f} {unit}"


def bounded(count: int, *, at_least: bool) -> str:
    """Return a size for a table cell, marked if it is a lower bound: `≥12.6 MB`."""
    return f"{'≥' if at_least else ''}{size(count)}"


def split_lines(text: str) -> list[str]:
    """Split lines as `patch` does: only a line feed ends one."""
    parts = text.split("\n")
    return [*(f"{part}\n" for part in parts[:-1]), *([parts[-1]] if parts[-1] else [])]


def listing(items: Iterable[str], most: int = 4, separator: str = ", ") -> str:
    """Return `a, b, c and 7 more`: each item once, in the given order."""
    unique: Sequence[str] = list(dict.fromkeys(items))
    shown = separator.join(unique[:most])
    return shown if len(unique) <= most else f"{shown} and {len(unique) - most} more"


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 file`, `3 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


#: The public package index.
PYPI = "https://pypi.org/simple/"
#: `user:password@` of an http(s) URL, with the server.
_CREDENTIALS = re.compile(r"\bhttps?://[^/\s\"'`<>]*@[^/\s\"'`<>#?]+", re.IGNORECASE)
#: An environment variable in a requirements file, as pip and uv read it.
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")

_remembered: dict[str, None] = {}


def remember(text: str) -> None:
    """Store the credentials of the http(s) URLs in `text`, which the user provided."""
    for url in _CREDENTIALS.findall(text):
        expanded = _VARIABLE.sub(lambda match: os.environ.get(match[1], match[0]), url)
        _remembered.setdefault(expanded)


def recall_urls() -> Sequence[str]:
    """Return server URLs with credentials, in the order of the inputs."""
    return tuple(_remembered)


def path_in(url: str) -> str:
    """Return the decoded path of a URL, or the part of other text that looks like a path."""
    try:
        return unquote(urlsplit(url).path)
    except ValueError:  # `http://[`
        return unquote(re.split("[?#]", url, maxsplit=1)[0])
