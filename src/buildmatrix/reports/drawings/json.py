"""A drawing as JSON, for other programs to draw."""

from __future__ import annotations

import json
from dataclasses import asdict

from buildmatrix.reports.drawings.drawing import Drawing

SCHEMA = "buildmatrix/graph/1"


def render(drawing: Drawing) -> str:
    """One document; `arrows` name boxes by their `id`."""
    return json.dumps({"schema": SCHEMA, **asdict(drawing)}, indent=2) + "\n"
