"""Words for messages: what was probably meant, and how it is written in TOML."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def toml_string(text: str) -> str:
    """`text` as a TOML basic string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in escaped) + '"'


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    found = difflib.get_close_matches(word[:64], list(known), n=1)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str], what: str) -> str:
    """A hint for an unknown word: the closest known one, else all of them."""
    known = list(known)
    if near := closest(word, known):
        return f"did you mean `{near}`?"
    if not known:
        return f"there are no {what}"
    more = f" and {len(known) - 20} more" if len(known) > 20 else ""
    return f"known {what}: {', '.join(known[:20])}{more}"
