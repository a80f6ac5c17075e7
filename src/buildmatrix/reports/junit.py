"""The report as JUnit XML.

Each target is a test suite. Its test cases are its gates, its distributions, and its findings. An
open error is a failure; undecided results are errors; waived findings and gates that did not run
are skipped. Warnings and notes are passed test cases, mentioned in the output of the suite, as
JUnit has no state between passed and failed. A finding from a requirement line begins its message
with that line, as compilers do.

There is no standard. This form satisfies two schemas that share only a core:
Jenkins' `junit-10.xsd` (jenkinsci/xunit-plugin, which refuses files by it) and Ant's `JUnit.xsd`
(windyroad/JUnit-Schema, which Azure names). Both refuse `file` and `line` of a test case, so
a place begins a message. Output of a passed test case stands in that of its suite, and a time is
asked for. XML 1.0 cannot hold every character (section 2.2): texts are made printable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Literal, TypeAlias
from xml.etree import ElementTree as ET

from msgspec import Struct, field

from buildmatrix.base.text import count, printable
from buildmatrix.judge.model import Finding, TargetResult
from buildmatrix.reports.gitlab import path_from
from buildmatrix.reports.json_form import TOOL
from buildmatrix.reports.run import (
    Report,
    Step,
    is_unread,
    requirement_line,
    state_of,
    steps,
    unread,
)


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
    """All suites as one text; `time` is when the tests ran, as Ant asks for it."""
    root = ET.Element("testsuites")
    for suite in suites:
        _append(root, suite, time)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _append(root: ET.Element, suite: Suite, time: datetime | None) -> None:
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
_RUN = "this run"


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
            _gate(suite, target, gate, findings)
        for verdict in report.distributions:
            if not verdict.is_about(target.id, target.backend):
                continue
            # A verdict fails nothing by itself: the findings do, and those can be waived.
            name = f"distribution {verdict.name} {verdict.version}"
            suite.case(target.id, name)
            suite.say(name, f"{verdict.verdict}: {verdict.reason}")
        for finding in findings:
            if finding.target == target.id:
                _finding(suite, target.id, finding, place(finding))
        suites.append(suite)
    rest = Suite(_RUN, properties)
    _rest(rest, report, {target.id for target in report.targets}, place)
    return render_suites([*suites, rest] if rest.cases else suites, time)


def _rest(suite: Suite, report: Report, targets: set[str], place: _Place) -> None:
    for finding in report.findings:
        if finding.target not in targets:
            _finding(suite, finding.target or _RUN, finding, place(finding))
    for item in unread(report):
        case = suite.case(_RUN, f"read {item.path}")
        fail(case, "error", "unread", f"{item.path} could not be read: {item.why}")


def _gate(suite: Suite, target: TargetResult, gate: Step, findings: Sequence[Finding]) -> None:
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


def _finding(suite: Suite, target: str, finding: Finding, place: str) -> None:
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
