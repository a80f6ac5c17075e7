"""The report of a fleet for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from buildmatrix.base.text import printable
from buildmatrix.reports.fleet.answer import FleetAnswer
from buildmatrix.reports.fleet.model import FleetReport, FleetState
from buildmatrix.reports.fleet.sections import Limits, Section, full_report_hint, sections
from buildmatrix.reports.markdown import plain, rich
from buildmatrix.reports.terminal import Painter, Style, wrapped

# Terminal: actions first, then the worst of everything


_STYLES: dict[FleetState, Style] = {"passed": "green", "failed": "red", "undecided": "yellow"}
#: For about 60 lines in all.
_TABLE_LIMITS: Limits = {
    "missing": 2, "causes": 3, "nodes": 4, "reasons": 2, "worst": 3, "running": 2, "owners": 3,
    "vendors": 2, "undecided": 2, "left-out": 2, "drift": 2, "drift-owners": 0, "drift-notes": 1,
    "notes": 1,
}  # fmt: skip
#: Lines of one text there; what is to be done has more of them.
_LINES: Mapping[str, int] = {"causes": 2}
#: Columns that the last cell of a row has at least beside the others; else it begins a line.
_LEAST = 40


def render_table(report: FleetReport, *, width: int, color: bool, every: bool = False) -> str:
    """The answer as text, wrapped at `width` columns: about 60 lines, or all with `every`."""
    answer, paint, width = FleetAnswer(report), Painter(color), max(width, 60)
    lines = [paint(printable(report.subject), "bold")]
    shown = sections(answer, {} if every else _TABLE_LIMITS)
    for section in shown:
        lines.append(paint(section.title.lower(), "bold") + _shown(section))
        lines += _table_section(
            section, width, paint, None if every else _LINES.get(section.name, 1)
        )
    lines.append("")
    if any(section.more for section in shown):
        lines += wrapped(full_report_hint(report), width)
    lines.append(paint(printable(answer.headline), _STYLES[answer.state], "bold"))
    return "\n".join(lines) + "\n"


def _table_section(section: Section, width: int, paint: Painter, most: int | None) -> Iterator[str]:
    if section.lead:
        yield from wrapped(section.lead, width, "  ")
    if section.is_sentences:
        for row in section.rows:
            yield from _text(row.cells[0], width, "  ", "    ", most)
    elif section.rows:
        yield from _grid(section, width, paint, most)


def _shown(section: Section) -> str:
    """Return the number of rows if not all of them are shown."""
    shown = len(section.rows)
    return f" ({shown} of {shown + section.more})" if section.more else ""


def _text(text: str, width: int, indent: str, further: str, most: int | None) -> list[str]:
    """A text in at most so many lines, the last of which says where it was cut."""
    lines = wrapped(text, width, indent, further)
    if most is None or len(lines) <= most:
        return lines
    lines = wrapped(text, width - 4, indent, further)
    return [*lines[: most - 1], f"{lines[most - 1]} ..."]


def _grid(section: Section, width: int, paint: Painter, most: int | None) -> Iterator[str]:
    rows = [tuple(map(printable, row.cells)) for row in section.rows]
    last = len(section.header) - 1
    widths = [max(len(row[column]) for row in (section.header, *rows)) for column in range(last)]

    def aligned(cells: tuple[str, ...]) -> str:
        parts = (
            cell.rjust(wide) if column in section.numbers else cell.ljust(wide)
            for column, (cell, wide) in enumerate(zip(cells, widths, strict=False))
        )
        return "  " + "".join(f"{part}  " for part in parts)

    yield paint(f"{aligned(section.header)}{section.header[last]}".rstrip(), "dim")
    indent = len(aligned(rows[0]))
    for row in rows:
        head, text = aligned(row), row[last]
        # A name is not broken: one that does not fit beside the other cells stands below them.
        needed = max(min(_LEAST, len(text)), *map(len, text.split()), 0)
        if width - indent >= needed:
            first, *others = _text(text, width, " " * indent, " " * indent, most) or [""]
            yield f"{head}{first.lstrip()}".rstrip()
            yield from others
        else:
            yield head.rstrip()
            yield from _text(text, width, "      ", "      ", most)


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
    for section in shown:
        yield from _markdown_section(section, None if every else _LENGTH)
    if any(section.more for section in shown):
        yield f"{plain(report.subject)}: {plain(full_report_hint(report))}."


def _markdown_section(section: Section, length: int | None) -> Iterator[str]:
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
