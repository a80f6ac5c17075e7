"""Inspections as JSON: the names are those of the models."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from buildmatrix.reports.inspect.model import SCHEMA, Inspection


def render(inspections: Sequence[Inspection]) -> str:
    """One JSON document, the same for the same inspections."""
    document = {"schema": SCHEMA, "files": msgspec.to_builtins(inspections)}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
