"""A comparison as JSON: `buildmatrix/diff/1`."""

from __future__ import annotations

from buildmatrix.reports.json_form import render as render
