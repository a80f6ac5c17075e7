"""Styles, line breaks and sections of text for terminals."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from buildmatrix.base.text import printable
from buildmatrix.reports.sections import STATES, Item, Mood, Section, state_in, state_word

# Text: styles (ECMA-48, select graphic rendition), safe characters, lines


Style = Literal["bold", "dim", "red", "green", "yellow", "blue"]

_CODES: dict[Style, int] = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34}
_MOODS: Mapping[Mood, Style] = {
    "good": "green", "fair": "yellow", "undecided": "yellow", "bad": "red", "note": "blue",
    "not-run": "dim", "accepted": "dim",
}  # fmt: skip
_SIGNS: Mapping[str, Style] = {"+": "green", "-": "red", "~": "yellow"}


class Painter:
    """Puts styles around text, or leaves it plain."""

    def __init__(self, color: bool) -> None:
        self._color = color

    def __call__(self, text: str, *styles: Style) -> str:
        """`text` in the given styles."""
        if not self._color or not styles or not text:
            return text
        codes = ";".join(str(_CODES[style]) for style in styles)
        return f"\x1b[{codes}m{text}\x1b[0m"

    def state(self, state: str, text: str | None = None, *styles: Style) -> str:
        """The word for a state, or `text`, in the color of the state."""
        shown = state_word(state) if text is None else text
        return self(shown, *([_MOODS[STATES[state]]] if state in STATES else []), *styles)


def wrapped(text: str, width: int, indent: str = "", further: str | None = None) -> list[str]:
    """`text`, printable, in lines of at most `width` columns where its words allow that.

    Names and paths stay whole. Lines after the first begin with `further`, by default `indent`.
    """
    return textwrap.wrap(
        printable(text),
        width,
        initial_indent=indent,
        subsequent_indent=indent if further is None else further,
        break_long_words=False,
        break_on_hyphens=False,
    )


# Sections


#: Columns that the last cell of a row has at least beside the others; else it begins a line.
_LEAST = 40
#: Columns that a cell takes at most from the other rows.
_WIDEST = 40


def draw(
    sections: Iterable[Section], width: int, paint: Painter, lines: Mapping[str, int] | None = None
) -> Iterator[list[str]]:
    """The lines of each section; `lines` limits those of one text in the sections that it names."""
    for section in sections:
        title = printable(section.title[:1].lower() + section.title[1:])
        most = lines.get(section.name, 1) if lines is not None else None
        yield [
            *([paint(title, "bold") + section.shown] if title else ()),
            *(wrapped(section.lead, width, "  ") if section.lead else ()),
            *(line for item in section.items for line in draw_item(item, width, paint)),
            *_rows(section, width, paint, most),
        ]


def draw_item(item: Item, width: int, paint: Painter) -> Iterator[str]:
    """The lines of an item."""
    before = f"{state_word(item.before)} -> " if item.before else ""
    said = f"{item.change} {before}{state_word(item.state)}".lstrip()
    word = paint.state("gone" if item.change == "gone" else item.state, said, "bold")
    code, name, label = map(printable, (item.code, item.name, item.label))
    yield f"  {word} {code} {paint(name, 'bold')}  {label}".rstrip()
    for text in (item.text, *item.details):
        yield from wrapped(text, width, "    ")
    yield from (paint(line, "dim") for line in _chain(item.chain, width, "    "))
    for text in item.remedies:
        yield from wrapped(text, width, "    ")


def _chain(chain: Sequence[str], width: int, indent: str) -> list[str]:
    """`a -> b -> c`, broken only at the arrows."""
    lines: list[str] = []
    for link in map(printable, chain):
        if lines and len(lines[-1]) + len(" -> ") + len(link) <= width:
            lines[-1] += f" -> {link}"
        else:
            lines.append(f"{indent}  -> {link}" if lines else indent + link)
    return lines


def _rows(section: Section, width: int, paint: Painter, most: int | None) -> Iterator[str]:
    if section.is_sentences:
        for row in section.rows:
            yield from _text(row.cells[0], width, "  ", "    ", most)
    elif section.rows:
        yield from _grid(section, width, paint, most)


def _text(text: str, width: int, indent: str, further: str, most: int | None) -> list[str]:
    """A text in at most so many lines, the last of which says where it was cut."""
    lines = wrapped(text, width, indent, further)
    if most is None or len(lines) <= most:
        return lines
    lines = wrapped(text, width - 4, indent, further)
    return [*lines[: most - 1], f"{lines[most - 1]} ..."]


def _grid(section: Section, width: int, paint: Painter, most: int | None) -> Iterator[str]:
    rows = [
        tuple(
            state_word(cell) if n in section.states else cell
            for n, cell in enumerate(map(printable, row.cells))
        )
        for row in section.rows
    ]
    last = len(section.header) - 1
    aligned = range(last + (last in section.numbers | section.states))
    head = [tuple(map(printable, section.header))] if section.is_headed else []
    widths = [
        max(*section.widths[n : n + 1], min(_WIDEST, max(len(row[n]) for row in (*head, *rows))), 0)
        for n in aligned
    ]
    is_signed = any(row.sign for row in section.rows)
    outside = "  " if section.title else ""
    margin = len(outside) + 2 * is_signed

    def align(cells: Sequence[str]) -> list[str]:
        return [
            cell.rjust(widths[n]) if n in section.numbers else cell.ljust(widths[n])
            for n, cell in enumerate(cells[: len(aligned)])
        ]

    for cells in head:
        line = "  ".join([*align(cells), *cells[len(aligned) :]])
        yield paint(f"{' ' * margin}{line}".rstrip(), "dim" if section.title else "bold")
    for row, cells in zip(section.rows, rows, strict=True):
        parts = align(cells)
        indent = margin + sum(len(part) + 2 for part in parts)
        for n in section.states:
            parts[n] = paint.state(state_in(row.cells[n]), parts[n])
        if row.is_loud and section.subject in aligned:
            parts[section.subject] = paint(parts[section.subject], "bold")
        sign = f"{paint(row.sign, _SIGNS[row.sign])} " if row.sign else "  " * is_signed
        if len(parts) > 1 and len(cells[0]) > widths[0]:
            # Too wide for its column: a line of its own keeps the others below their headings.
            yield f"{outside}{sign}{parts[0]}"
            parts[0], sign = " " * widths[0], "  " * is_signed
            indent = margin + sum(widths) + 2 * len(parts)
        begin = f"{outside}{sign}{''.join(f'{part}  ' for part in parts)}"
        text = "".join(cells[len(aligned) :])
        # A name is not broken: one that does not fit beside the other cells stands below them.
        if width - indent >= max(min(_LEAST, len(text)), *map(len, text.split()), 0):
            first, *others = _text(text, width, " " * indent, " " * indent, most) or [""]
            yield f"{begin}{first.lstrip()}".rstrip()
            yield from others
        else:
            yield begin.rstrip()
            yield from _text(text, width, "      ", "      ", most)
