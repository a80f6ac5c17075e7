"""What all entries of a data file of the catalogue have."""

from __future__ import annotations

import datetime
from typing import Literal

import msgspec

#: How an entry is known. `verified`: read off a real file, or off real package metadata.
#: `documented`: a named public source says so. `inferred`: read into observed data.
#: `memory`: well known, no source retrieved.
Basis = Literal["verified", "documented", "inferred", "memory"]


class CatalogueEntry(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="kebab"
):
    """What all entries have."""

    #: Keys of the file's table `sources`.
    source: tuple[str, ...]
    basis: Basis
    #: When the source was last looked at; default: the date of the file.
    checked: datetime.date | None = None
    note: str | None = None
