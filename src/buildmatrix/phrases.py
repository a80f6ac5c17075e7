"""Formatting of numbers and lists for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


def listing(items: Iterable[str], most: int = 4, separator: str = ", ") -> str:
    """Return `a, b, c and 7 more`: each item once, in the given order."""
    unique: Sequence[str] = list(dict.fromkeys(items))
    shown = separator.join(unique[:most])
    return shown if len(unique) <= most else f"{shown} and {len(unique) - most} more"


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 file`, `3 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
