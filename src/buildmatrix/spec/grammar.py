"""What a set of strings is: its pattern, its bounds, and why a string is none of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from buildmatrix.text import shown

#: Characters; the longest string that a specification can need.
MAX_TEXT = 4096
#: Reorder the text around them, so that a line reads differently from what it does.
_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True, slots=True)
class Kind:
    """A set of strings."""

    #: With its article, to stand after "this is not": `an image reference`.
    noun: str
    example: str
    #: The whole string must match. Also goes into the JSON schema: only what ECMA-262 knows too.
    pattern: str = ""
    limit: int = 255
    #: What `pattern` cannot say: returns the complaint, or None.
    further: Callable[[str], str | None] | None = None
    #: The values, where there are only a few.
    choices: tuple[str, ...] = ()
    may_be_empty: bool = False
    #: The grammar in words, where the example alone does not tell it.
    rule: str = ""

    def complaint(self, text: str) -> str | None:
        """Why `text` is not of this kind, as a clause; None if it is."""
        if hidden := next((c for c in text if _is_hidden(c)), None):
            name = unicodedata.name(hidden, "control character").lower()
            return f"contains U+{ord(hidden):04X} ({name}); strings here are one line of plain text"
        if len(text) > self.limit:
            return f"has {len(text)} characters; {self.noun} has at most {self.limit}"
        if not text.strip() and not self.may_be_empty:
            return f"is empty; write {self.noun} such as `{self.example}`"
        if self.choices and text not in self.choices:
            return f"is not {self.noun}; write {' or '.join(f'`{c}`' for c in self.choices)}"
        if self.pattern and not re.fullmatch(self.pattern, text):
            rule = f" ({self.rule})" if self.rule else ""
            return f"is not {self.noun}{rule}; write something like `{self.example}`"
        return self.further(text) if self.further else None


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} or character in _BIDI


def quoted(text: str) -> str:
    """`text` for a message: in backticks, short, without passwords and terminal controls."""
    text = shown(text)
    short = text if len(text) <= 80 else text[:77] + "..."
    plain = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in short)
    return f"`{plain}`"
