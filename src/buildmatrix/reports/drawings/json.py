"""A drawing as JSON, for other programs to draw; `arrows` name boxes by their `id`."""

from __future__ import annotations

from buildmatrix.reports.json_form import render as render
