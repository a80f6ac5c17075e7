"""The report as one HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from buildmatrix.catalogue.model import Evidence
from buildmatrix.phrases import count
from buildmatrix.reports.page import document
from buildmatrix.reports.run.groups import FindingGroup, groups, named, whereabouts
from buildmatrix.reports.run.model import Report, state_of, steps, targets_in
from buildmatrix.reports.run.nodes import STYLES, columns, notes, rule_codes
from buildmatrix.rules.baseline import is_from_baseline
from buildmatrix.rules.model import Finding, GateState, TargetResult
from buildmatrix.vulnerabilities.model import Advisory

_STATES: Mapping[GateState, str] = {
    "passed": "passed",
    "failed": "failed",
    "undecided": "undecided",
    "not-run": "not run",
}
#: What a finding is filtered by -> the filter's label: open ones by severity, then accepted ones.
_KINDS = {"error": "errors", "warning": "warnings", "note": "notes", "accepted": "accepted"}


@dataclass(frozen=True, slots=True)
class _TargetsSection:
    """What is said of the same targets."""

    name: str
    #: The target, where it failed for a reason that is no finding.
    failed: TargetResult | None
    groups: Sequence[FindingGroup]


def render(report: Report) -> str:
    """The report as one document; the same report gives the same bytes."""
    return document.render(
        "run/page/report.html.j2",
        styles=["run/page/report.css"],
        scripts=["run/page/report.js"],
        report=report,
        gates=steps(report.targets),
        state_of=state_of,
        states=_STATES,
        kinds=_KINDS,
        kind=_kind,
        counts={
            kind: sum(_kind(finding) == kind for finding in report.findings) for kind in _KINDS
        },
        totals=_totals(report),
        sections=_sections(report),
        ids=[target.id for target in report.targets],
        audited=report.is_audit,
        nodes=columns(report.targets),
        fit_styles=STYLES,
        rule_codes=rule_codes,
        node_notes=notes(report.targets),
        named=named,
        whereabouts=whereabouts(report),
        patches=_patches,
        evidence=_evidence,
        advisories=_advisories,
        distributions=[verdict for verdict in report.distributions if verdict.verdict != "ok"],
        ok=sum(verdict.verdict == "ok" for verdict in report.distributions),
    )


def _kind(finding: Finding) -> str:
    return finding.severity if finding.waived is None else "accepted"


def _sections(report: Report) -> list[_TargetsSection]:
    """Groups about the same targets stand together, those about most of them first."""
    ids = [target.id for target in report.targets]
    errors: dict[tuple[str, ...], TargetResult] = {
        (result.id,): result for result in report.targets if result.error
    }
    about: dict[tuple[str, ...], list[FindingGroup]] = {targets: [] for targets in errors}
    for group in groups(report.findings, ids):
        about.setdefault(group.targets, []).append(group)

    def place(targets: tuple[str, ...]) -> tuple[int, int]:
        return -len(targets), ids.index(targets[0]) if targets[0] in ids else len(ids)

    return [
        _TargetsSection(named(targets, ids) or "this run", errors.get(targets), about[targets])
        for targets in sorted(about, key=place)
    ]


def _patches(group: FindingGroup) -> Iterable[str]:
    """What to write, each text once."""
    fixes = (
        finding.fix
        for finding in group.findings
        if finding.fix is not None and finding.fix.is_offered
    )
    return dict.fromkeys(fix.patch for fix in fixes if fix.patch)


def _evidence(group: FindingGroup) -> Sequence[Evidence]:
    """What findings of several targets rest on is there once."""
    return list(dict.fromkeys(item for finding in group.findings for item in finding.evidence))


def _advisories(group: FindingGroup) -> Sequence[Advisory]:
    return list(dict.fromkeys(item for finding in group.findings for item in finding.advisories))


def _totals(report: Report) -> str:
    """One sentence about the whole."""
    parts = []
    if report.targets:
        bad = targets_in(report.targets, "failed")
        unknown = targets_in(report.targets, "undecided")
        parts.append(f"{count(len(report.targets), 'target')}, {bad} failed")
        if unknown:
            parts.append(f"{unknown} undecided")
    in_baseline = sum(is_from_baseline(finding) for finding in report.findings)
    if in_baseline:
        parts.append(f"{count(in_baseline, 'finding')} of the baseline")
    if report.unread:
        parts.append(f"{len(report.unread)} not read")
    return ", ".join(parts)
