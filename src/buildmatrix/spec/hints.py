"""Hints for messages: what was probably meant, and how it is written in TOML."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from buildmatrix.phrases import listing


def toml_string(text: str) -> str:
    """`text` as a TOML basic string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in escaped) + '"'


def closest(word: str, words: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    matches = difflib.get_close_matches(word[:64], list(words), n=1)
    return matches[0] if matches else None


def did_you_mean(word: str, words: Iterable[str], plural: str) -> str:
    """A hint for an unknown word: the closest known one, else all of them."""
    words = list(words)
    if near := closest(word, words):
        return f"did you mean `{near}`?"
    if not words:
        return f"there are no {plural}"
    return f"known {plural}: {listing(words, 20)}"
