"""Instructions of a Dockerfile, their stages, and the words in them.

Source: the Dockerfile reference (https://docs.docker.com/reference/dockerfile/), and
frontend/dockerfile/{parser,shell} of moby/buildkit, v0.25.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

_DIRECTIVE = re.compile(r"#\s*(escape|syntax)\s*=", re.IGNORECASE)
_CONTINUED = re.compile(r"([^\\])\\[ \t]*$|^\\[ \t]*$")
_FLAG = re.compile(r"--[a-z-]+(=\S*)?(\s+|$)")
_HEREDOC = re.compile(r"<<-?\s*['\"]?[A-Za-z_]")
#: `$NAME`, `${NAME}` and, without quotes in it, `${NAME:+WORD}`.
_VARIABLE = re.compile(
    r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)(?::\+([^{}\"'\\]*))?\}|([A-Za-z_][A-Za-z0-9_]*))"
)
_PAIR_NAME = re.compile(r"[^\s=\"'\\$]+")


class DockerfileError(ValueError):
    """Unsupported syntax, which requires another frontend, or a shell."""


class DockerfileInstruction(Struct, frozen=True):
    """One instruction of a Dockerfile."""

    #: Its first line's number.
    line: int
    #: In upper case.
    keyword: str
    #: `--mount=...` and the like.
    flags: tuple[str, ...]
    #: The rest, with its lines joined.
    text: str
    #: Its first line, unchanged.
    first: str

    @property
    def shown(self) -> str:
        """Text for messages."""
        text = " ".join(self.text.split())
        return f"{self.keyword} {text if len(text) <= 60 else text[:57] + '...'}"


class Stage(Struct, frozen=True):
    """Instructions from one FROM to the next."""

    begin: DockerfileInstruction
    base: str
    name: str
    instructions: tuple[DockerfileInstruction, ...]


def instructions(text: str) -> Iterator[DockerfileInstruction]:
    """Yield the instructions as `scan_instructions`. Raises `DockerfileError` if others read it."""
    for number, line in enumerate(map(str.strip, text.split("\n")), 1):
        if not line.startswith("#"):
            break
        if _DIRECTIVE.match(line):
            raise DockerfileError(f"line {number}: `{line[:60]}` asks for another reader of it")
    for instruction in scan_instructions(text):
        if instruction.keyword in ("RUN", "COPY", "ADD") and _HEREDOC.search(instruction.text):
            raise DockerfileError(f"line {instruction.line}: a heredoc")
        yield instruction


def scan_instructions(text: str) -> Iterator[DockerfileInstruction]:
    """Yield the instructions, without comments and empty lines; a heredoc counts as some more."""
    begun, first, pending = 0, "", ""
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if not begun:
            begun, first, line = number, line, line.lstrip()
        if _CONTINUED.search(line):
            pending += line[: line.rindex("\\")]
            continue
        yield _instruction(begun, first, pending + line)
        begun, pending = 0, ""
    if begun:
        yield _instruction(begun, first, pending)


def _instruction(line: int, first: str, text: str) -> DockerfileInstruction:
    keyword, _, rest = text.strip().partition(" ")
    rest = rest.lstrip()
    flags = []
    while match := _FLAG.match(rest):
        flags.append(match[0].strip())
        rest = rest[match.end() :]
    return DockerfileInstruction(line, keyword.upper(), tuple(flags), rest, first)


def stages(
    instructions: Iterable[DockerfileInstruction],
) -> tuple[tuple[DockerfileInstruction, ...], tuple[Stage, ...]]:
    """Return instructions before the first FROM, and the stages. Raises `DockerfileError`."""
    above: list[DockerfileInstruction] = []
    stages: list[tuple[DockerfileInstruction, list[DockerfileInstruction]]] = []
    for instruction in instructions:
        if instruction.keyword == "FROM":
            stages.append((instruction, []))
        elif stages:
            stages[-1][1].append(instruction)
        else:
            above.append(instruction)
    return tuple(above), tuple(_stage(begin, tuple(inside)) for begin, inside in stages)


def _stage(begin: DockerfileInstruction, inside: tuple[DockerfileInstruction, ...]) -> Stage:
    words = begin.text.split()
    if len(words) == 3 and words[1].upper() == "AS":
        return Stage(begin, words[0], words[2].lower(), inside)
    if len(words) != 1:
        raise DockerfileError(f"line {begin.line}: `{begin.shown}` names no stage")
    return Stage(begin, words[0], "", inside)


class Word(Struct, frozen=True):
    """A word with resolved quotes: texts and variables."""

    #: A text and False; a variable's name and True; or its name, and the word that replaces it if
    #: it is set and not empty (`${NAME:+WORD}`).
    parts: tuple[tuple[str, bool | Word], ...]

    def value(self, variables: Mapping[str, str]) -> str:
        """Return the word with the values of `variables`; unset ones are empty."""
        values = []
        for text, name in self.parts:
            value = variables.get(text, "") if name else text
            values.append(name.value(variables) if value and isinstance(name, Word) else value)
        return "".join(values)


def word(text: str) -> Word:
    """Parse one word with quotes, escapes and variables. Raises `DockerfileError`."""
    parts: list[tuple[str, bool | Word]] = []
    quote = ""
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            if at + 1 == len(text):
                raise DockerfileError("a backslash at the end")
            escaped = text[at + 1]
            # In double quotes it only escapes special characters.
            keeps = quote == '"' and escaped not in '"$\\'
            parts.append((char + escaped if keeps else escaped, False))
            at += 2
        elif char == quote:
            quote = ""
            at += 1
        elif char in "\"'" and not quote:
            quote = char
            at += 1
        elif char == "$" and quote != "'":
            match = _VARIABLE.match(text, at)
            if match is None:
                raise DockerfileError(f"`{text[at : at + 20]}` is more than a variable")
            parts.append((match[1] or match[3], True if match[2] is None else word(match[2])))
            at = match.end()
        else:
            parts.append((char, False))
            at += 1
    if quote:
        raise DockerfileError("a quote that does not end")
    return Word(tuple(parts))


def words(text: str) -> list[str]:
    """Split `text` into words, with their quotes. Raises `DockerfileError`."""
    words: list[str] = []
    current, quote, is_escaped = "", "", False
    for char in text:
        if is_escaped:
            is_escaped = False
        elif char == "\\" and quote != "'":
            is_escaped = True
        elif quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char.isspace():
            if current:
                words.append(current)
            current = ""
            continue
        current += char
    if quote:
        raise DockerfileError("a quote that does not end")
    return [*words, current] if current else words


def pairs(text: str) -> tuple[tuple[str, Word], ...]:
    """Parse the `NAME=VALUE` pairs of ENV and LABEL. Raises `DockerfileError`."""
    pairs = []
    for item in words(text):
        name, is_pair, value = item.partition("=")
        if len(name) > 1 and name[0] == name[-1] and name[0] in "\"'":
            name = name[1:-1]
        if not is_pair or _PAIR_NAME.fullmatch(name) is None:
            raise DockerfileError("a word that is not NAME=VALUE")
        pairs.append((name, word(value)))
    return tuple(pairs)


def array(text: str) -> list[str] | None:
    """Parse a JSON array of strings; None if `text` is plain text."""
    if not text.startswith("["):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_array = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return value if is_array else None
