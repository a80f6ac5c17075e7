"""Spelling of names in an inventory."""

from __future__ import annotations

import os
import re


def readable(name: str) -> str:
    r"""Return `name` as valid Unicode: bytes of a file name that are not UTF-8 become `\xNN`."""
    if name.isascii():
        return name
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def distribution_name(name: str) -> str:
    """Return the normalized name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
