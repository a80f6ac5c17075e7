"""The answer as Markdown: a comment or a job's summary, which says first what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from buildmatrix.reports.fleet.answer import FleetAnswer
from buildmatrix.reports.fleet.model import FleetReport
from buildmatrix.reports.fleet.section import Limits, Section
from buildmatrix.reports.fleet.sections import all_of_them, sections
from buildmatrix.reports.markdown import plain, rich

#: For 60 lines at most.
_LIMITS: Limits = {
    "missing": 2, "causes": 3, "nodes": 3, "reasons": 0, "bytes": 4, "worst": 3, "running": 0,
    "owners": 3, "vendors": 0, "undecided": 2, "left-out": 1, "drift": 1, "drift-owners": 0,
    "drift-notes": 1, "notes": 1,
}  # fmt: skip
#: Characters of a text there.
_LENGTH = 300


def render(report: FleetReport, *, every: bool = False) -> str:
    """The answer as GitHub-flavored Markdown: at most 60 lines, or all with `every`."""
    return "\n".join(_lines(report, every)) + "\n"


def _lines(report: FleetReport, every: bool) -> Iterator[str]:
    answer = FleetAnswer(report)
    yield f"## buildmatrix: {plain(answer.headline)}"
    yield ""
    if answer.advice:
        yield f"**First:** {rich(answer.advice)}"
        yield ""
    shown = sections(answer, {} if every else _LIMITS)
    for section in shown:
        yield from _section(section, None if every else _LENGTH)
    if any(section.more for section in shown):
        yield f"{plain(report.subject)}: {plain(all_of_them(report))}."


def _section(section: Section, length: int | None) -> Iterator[str]:
    shown = len(section.rows)
    more = f" ({shown} of {shown + section.more})" if section.more else ""
    title = f"**{plain(section.title)}**{more}"
    if section.lead:
        yield f"{title}: {plain(section.lead)}"
        yield ""
    if section.is_sentences:
        yield title
        yield ""
        yield from (f"- {rich(_cut(row.cells[0], length))}" for row in section.rows)
    elif section.rows:
        first, *others = section.order
        # The title is the heading of what it is about: lines are few.
        head = plain(section.header[first]) if section.lead else title
        yield _line([head, *(plain(section.header[column]) for column in others)])
        yield f"|---|{'|'.join('---:' if n in section.numbers else '---' for n in others)}|"
        for row in section.rows:
            texts = [rich(_cut(text, length)) for text in row.cells]
            yield _line([texts[column] for column in section.order])
    yield ""


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cut(text: str, length: int | None) -> str:
    return text if length is None or len(text) <= length else f"{text[: length - 4]} ..."
