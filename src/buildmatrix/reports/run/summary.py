"""The last line of a table and the first one of Markdown: what a report counts."""

from __future__ import annotations

from collections.abc import Sequence

from buildmatrix.phrases import count
from buildmatrix.reports.run.groups import FindingGroup
from buildmatrix.reports.run.model import Report, targets_in
from buildmatrix.rules.baseline import is_from_baseline
from buildmatrix.rules.model import Finding, Severity

_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


def unsettled(report: Report) -> tuple[Finding, ...]:
    """The findings that nobody accepted."""
    return tuple(finding for finding in report.findings if finding.waived is None)


def summary(report: Report, groups: Sequence[FindingGroup]) -> str:
    """Targets and findings by number; `groups` are those that the format shows."""
    left = unsettled(report)
    parts = [
        count(sum(finding.severity == severity for finding in left), severity)
        for severity in _SEVERITIES
    ]
    in_baseline = sum(is_from_baseline(finding) for finding in report.findings)
    waived = len(report.findings) - len(left) - in_baseline
    if waived:
        parts.append(f"{waived} waived")
    if in_baseline:
        parts.append(f"{in_baseline} in the baseline")
    if report.unread:
        parts.append(f"{len(report.unread)} not read")
    text = ", ".join(parts)
    if len(groups) < len(report.findings):
        text += f" ({count(len(report.findings), 'finding')} in {count(len(groups), 'group')})"
    if report.targets:
        bad = targets_in(report.targets, "failed")
        unknown = targets_in(report.targets, "undecided")
        text = (
            f"{count(len(report.targets), 'target')}: {bad} failed"
            + (f", {unknown} undecided" if unknown else "")
            + f"; {text}"
        )
    return text
