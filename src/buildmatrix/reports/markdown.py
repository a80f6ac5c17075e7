"""The report as Markdown, for the summary of a CI job or a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.reports.ansi import printable
from buildmatrix.reports.model import Report
from buildmatrix.rules.model import GATES, Finding, GateState
from buildmatrix.rules.text import size

_STATES: dict[GateState, str] = {
    "passed": "ok",
    "failed": "**failed**",
    "undecided": "**undecided**",
    "not-run": "not run",
}
_MARKUP = str.maketrans({char: f"\\{char}" for char in "\\`*_[]<>|#"})


def render(report: Report) -> str:
    """The report as GitHub-flavoured Markdown."""
    return "\n".join([f"## buildmatrix: {_plain(report.subject)}", "", *_body(report)]) + "\n"


def _body(report: Report) -> Iterator[str]:
    if report.targets:
        yield f"| target | {' | '.join(GATES)} | size |"
        yield "|---" * (len(GATES) + 2) + "|"
        for one in report.targets:
            gates = " | ".join(_STATES[one.gates.get(gate, "not-run")] for gate in GATES)
            there = size(one.size) if one.size is not None else ""
            yield f"| {_plain(one.id)} | {gates} | {there} |"
        yield ""
    for target in report.targets:
        if target.error is not None:
            first, *rest = target.error.split("\n")
            yield f"- {_plain(target.id)}: {_plain(first)}"
            yield from (f"  <br>{_plain(line.strip())}" for line in rest if line.strip())
    if not report.findings:
        yield "No findings."
    for finding in report.findings:
        yield from _finding(finding)
    for item in report.unread:
        yield f"- not read: {_plain(item.path)}: {_plain(item.why)}"


def _finding(one: Finding) -> Iterator[str]:
    word = "waived" if one.waived is not None else one.severity
    where = f" in {_plain(one.target)}" if one.target else ""
    yield f"- **{word} {one.rule}** {one.name}{where}: {_plain(one.message)}"
    if one.chain:
        yield f"  <br>{' &rarr; '.join(_plain(link) for link in one.chain)}"
    if one.waived is not None:
        yield f"  <br>accepted: {_plain(one.waived)}"
    elif one.fix is not None:
        yield f"  <br>fix: {_plain(one.fix.text)}"


def _plain(text: str) -> str:
    """Text that Markdown takes literally: names come from images that nobody vouches for."""
    return printable(text).translate(_MARKUP)
