"""Vendors in pictures: a color for each of those that most images hold, and names for people."""

from __future__ import annotations

from collections.abc import Mapping

#: Vendor -> its name. Each has a class of this name in `style.css`.
_NAMES: Mapping[str, str] = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}
#: Of what belongs to no vendor.
NOBODY = "no vendor"


def vendor_class(vendor: str) -> str:
    """Class of the style sheet that colors what belongs to a vendor; empty stands for none.

    What a report calls a vendor may be anything: only names that are known here become classes.
    """
    if not vendor:
        return "none"
    return vendor if vendor in _NAMES else "other"


def vendor_name(vendor: str) -> str:
    """A vendor as people write it."""
    return _NAMES.get(vendor, vendor) if vendor else NOBODY
