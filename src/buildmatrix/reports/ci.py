"""The report for CI systems: lines, JUnit XML, and GitLab's reports."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from os.path import normpath, relpath
from pathlib import PurePath
from typing import Literal, TypeAlias
from xml.etree import ElementTree as ET

from msgspec import Struct, field

from buildmatrix.base.text import count, listing, printable
from buildmatrix.judge.model import Advisory, Finding, Severity, TargetResult
from buildmatrix.reports.groups import FindingGroup, group_by_text, group_findings, name_targets
from buildmatrix.reports.json_form import TOOL, Json, dumps
from buildmatrix.reports.run import (
    Report,
    Step,
    is_not_checked,
    is_undecided,
    is_unread,
    requirement_line,
    state_of,
    steps,
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


def render_lines(
    report: Report, *, root: PurePath | None = None, here: PurePath | None = None
) -> str:
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


# JUnit XML.
#
# Each target is a test suite. Its test cases are its gates, its distributions, and its findings. An
# open error is a failure; undecided results are errors; waived findings and gates that did not run
# are skipped. Warnings and notes are passed test cases, mentioned in the output of the suite, as
# JUnit has no state between passed and failed. A finding from a requirement line begins its message
# with that line, as compilers do.
#
# There is no standard. This form satisfies two schemas that share only a core:
# Jenkins' `junit-10.xsd` (jenkinsci/xunit-plugin, which refuses files by it) and Ant's `JUnit.xsd`
# (windyroad/JUnit-Schema, which Azure names). Both refuse `file` and `line` of a test case, so
# a place begins a message. Output of a passed test case stands in that of its suite, and a time is
# asked for. XML 1.0 cannot hold every character (section 2.2): texts are made printable.


class Suite(Struct):
    """One test suite: its cases, and what passed cases have to say."""

    name: str
    properties: Mapping[str, str | None]
    seconds: float = 0.0
    cases: list[ET.Element] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def case(self, classname: str, name: str, seconds: float = 0.0) -> ET.Element:
        """One more test case."""
        case = ET.Element(
            "testcase", classname=printable(classname), name=printable(name), time=_time(seconds)
        )
        self.cases.append(case)
        return case

    def say(self, name: str, *texts: str) -> None:
        """Have the output of the suite say something of a case that passed."""
        self.lines.append("\n  ".join(map(printable, (f"{name}: {texts[0]}", *texts[1:]))))


def fail(
    case: ET.Element, tag: Literal["failure", "error"], kind: str, message: str, *details: str
) -> None:
    """Mark a case as failed, or as an error if it is undecided."""
    first, *lines = (line for text in (message, *details) for line in text.split("\n"))
    element = ET.SubElement(case, tag, message=printable(first), type=kind)
    # What follows is indented, as a line of its own may begin with what a file is called.
    element.text = "\n  ".join(map(printable, (first, *lines)))


def skip(case: ET.Element, why: str) -> None:
    """Have a case be skipped."""
    ET.SubElement(case, "skipped", message=printable(why))


def render_suites(suites: list[Suite], time: datetime | None) -> str:
    """Return all suites as one text; Ant's schema requires the `time` of the run."""
    root = ET.Element("testsuites")
    for suite in suites:
        _append_suite(root, suite, time)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _append_suite(root: ET.Element, suite: Suite, time: datetime | None) -> None:
    when = (time or datetime.fromtimestamp(0, UTC)).astimezone(UTC)
    element = ET.SubElement(
        root,
        "testsuite",
        name=printable(suite.name) or "-",
        package=TOOL,
        id=str(len(root)),
        timestamp=when.strftime("%Y-%m-%dT%H:%M:%S"),
        hostname="localhost",
        tests=str(len(suite.cases)),
    )
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        number = sum(case.find(tag) is not None for case in suite.cases)
        element.set(attribute, str(number))
    element.set("time", _time(suite.seconds))
    holder = ET.SubElement(element, "properties")
    for key, value in suite.properties.items():
        if value:
            ET.SubElement(holder, "property", name=f"{TOOL}.{key}", value=printable(value))
    element.extend(suite.cases)
    # Lines of it are indented, as those of a case: one may begin with what a file is called.
    ET.SubElement(element, "system-out").text = "\n".join(suite.lines)
    ET.SubElement(element, "system-err")


