"""Texts of a fleet."""

from __future__ import annotations

from buildmatrix.text import shown


def clean(text: str) -> str:
    """A foreign text as a report keeps it: without secrets, and fit to be read again.

    Half a surrogate pair, as a path may hold, is in no JSON that a strict reader takes.
    """
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return shown(text)
