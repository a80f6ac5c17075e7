"""The report for GitLab: code quality and dependency scanning."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import PurePath

from buildmatrix.base.text import listing
from buildmatrix.judge.advisories.model import Advisory
from buildmatrix.judge.model import Finding, Severity
from buildmatrix.reports.json_form import TOOL, Json, dumps
from buildmatrix.reports.run.concise import file_and_line, path_from
from buildmatrix.reports.run.groups import group_by_text
from buildmatrix.reports.run.model import Report, is_not_checked, is_undecided, unread

# `artifacts:reports:codequality`, a part of Code Climate's format.
#
# https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format: a list of issues,
# each with `description`, `check_name`, `fingerprint`, `severity` and `location`. Merge requests
# show new issues, by fingerprint. These are the report's fingerprints, so a finding of several
# targets is one issue. Accepted findings are omitted.


_SEVERITIES: dict[Severity, str] = {"error": "critical", "warning": "minor", "note": "info"}


def render_code_quality(
    report: Report, *, root: PurePath | None = None, top: PurePath | None = None
) -> str:
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


# `artifacts:reports:dependency_scanning`: known vulnerabilities.
#
# Version 15.2.1 of GitLab's schema of security reports
# (https://gitlab.com/gitlab-org/security-products/security-report-schemas, read in GitLab's own
# copy, 2026-11-22). Findings without an advisory are not vulnerabilities: GitLab shows them as code
# quality. The advisory services give no severity here, so it is `Unknown`. Unchecked distributions
# are messages of the scan.


_VERSION = "15.2.1"
_SCHEMA = (
    "https://gitlab.com/gitlab-org/security-products/security-report-schemas/-/raw/"
    f"v{_VERSION}/dist/dependency-scanning-report-format.json"
)
#: Where an advisory is described, by the beginning of its name.
_PAGES = {
    "CVE": "https://nvd.nist.gov/vuln/detail/",
    "GHSA": "https://github.com/advisories/",
    "PYSEC": "https://osv.dev/vulnerability/",
}
#: Characters that GitLab takes of a solution, and of a description.
_SOLUTION, _DESCRIPTION = 7000, 1 << 20


def render_dependency_scanning(
    report: Report,
    *,
    root: PurePath | None = None,
    top: PurePath | None = None,
    time: datetime | None = None,
) -> str:
    """The report as one document.

    Args:
        report: what to render.
        root: the folder that the paths in it start from; absolute.
        top: the root of the repository, which paths in the document start from; absolute.
        time: when the scan ended.
    """
    moment = (time or datetime.fromtimestamp(0, UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    program: Json = {
        "id": TOOL,
        "name": TOOL,
        "version": report.tool.version,
        "vendor": {"name": TOOL},
    }
    scan: Json = {
        "analyzer": program,
        "scanner": program,
        "type": "dependency_scanning",
        "start_time": moment,
        "end_time": moment,
        "status": "failure" if is_undecided(report) else "success",
        "messages": [{"level": "warn", "value": text} for text in _messages(report)],
    }
    vulnerabilities = {
        str(item["id"]): item
        for finding in report.findings
        if finding.waived is None
        for item in _vulnerabilities(finding, root, top)
    }
    return dumps(
        {
            "version": _VERSION,
            "schema": _SCHEMA,
            "scan": scan,
            "vulnerabilities": list(vulnerabilities.values()),
        }
    )


def _messages(report: Report) -> Iterator[str]:
    for target in report.targets:
        if target.error is not None:
            yield f"{target.id}: {target.error}"
    unchecked = group_by_text(
        (item.target, item.message) for item in report.findings if is_not_checked(item)
    )
    for shared in unchecked:
        yield f"{listing(shared.targets)}: {shared.text}"
    for item in unread(report):
        yield f"{item.path} was not read: {item.why}"


def _vulnerabilities(
    finding: Finding, root: PurePath | None, top: PurePath | None
) -> Iterator[dict[str, Json]]:
    file = path_from(top, file_and_line(finding)[0], root)
    for advisory in finding.advisories:
        about = f"{advisory.identity}/{finding.distribution}/{finding.version}/{file}"
        # The name of a file may hold half a surrogate pair.
        name = f"{TOOL}:{about}".encode("utf-8", "backslashreplace").decode()
        item: dict[str, Json] = {
            # The same for each run: GitLab follows a vulnerability by it.
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
            "name": f"{advisory.identity} in {finding.distribution}"[:255],
            "description": (advisory.description or finding.message)[:_DESCRIPTION],
            "severity": "Unknown",
            "identifiers": [*_identifiers(advisory)],
            "location": {
                "file": file,
                "dependency": {
                    "package": {"name": finding.distribution or ""},
                    "version": finding.version or "",
                },
            },
        }
        if (fix := finding.offered_fix) is not None:
            item["solution"] = fix.text[:_SOLUTION]
        elif advisory.fixed:
            item["solution"] = f"Take {listing(advisory.fixed)}"
        yield item


def _identifiers(advisory: Advisory) -> Iterator[Json]:
    """The names of an advisory; GitLab takes the first for the identity."""
    for name in (advisory.identity, *sorted(advisory.names - {advisory.identity})):
        kind = name.partition("-")[0]
        page = {"url": f"{_PAGES[kind]}{name}"} if kind in _PAGES else {}
        yield {"type": kind.lower() or "other", "name": name, "value": name, **page}
