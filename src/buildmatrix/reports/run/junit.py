"""The report as JUnit XML, which every CI system shows as test results.

There is no standard. This is what two schemas allow that have nothing but the core in common:
Jenkins' `junit-10.xsd` (jenkinsci/xunit-plugin, which refuses files by it) and Ant's `JUnit.xsd`
(windyroad/JUnit-Schema, which Azure names). Both refuse `file` and `line` of a test case, so that
place begins the message and the text of a failure, as compilers write it;
output of a passed test case stands in that of its suite; and a time is asked for.

Each target is a test suite. Its test cases are its gates, its distributions, and
its findings. An open error is a failure; what is not known is an error; what is waived and what did
not run is skipped. Warnings and notes are passed test cases that the output of the suite says
something of, as JUnit knows nothing between passed and failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TypeAlias
from xml.etree import ElementTree as ET

from buildmatrix.phrases import count
from buildmatrix.reports.json_form import TOOL
from buildmatrix.reports.run.model import (
    Report,
    Step,
    is_unread,
    requirement_line,
    state_of,
    steps,
    unread,
)
from buildmatrix.reports.run.places import path_from
from buildmatrix.rules.model import Finding, TargetResult, Verdict
from buildmatrix.text import printable

#: Where a finding stands: `requirements.in:3: `; empty where no line brought it.
_Place: TypeAlias = Callable[[Finding], str]
#: Suite of what belongs to no target.
_RUN = "this run"


@dataclass(slots=True)
class _Suite:
    """One test suite: its cases, and what passed cases have to say."""

    cases: list[ET.Element] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def case(self, target: str, name: str, seconds: float = 0.0) -> ET.Element:
        """One more test case."""
        case = ET.Element(
            "testcase", classname=_plain(target), name=_plain(name), time=_time(seconds)
        )
        self.cases.append(case)
        return case

    def say(self, name: str, *texts: str) -> None:
        """Have the output of the suite say something of a case that passed."""
        self.lines.append("\n  ".join(map(_plain, (f"{name}: {texts[0]}", *texts[1:]))))


def render(
    report: Report,
    *,
    time: datetime | None = None,
    root: PurePath | None = None,
    top: PurePath | None = None,
) -> str:
    """The report as one `testsuites` document.

    Args:
        report: what to render.
        time: when the tests ran, as Ant asks for it.
        root: the folder that the paths in it start from; absolute.
        top: the root of the repository, which paths in the document start from; absolute.
    """

    def place(finding: Finding) -> str:
        line = requirement_line(finding)
        return f"{path_from(top, line[0], root)}:{line[1]}: " if line is not None else ""

    suites = ET.Element("testsuites")
    properties: dict[str, str | None] = {
        "subject": report.subject,
        "version": report.tool.version,
        "catalogue": report.tool.catalogue,
    }
    for target in report.targets:
        verdicts = [
            verdict
            for verdict in report.distributions
            if verdict.is_about(target.id, target.backend)
        ]
        findings = [finding for finding in report.findings if finding.is_about(target.id)]
        suite = _target(target, verdicts, findings, place)
        more = {"backend": target.backend, "image": target.image, "digest": target.digest}
        _append(suites, target.id, suite, target.seconds, time, {**properties, **more})
    rest = _rest(report, {target.id for target in report.targets}, place)
    if rest.cases:
        _append(suites, _RUN, rest, 0.0, time, properties)
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _append(
    root: ET.Element,
    name: str,
    suite: _Suite,
    seconds: float,
    time: datetime | None,
    properties: dict[str, str | None],
) -> None:
    when = (time or datetime.fromtimestamp(0, UTC)).astimezone(UTC)
    element = ET.SubElement(
        root,
        "testsuite",
        name=_plain(name) or "-",
        package=TOOL,
        id=str(len(root)),
        timestamp=when.strftime("%Y-%m-%dT%H:%M:%S"),
        hostname="localhost",
        tests=str(len(suite.cases)),
    )
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        number = sum(case.find(tag) is not None for case in suite.cases)
        element.set(attribute, str(number))
    element.set("time", _time(seconds))
    holder = ET.SubElement(element, "properties")
    for key, value in properties.items():
        if value:
            ET.SubElement(holder, "property", name=f"{TOOL}.{key}", value=_plain(value))
    element.extend(suite.cases)
    # Lines of it are indented, as those of a case: one may begin with what a file is called.
    ET.SubElement(element, "system-out").text = "\n".join(suite.lines)
    ET.SubElement(element, "system-err")


def _target(
    target: TargetResult,
    verdicts: Iterable[Verdict],
    findings: Sequence[Finding],
    place: _Place,
) -> _Suite:
    suite = _Suite()
    for gate in steps([target]):
        _gate(suite, target, gate, findings)
    for verdict in verdicts:
        # A verdict fails nothing by itself: the findings do, and those can be waived.
        name = f"distribution {verdict.name} {verdict.version}"
        suite.case(target.id, name)
        suite.say(name, f"{verdict.verdict}: {verdict.reason}")
    for finding in findings:
        if finding.target == target.id:
            _finding(suite, target.id, finding, place(finding))
    return suite


def _rest(report: Report, targets: set[str], place: _Place) -> _Suite:
    suite = _Suite()
    for finding in report.findings:
        if finding.target not in targets:
            _finding(suite, finding.target or _RUN, finding, place(finding))
    for item in unread(report):
        case = suite.case(_RUN, f"read {item.path}")
        _outcome(case, "error", "unread", f"{item.path} could not be read: {item.why}")
    return suite


def _gate(suite: _Suite, target: TargetResult, gate: Step, findings: Sequence[Finding]) -> None:
    state = state_of(target, gate)
    case = suite.case(target.id, f"gate {gate}", target.seconds if gate == "build" else 0.0)
    if state == "not-run":
        ET.SubElement(case, "skipped", message="it did not run")
    elif state != "passed":
        still = count(sum(finding.waived is None for finding in findings), "open finding")
        reason = target.error or f"{still} in {target.id}"
        tag = "failure" if state == "failed" else "error"
        _outcome(case, tag, f"gate-{gate}", f"{gate} {state}: {reason}")


def _finding(suite: _Suite, target: str, finding: Finding, place: str) -> None:
    parts = (finding.rule, finding.name, finding.label or finding.path)
    name = " ".join(part for part in parts if part)
    case = suite.case(target, name)
    if finding.waived is not None:
        ET.SubElement(case, "skipped", message=_plain(f"accepted: {finding.waived}"))
    elif is_unread(finding):
        _outcome(case, "error", finding.rule, place + finding.message, *_details(finding))
    elif finding.severity == "error":
        _outcome(case, "failure", finding.rule, place + finding.message, *_details(finding))
    else:
        suite.say(name, f"{finding.severity}: {place}{finding.message}", *_details(finding))


def _details(finding: Finding) -> Iterator[str]:
    if finding.by_policy:
        yield finding.by_policy
    if finding.chain:
        yield " -> ".join(finding.chain)
    if finding.fix is not None and finding.fix.is_offered:
        yield f"fix: {finding.fix.text}"


def _time(seconds: float) -> str:
    return f"{max(0.0, seconds):.3f}"


def _outcome(case: ET.Element, tag: str, kind: str, message: str, *details: str) -> None:
    first, *lines = (line for text in (message, *details) for line in text.split("\n"))
    element = ET.SubElement(case, tag, message=_plain(first), type=kind)
    # What follows is indented, as a line of its own may begin with what a file is called.
    element.text = "\n  ".join(map(_plain, (first, *lines)))


def _plain(text: str) -> str:
    """Text without the characters that XML 1.0 cannot hold (section 2.2); the rest is escaped."""
    return printable(text)
