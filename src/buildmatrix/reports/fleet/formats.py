"""The report of a fleet for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from buildmatrix.base.text import printable
from buildmatrix.reports import markdown, terminal
from buildmatrix.reports.fleet.answer import FleetAnswer
from buildmatrix.reports.fleet.model import FleetReport
from buildmatrix.reports.fleet.sections import Limits, full_report_hint, sections
from buildmatrix.reports.markdown import plain, rich

# Terminal: actions first, then the worst of everything


#: For about 60 lines in all.
_TABLE_LIMITS: Limits = {
    "missing": 2, "causes": 3, "nodes": 4, "reasons": 2, "worst": 3, "running": 2, "owners": 3,
    "vendors": 2, "undecided": 2, "left-out": 2, "drift": 2, "drift-owners": 0, "drift-notes": 1,
    "notes": 1,
}  # fmt: skip
#: Lines of one text there; what is to be done has more of them.
_LINES: Mapping[str, int] = {"causes": 2}


def render_table(report: FleetReport, *, width: int, color: bool, every: bool = False) -> str:
    """The answer as text, wrapped at `width` columns: about 60 lines, or all with `every`."""
    answer, paint, width = FleetAnswer(report), terminal.Painter(color), max(width, 60)
    lines = [paint(printable(report.subject), "bold")]
    shown = sections(answer, {} if every else _TABLE_LIMITS)
    lines += chain(*terminal.draw(shown, width, paint, None if every else _LINES))
    lines.append("")
    if any(section.more for section in shown):
        lines += terminal.wrapped(full_report_hint(report), width)
    lines.append(paint.state(answer.state, printable(answer.headline), "bold"))
    return "\n".join(lines) + "\n"


# Markdown: actions first, for comments and job summaries


#: For 60 lines at most.
_MARKDOWN_LIMITS: Limits = {
    "missing": 2, "causes": 3, "nodes": 3, "reasons": 0, "bytes": 4, "worst": 3, "running": 0,
    "owners": 3, "vendors": 0, "undecided": 2, "left-out": 1, "drift": 1, "drift-owners": 0,
    "drift-notes": 1, "notes": 1,
}  # fmt: skip
#: Characters of a text there.
_LENGTH = 300


def render_markdown(report: FleetReport, *, every: bool = False) -> str:
    """The answer as GitHub-flavored Markdown: at most 60 lines, or all with `every`."""
    return "\n".join(_lines(report, every)) + "\n"


def _lines(report: FleetReport, every: bool) -> Iterator[str]:
    answer = FleetAnswer(report)
    yield f"## buildmatrix: {plain(answer.headline)}"
    yield ""
    if answer.advice:
        yield f"**First:** {rich(answer.advice)}"
        yield ""
    shown = sections(answer, {} if every else _MARKDOWN_LIMITS)
    yield from markdown.draw(shown, None if every else _LENGTH)
    if any(section.more for section in shown):
        yield f"{plain(report.subject)}: {plain(full_report_hint(report))}."
