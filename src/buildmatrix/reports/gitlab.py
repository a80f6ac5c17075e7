"""The report for GitLab: code quality and dependency scanning."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from os.path import normpath, relpath
from pathlib import PurePath

from buildmatrix.base.text import count, listing
from buildmatrix.judge.model import Advisory, Finding, Severity
from buildmatrix.reports.groups import FindingGroup, group_by_text, group_findings, name_targets
from buildmatrix.reports.json_form import TOOL, Json, dumps
from buildmatrix.reports.run import (
    Report,
    is_not_checked,
    is_undecided,
    requirement_line,
    unread,
)

# Places of findings in a repository


#: Where a finding stands whose chain begins elsewhere.
_NO_FILE = "buildmatrix.toml"


def file_and_line(finding: Finding) -> tuple[str, int]:
    """The requirement line of a finding, else the beginning of the specification."""
    return requirement_line(finding) or (_NO_FILE, 1)


def path_from(start: PurePath | None, name: str, root: PurePath | None) -> str:
    """A path in a report, whose paths start from `root`, as seen from `start`; both absolute.

    Without `start`, which a folder outside of any repository has none of, it stays as it is.
    """
    if start is None or root is None:
        return normpath(name)
    return relpath(normpath(root / name), start)


# One line per cause: `requirements.in:3: error: what was found; fix: what to do [CODE]`.
#
# This is the format of compilers and mypy. A finding without a requirement line starts with its
# subject in place of the file. Accepted findings are omitted.


def render(report: Report, *, root: PurePath | None = None, here: PurePath | None = None) -> str:
    """The report as lines; empty where nothing is to be said.

    Args:
        report: what to render.
        root: the folder that the paths in it start from; absolute.
        here: the folder that the paths in the text start from; absolute.
    """
    return "".join(f"{line}\n" for line in _lines(report, root, here))


def _lines(report: Report, root: PurePath | None, here: PurePath | None) -> Iterator[str]:
    ids = report.ids
    errors = group_by_text(
        (target.id, target.error) for target in report.targets if target.error is not None
    )
    for shared in errors:
        first, *_ = shared.text.split("\n")
        about = name_targets(shared.targets, ids)
        yield _line(report.subject, "error", f"{about}: {first}", "target")
    for group in group_findings(report.findings, ids):
        if group.first.waived is None:
            line = requirement_line(group.first)
            place = f"{path_from(here, line[0], root)}:{line[1]}" if line else report.subject
            yield _line(place, group.first.severity, _text(report, group), group.first.rule)
    for item in unread(report):
        yield _line(report.subject, "warning", f"not read: {item.path}: {item.why}", "unread")


def _line(place: str, severity: Severity, text: str, code: str) -> str:
    return f"{place}: {severity}: {text} [{code}]"


def _text(report: Report, group: FindingGroup) -> str:
    """Return the finding, its other places, and its fix."""
    message = group.messages[0].text
    if group.others:
        message += f", with {count(len(group.others), 'more finding')} of this cause"
    targets = [target for target in group.targets if target]
    if targets and len(report.targets) > 1:
        message += f" ({targets[0] if len(targets) == 1 else count(len(targets), 'target')})"
    cures = [shared.text for shared in group.cures(audited=report.is_audit)]
    if not cures:
        return message
    return f"{message}; {cures[0]}" + (f"; {len(cures) - 1} more" if len(cures) > 1 else "")


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
