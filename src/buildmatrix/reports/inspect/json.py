"""Inspections as JSON: the names are those of the models."""

from __future__ import annotations

from collections.abc import Sequence

from buildmatrix.reports import json_form
from buildmatrix.reports.inspect.model import Inspection, Inspections


def render(inspections: Sequence[Inspection]) -> str:
    """One JSON document, the same for the same inspections."""
    return json_form.render(Inspections(tuple(inspections)))
