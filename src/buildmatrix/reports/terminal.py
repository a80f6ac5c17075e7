"""Styles, states and line breaks of text for terminals."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Literal

from buildmatrix.base.text import printable

if TYPE_CHECKING:
    # Completion of targets imports this module, and must not wait for the model of findings.
    from buildmatrix.judge.model import GateState

# Text: styles (ECMA-48, select graphic rendition), safe characters, lines


Style = Literal["bold", "dim", "red", "green", "yellow", "blue"]

_CODES: dict[Style, int] = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34}


class Painter:
    """Puts styles around text, or leaves it plain."""

    def __init__(self, color: bool) -> None:
        self._color = color

    def __call__(self, text: str, *styles: Style) -> str:
        """`text` in the given styles."""
        if not self._color or not styles or not text:
            return text
        codes = ";".join(str(_CODES[style]) for style in styles)
        return f"\x1b[{codes}m{text}\x1b[0m"


def wrapped(text: str, width: int, indent: str = "", further: str | None = None) -> list[str]:
    """`text`, printable, in lines of at most `width` columns where its words allow that.

    Names and paths stay whole. Lines after the first begin with `further`, by default `indent`.
    """
    return textwrap.wrap(
        printable(text),
        width,
        initial_indent=indent,
        subsequent_indent=indent if further is None else further,
        break_long_words=False,
        break_on_hyphens=False,
    )


# States, as all formats for people write them


#: State of a gate, a rung or a check → its word in every text format, and its style.
STATES: dict[GateState | Literal["accepted"], tuple[str, Style]] = {
    "passed": ("passed", "green"),
    "failed": ("failed", "red"),
    "undecided": ("undecided", "yellow"),
    "not-run": ("not run", "dim"),
    "accepted": ("accepted", "dim"),
}
WORDS = {state: word for state, (word, _) in STATES.items()}
