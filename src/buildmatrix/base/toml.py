"""Bounded parser for untrusted TOML, with one exception for everything that can be wrong.

A parser stores every prefix of a dotted key, so one line of 40 kB costs gigabytes; numbers of
thousands of digits and deep nesting raise exceptions of other types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import tomli

#: Maximum of parts of a dotted key. Locks have five, specifications six.
MOST_PARTS = 24

TomlError = tomli.TOMLDecodeError

# Not `*+` after the group, which is defective before Python 3.11.5 (python/cpython#106052).
_STRING = re.compile(r'"(?>(?:[^"\\]++|\\.)*)"|' + r"'[^']*+'")
_LONG_KEY = re.compile(rf"(?:[A-Za-z0-9_-]++[ \t]*+\.[ \t]*+){{{MOST_PARTS}}}[A-Za-z0-9_-]")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
#: Python's limit for numbers, and more than any TOML needs.
_LONG_NUMBER = re.compile(r"[0-9A-Fa-f_]{4000}")
_LONG_HEXADECIMAL = re.compile(r"0[xob][0-9A-Fa-f_]{1000}")


def loads(text: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Parse a document. Raises `TomlError`, with line and column, for any fault."""
    if (offset := _long_key(text)) is not None:
        raise TomlError(f"A key has more than {MOST_PARTS} parts", text, offset)
    try:
        document = tomli.loads(text, parse_float=parse_float)
        if _LONG_HEXADECIMAL.search(text):
            # It was parsed but cannot be formatted; in a string or a comment it is harmless.
            str(document)
        return document
    except TomlError:
        raise
    except RecursionError as error:
        raise TomlError("Tables or arrays are nested too deeply", text, 0) from error
    except ValueError as error:
        # Python refuses numbers of thousands of digits.
        number = _LONG_NUMBER.search(text)
        place = number.start() if number else 0
        raise TomlError("A number has too many digits", text, place) from error


def _long_key(text: str) -> int | None:
    """Return the offset of the first part of a key beyond `MOST_PARTS`."""
    begin = 0
    for line in text.splitlines(keepends=True):
        if line.count(".") >= MOST_PARTS:
            plain = _STRING.sub(lambda string: "s" * len(string[0]), line)
            if key := _LONG_KEY.search(plain):
                return begin + key.end() - 1
        begin += len(line)
    return None


def written(value: object) -> str:
    """Return a value as TOML on one line: tables inline; dates and other types as their text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        items = (f"{written_key(key)} = {written(content)}" for key, content in value.items())
        return f"{{ {', '.join(items)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, int | float):
        return str(value)
    # A JSON string is a TOML basic string, except for DEL and escaped surrogates.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def written_key(key: str) -> str:
    """Return a key, in quotes if it needs them."""
    return key if _BARE.fullmatch(key) else written(key)


def mapping(value: object) -> Mapping[str, object]:
    """The value if it is a table, else an empty table."""
    return value if isinstance(value, dict) else {}


def tool_table(document: Mapping[str, object], tool: str) -> Mapping[str, object]:
    """The table `[tool.NAME]` of a document; empty without one."""
    return mapping(mapping(document.get("tool")).get(tool))


def tables(value: object) -> list[Mapping[str, object]]:
    """The tables of an array; empty where the value is not an array."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def string(value: object) -> str:
    """The value if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def strings(value: object) -> list[str]:
    """The strings of an array; empty where the value is not an array."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
