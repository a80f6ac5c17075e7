"""Text that a build printed, made fit for a terminal, a log and a one-line message."""

from __future__ import annotations

import re

# ECMA-48 control sequences (CSI, OSC and two-character escapes), then what is left of C0 and C1.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """Text without colours, cursor movements and other control characters; keeps tab and newline.

    What a step prints is not ours: shown as it is, it could rewrite the user's terminal.
    """
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def shorten(text: str, length: int) -> str:
    """Text on one line of at most `length` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"


def megabytes(count: int) -> str:
    """Bytes as `12.3 MB`."""
    return f"{count / 1e6:.1f} MB"
