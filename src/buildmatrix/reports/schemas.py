"""The JSON schemas of what commands write (`buildmatrix schema report|diff|...`)."""

from __future__ import annotations

from buildmatrix.reports.diff.drifts import Drifts
from buildmatrix.reports.diff.model import Comparison
from buildmatrix.reports.json_form import Json, schema
from buildmatrix.reports.promote.model import Promotion
from buildmatrix.reports.run.model import Report
from buildmatrix.reports.verify.model import Verification


def report() -> dict[str, Json]:
    """The schema of a report: `audit`, `build`, `scan`."""
    return schema(Report, "A report of buildmatrix")


def diff() -> dict[str, Json]:
    """The schema of a comparison: `diff`."""
    return schema(Comparison, "A comparison of buildmatrix")


def promotion() -> dict[str, Json]:
    """The schema of a promotion: `promote`."""
    return schema(Promotion, "A promotion of buildmatrix")


def verification() -> dict[str, Json]:
    """The schema of a verification: `verify`."""
    return schema(Verification, "A verification of buildmatrix")


def drift() -> dict[str, Json]:
    """The schema of drift: `diff --targets`."""
    return schema(Drifts, "Drift between the targets of buildmatrix")
