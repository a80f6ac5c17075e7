"""The report as JSON, the format of docs/contract.md."""

from __future__ import annotations

from buildmatrix.reports.json_form import render as render
