"""The answer for a terminal or a CI log: what to do first, and the worst of everything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from buildmatrix.reports.fleet.answer import FleetAnswer
from buildmatrix.reports.fleet.model import FleetReport, FleetState
from buildmatrix.reports.fleet.section import Limits, Section
from buildmatrix.reports.fleet.sections import all_of_them, sections
from buildmatrix.reports.terminal import Painter, Style, wrapped
from buildmatrix.text import printable

_STYLES: dict[FleetState, Style] = {"passed": "green", "failed": "red", "undecided": "yellow"}
#: For about 60 lines in all.
_LIMITS: Limits = {
    "missing": 2, "causes": 3, "nodes": 4, "reasons": 2, "worst": 3, "running": 2, "owners": 3,
    "vendors": 2, "undecided": 2, "left-out": 2, "drift": 2, "drift-owners": 0, "drift-notes": 1,
    "notes": 1,
}  # fmt: skip
#: Lines of one text there; what is to be done has more of them.
_LINES: Mapping[str, int] = {"causes": 2}
#: Columns that the last cell of a row has at least beside the others; else it begins a line.
_LEAST = 40


def render(report: FleetReport, *, width: int, color: bool, every: bool = False) -> str:
    """The answer as text, wrapped at `width` columns: about 60 lines, or all with `every`."""
    answer, paint, width = FleetAnswer(report), Painter(color), max(width, 60)
    lines = [paint(printable(report.subject), "bold")]
    shown = sections(answer, {} if every else _LIMITS)
    for section in shown:
        lines.append(paint(section.title.lower(), "bold") + _shown(section))
        lines += _section(section, width, paint, None if every else _LINES.get(section.name, 1))
    lines.append("")
    if any(section.more for section in shown):
        lines += wrapped(all_of_them(report), width)
    lines.append(paint(printable(answer.headline), _STYLES[answer.state], "bold"))
    return "\n".join(lines) + "\n"


def _section(section: Section, width: int, paint: Painter, most: int | None) -> Iterator[str]:
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
        if width - indent >= min(_LEAST, len(text)):
            first, *others = _text(text, width, " " * indent, " " * indent, most) or [""]
            yield f"{head}{first.lstrip()}".rstrip()
            yield from others
        else:
            yield head.rstrip()
            yield from _text(text, width, "      ", "      ", most)
