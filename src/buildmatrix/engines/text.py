"""Output of builds, cleaned for terminals, logs and one-line messages."""

from __future__ import annotations

import re

# ECMA-48 control sequences (CSI, OSC and two-character escapes), then other C0 and C1 characters.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """Remove colors, cursor movements and other control characters except tab and newline.

    The output of a step is untrusted and could rewrite the user's terminal.
    """
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def shorten(text: str, length: int) -> str:
    """Return text on one line of at most `length` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"


def megabytes(count: int) -> str:
    """Format bytes as `12.3 MB`."""
    return f"{count / 1e6:.1f} MB"
