"""The report as JUnit XML, which every CI system shows as test results.

There is no standard; this keeps to what Jenkins' `junit-10.xsd` allows, which GitLab, Azure and
CircleCI read too. Each target is a test suite. Its test cases are its gates, its distributions, and
its findings. An open error is a failure; what is not known is an error; what is waived and what did
not run is skipped. Warnings and notes are passed test cases that say so in their output, as JUnit
knows nothing between passed and failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from buildmatrix.rules.model import Finding, TargetResult, Verdict
from buildmatrix.text import printable

#: Suite of what belongs to no target.
_RUN = "this run"


def render(report: Report) -> str:
    """The report as one `testsuites` document."""
    root = ET.Element("testsuites", name=_plain(f"{TOOL}: {report.subject}"))
    for target in report.targets:
        verdicts = [
            verdict
            for verdict in report.distributions
            if verdict.is_about(target.id, target.backend)
        ]
        findings = [finding for finding in report.findings if finding.is_about(target.id)]
        root.append(_suite(target.id, _target(target, verdicts, findings), target.seconds))
    ids = {target.id for target in report.targets}
    rest = [*_rest(report, ids)]
    if rest:
        root.append(_suite(_RUN, rest, 0.0))
    _count(root, ("tests", "failures", "errors"))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(name: str, cases: Sequence[ET.Element], seconds: float) -> ET.Element:
    suite = ET.Element("testsuite", name=_plain(name))
    suite.extend(cases)
    suite.set("tests", str(len(cases)))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", f"{seconds:.3f}")
    return suite


def _count(root: ET.Element, attributes: Sequence[str]) -> None:
    for attribute in attributes:
        root.set(attribute, str(sum(int(suite.get(attribute, "0")) for suite in root)))


def _target(
    target: TargetResult, verdicts: Sequence[Verdict], findings: Sequence[Finding]
) -> list[ET.Element]:
    return [
        *(_gate(target, gate, findings) for gate in steps([target])),
        *(_distribution(target.id, verdict) for verdict in verdicts),
        *(_finding(target.id, finding) for finding in findings if finding.target == target.id),
    ]


def _rest(report: Report, targets: set[str]) -> Iterator[ET.Element]:
    for finding in report.findings:
        if finding.target not in targets:
            yield _finding(finding.target or _RUN, finding)
    for item in unread(report):
        case = _case(_RUN, f"read {item.path}")
        _outcome(case, "error", "unread", f"{item.path} could not be read: {item.why}")
        yield case


def _gate(target: TargetResult, gate: Step, findings: Sequence[Finding]) -> ET.Element:
    state = state_of(target, gate)
    case = _case(target.id, f"gate {gate}", target.seconds if gate == "build" else 0.0)
    if state == "not-run":
        ET.SubElement(case, "skipped", message="it did not run")
    elif state != "passed":
        still = count(sum(finding.waived is None for finding in findings), "open finding")
        reason = target.error or f"{still} in {target.id}"
        tag = "failure" if state == "failed" else "error"
        _outcome(case, tag, f"gate-{gate}", f"{gate} {state}: {reason}")
    return case


def _distribution(target: str, verdict: Verdict) -> ET.Element:
    """A verdict fails nothing by itself: the findings do, and those can be waived."""
    case = _case(target, f"distribution {verdict.name} {verdict.version}")
    ET.SubElement(case, "system-out").text = _plain(f"{verdict.verdict}: {verdict.reason}")
    return case


def _finding(target: str, finding: Finding) -> ET.Element:
    case = _case(
        target,
        " ".join(
            part for part in (finding.rule, finding.name, finding.label or finding.path) if part
        ),
    )
    place = requirement_line(finding)
    if place is not None:
        case.set("file", _plain(place[0]))
        case.set("line", str(place[1]))
    if finding.waived is not None:
        ET.SubElement(case, "skipped", message=_plain(f"accepted: {finding.waived}"))
    elif is_unread(finding):
        _outcome(case, "error", finding.rule, finding.message, *_details(finding))
    elif finding.severity == "error":
        _outcome(case, "failure", finding.rule, finding.message, *_details(finding))
    else:
        lines = (f"{finding.severity}: {finding.message}", *_details(finding))
        ET.SubElement(case, "system-out").text = "\n  ".join(map(_plain, lines))
    return case


def _details(finding: Finding) -> Iterator[str]:
    if finding.by_policy:
        yield finding.by_policy
    if finding.chain:
        yield " -> ".join(finding.chain)
    if finding.fix is not None and finding.fix.is_offered:
        yield f"fix: {finding.fix.text}"


def _case(target: str, name: str, seconds: float = 0.0) -> ET.Element:
    return ET.Element(
        "testcase", classname=_plain(target), name=_plain(name), time=f"{seconds:.3f}"
    )


def _outcome(case: ET.Element, tag: str, kind: str, message: str, *details: str) -> None:
    first, *lines = (line for text in (message, *details) for line in text.split("\n"))
    element = ET.SubElement(case, tag, message=_plain(first), type=kind)
    # What follows is indented, as a line of its own may begin with what a file is called.
    element.text = "\n  ".join(map(_plain, (first, *lines)))


def _plain(text: str) -> str:
    """Text without the characters that XML 1.0 cannot hold (section 2.2); the rest is escaped."""
    return printable(text)
