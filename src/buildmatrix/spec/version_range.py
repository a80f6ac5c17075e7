"""Versions of drivers and kernels, and ranges of them, as node classes have them.

Vendors count in numbers with dots (`550.54.14`, `6.8.0-45-generic`); what stands behind the numbers
does not matter here, and a number that is left out is 0. Ranges are written as in PEP 440.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest

_NUMBERS = re.compile(r"\d{1,9}(?:\.\d{1,9})*")
_PART = re.compile(r"\s*(>=|<=|==|!=|~=|<|>)\s*v?(\d{1,9}(?:\.\d{1,9})*)(\.\*)?[^,]*")

Numbers = tuple[int, ...]


def numbers(version: str) -> Numbers | None:
    """The numbers that a version begins with; None for a text that begins with none."""
    match = _NUMBERS.match(version)
    return tuple(map(int, match[0].split("."))) if match is not None else None


def compare(first: Numbers, second: Numbers) -> int:
    """Less than 0, 0 or more, as `first` is older than `second`, the same, or newer."""
    for left, right in zip_longest(first, second, fillvalue=0):
        if left != right:
            return -1 if left < right else 1
    return 0


@dataclass(frozen=True, slots=True)
class VersionRange:
    """What a node class says of a version."""

    #: As written.
    text: str
    #: The oldest version that may be there; None where the text sets no lower end.
    lowest: Numbers | None
    #: Whether no version is in it.
    is_empty: bool = False


def version_range(text: str) -> VersionRange:
    """The range that `text` is: one version, a range (`>=550,<570`), or any for an empty text."""
    single = numbers(text)
    if single is not None:
        return VersionRange(text, single)
    low: tuple[Numbers, bool] | None = None
    high: tuple[Numbers, bool] | None = None
    excluded: list[Numbers] = []
    for match in map(_PART.fullmatch, text.split(",")):
        value = numbers(match[2]) if match is not None else None
        if match is None or value is None:
            continue
        operator, is_prefix = match[1], bool(match[3])
        if operator == "!=":
            if not is_prefix:
                excluded.append(value)
            continue
        if operator in (">=", ">", "==", "~="):
            lower = (value, operator == ">")
            if low is None or compare(lower[0], low[0]) > 0 or (lower[0] == low[0] and lower[1]):
                low = lower
        upper = _upper(operator, value, is_prefix)
        if upper is not None and (
            high is None or compare(upper[0], high[0]) < 0 or (upper[0] == high[0] and upper[1])
        ):
            high = upper
    is_empty = False
    if low is not None and high is not None:
        order = compare(low[0], high[0])
        is_empty = order > 0 or (order == 0 and (low[1] or high[1] or low[0] in excluded))
    return VersionRange(text, low[0] if low is not None else None, is_empty)


def _upper(operator: str, value: Numbers, is_prefix: bool) -> tuple[Numbers, bool] | None:
    """The upper end that one part of a range sets, and whether that itself is outside."""
    if operator in ("<", "<="):
        return value, operator == "<"
    if operator == "==":
        return (_next(value), True) if is_prefix else (value, False)
    if operator == "~=" and len(value) > 1:
        return _next(value[:-1]), True
    return None


def _next(value: Numbers) -> Numbers:
    return (*value[:-1], value[-1] + 1)
