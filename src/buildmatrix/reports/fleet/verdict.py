"""Exit code of a fleet's report, by the contract."""

from __future__ import annotations

from buildmatrix.errors import EXIT_FINDINGS, UndecidedError, most_severe
from buildmatrix.reports.fleet.model import FleetFinding, FleetReport
from buildmatrix.reports.run.model import FailOn
from buildmatrix.rules.model import SEVERITY_RANK


def exit_code(report: FleetReport, fail_on: FailOn = "error", strict: bool = False) -> int:
    """1 for findings, 3 where something was not judged or not looked at; 0 for neither.

    With `strict`, what is undecided counts as a finding.
    """
    codes = []
    if any(fails(finding, fail_on) for result in report.results for finding in result.findings):
        codes.append(EXIT_FINDINGS)
    if is_undecided(report):
        codes.append(EXIT_FINDINGS if strict else UndecidedError.exit_code)
    return most_severe(codes)


def fails(finding: FleetFinding, fail_on: FailOn) -> bool:
    """Return True if a finding makes a run fail that fails on `fail_on`."""
    if fail_on == "never" or finding.waived is not None:
        return False
    return SEVERITY_RANK[finding.severity] >= SEVERITY_RANK[fail_on]


def is_undecided(report: FleetReport) -> bool:
    """Return True if some part of the fleet is undecided."""
    return bool(report.missing) or any(item.state == "undecided" for item in report.results)