def _time(seconds: float) -> str:
    return f"{max(0.0, seconds):.3f}"


#: Where a finding stands: `requirements.in:3: `; empty where no line brought it.
_Place: TypeAlias = Callable[[Finding], str]
#: Suite of what belongs to no target.
_THIS_RUN = "this run"


def render_junit(
    report: Report,
    *,
    time: datetime | None = None,
    root: PurePath | None = None,
    top: PurePath | None = None,
) -> str:
    """The report as one `testsuites` document.

    Args:
        report: what to render.
        time: time of the run, which Ant's schema requires.
        root: the folder that the paths in it start from; absolute.
        top: the root of the repository, which paths in the document start from; absolute.
    """

    def place(finding: Finding) -> str:
        line = requirement_line(finding)
        return f"{path_from(top, line[0], root)}:{line[1]}: " if line is not None else ""

    suites = []
    properties: dict[str, str | None] = {
        "subject": report.subject,
        "version": report.tool.version,
        "catalogue": report.tool.catalogue,
    }
    for target in report.targets:
        findings = [finding for finding in report.findings if finding.is_about(target.id)]
        more = {"backend": target.backend, "image": target.image, "digest": target.digest}
        suite = Suite(target.id, {**properties, **more}, target.seconds)
        for gate in steps([target]):
            _add_gate(suite, target, gate, findings)
        for verdict in report.distributions:
            if not verdict.is_about(target.id, target.backend):
                continue
            # A verdict fails nothing by itself: the findings do, and those can be waived.
            name = f"distribution {verdict.name} {verdict.version}"
            suite.case(target.id, name)
            suite.say(name, f"{verdict.verdict}: {verdict.reason}")
        for finding in findings:
            if finding.target == target.id:
                _add_finding(suite, target.id, finding, place(finding))
        suites.append(suite)
    rest = Suite(_THIS_RUN, properties)
    _add_rest(rest, report, {target.id for target in report.targets}, place)
    return render_suites([*suites, rest] if rest.cases else suites, time)


def _add_rest(suite: Suite, report: Report, targets: set[str], place: _Place) -> None:
    for finding in report.findings:
        if finding.target not in targets:
            _add_finding(suite, finding.target or _THIS_RUN, finding, place(finding))
    for item in unread(report):
        case = suite.case(_THIS_RUN, f"read {item.path}")
        fail(case, "error", "unread", f"{item.path} could not be read: {item.why}")


def _add_gate(suite: Suite, target: TargetResult, gate: Step, findings: Sequence[Finding]) -> None:
    state = state_of(target, gate)
    # Readers add up the cases of a suite: one of them has the time of its target.
    case = suite.case(target.id, f"gate {gate}", target.seconds if gate == "build" else 0.0)
    lacks = f"not run for lack of a device: {', '.join(target.smoke_not_run)}"
    if state == "not-run":
        skip(case, lacks if gate == "smoke" and target.smoke_not_run else "it did not run")
    elif state == "passed" and gate == "smoke" and target.smoke_not_run:
        suite.say(f"gate {gate}", lacks)
    elif state != "passed":
        still = count(sum(finding.waived is None for finding in findings), "open finding")
        reason = target.error or f"{still} in {target.id}"
        why = f"{gate} {state}: {reason}"
        fail(case, "failure" if state == "failed" else "error", f"gate-{gate}", why)


def _add_finding(suite: Suite, target: str, finding: Finding, place: str) -> None:
    parts = (finding.rule, finding.name, finding.label or finding.path)
    name = " ".join(part for part in parts if part)
    case = suite.case(target, name)
    if finding.waived is not None:
        skip(case, f"accepted: {finding.waived}")
    elif is_unread(finding):
        fail(case, "error", finding.rule, place + finding.message, *_details(finding))
    elif finding.severity == "error":
        fail(case, "failure", finding.rule, place + finding.message, *_details(finding))
    else:
        suite.say(name, f"{finding.severity}: {place}{finding.message}", *_details(finding))


def _details(finding: Finding) -> Iterator[str]:
    if finding.by_policy:
        yield finding.by_policy
    if finding.chain:
        yield " -> ".join(finding.chain)
    if (fix := finding.offered_fix) is not None:
        yield f"fix: {fix.text}"
