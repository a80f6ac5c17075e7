"""JUnit XML, shown by CI systems as test results: suites, cases and their messages.

There is no standard. This form satisfies two schemas that share only a core:
Jenkins' `junit-10.xsd` (jenkinsci/xunit-plugin, which refuses files by it) and Ant's `JUnit.xsd`
(windyroad/JUnit-Schema, which Azure names). Both refuse `file` and `line` of a test case, so
a place begins a message. Output of a passed test case stands in that of its suite, and a time is
asked for. XML 1.0 cannot hold every character (section 2.2): texts are made printable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal
from xml.etree import ElementTree as ET

from buildmatrix.base.text import printable
from buildmatrix.reports.json_form import TOOL


@dataclass(slots=True)
class Suite:
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
