"""The report for GitLab's `artifacts:reports:codequality`, a part of Code Climate's format.

https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format: a list of issues, each
with `description`, `check_name`, `fingerprint`, `severity` and `location`. A merge request shows
what is there and was not before, which fingerprints tell: they are those of the report, so that a
finding of several targets is one issue. Accepted findings are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import PurePath

from buildmatrix.phrases import listing
from buildmatrix.reports.json_form import Json, dumps
from buildmatrix.reports.run.model import Report, unread
from buildmatrix.reports.run.places import file_and_line, path_from
from buildmatrix.rules.model import Finding, Severity

_SEVERITIES: dict[Severity, str] = {"error": "critical", "warning": "minor", "note": "info"}


def render(report: Report, *, root: PurePath | None = None, top: PurePath | None = None) -> str:
    """The report as one list of issues.

    Args:
        report: what to render.
        root: the folder that the paths in it start from; absolute.
        top: the root of the repository, which paths in the list start from; absolute.
    """

    def place(file: str, line: int) -> dict[str, Json]:
        return {"path": path_from(top, file, root), "lines": {"begin": line}}

    return dumps([*_failures(report, place("buildmatrix.toml", 1)), *_issues(report, place)])


def _failures(report: Report, place: Json) -> Iterator[Json]:
    """Yield an issue for each undecided part: it must not look clean."""
    for target in report.targets:
        if target.error is not None:
            yield _issue("target", f"{target.id}: {target.error}", target.id, "blocker", place)
    for item in unread(report):
        yield _issue("unread", f"{item.path} was not read: {item.why}", item.path, "major", place)


def _issues(report: Report, place: Callable[[str, int], Json]) -> Iterator[Json]:
    by_fingerprint: dict[tuple[str, str, str, int], list[Finding]] = {}
    for finding in report.findings:
        if finding.waived is None:
            key = (finding.rule, finding.fingerprint, *file_and_line(finding))
            by_fingerprint.setdefault(key, []).append(finding)
    for (_, _, file, line), alike in by_fingerprint.items():
        first = alike[0]
        text = first.message
        targets = [name for item in alike for name in (item.target, *item.also) if name]
        if targets:
            text = f"{listing(targets)}: {text}"
        if (fix := first.offered_fix) is not None:
            text += f". Fix: {fix.text}"
        identity = f"{first.fingerprint} {file}"
        yield _issue(first.rule, text, identity, _SEVERITIES[first.severity], place(file, line))


def _issue(check: str, text: str, identity: str, severity: str, place: Json) -> Json:
    return {
        "type": "issue",
        "check_name": check,
        "description": text,
        "categories": ["Compatibility"],
        "severity": severity,
        "fingerprint": hashlib.sha256(f"{check} {identity}".encode()).hexdigest()[:32],
        "location": place,
    }
