"""A drawing as SVG 1.1, in one file without scripts, fonts or addresses of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from xml.sax.saxutils import escape

from buildmatrix.reports.drawings.drawing import Arrow, Box, Drawing
from buildmatrix.reports.drawings.layout import Placed, place
from buildmatrix.reports.drawings.style import FILLS, NAMES, OTHER, short
from buildmatrix.text import printable

#: Units of one character and one line of text.
_CHARACTER, _LINE = 7.3, 16.0
_PADDING = 9.0
#: Characters of one line; the whole text is shown when somebody points at it.
_LONGEST = 52
#: Arrows up to which their labels are written beside them; with more they would cover each other.
_LABELED = 60
_MARGIN, _HEAD = 24.0, 40.0
#: Space between layers: with labels, and for arrows alone.
_GAP_LABELS, _GAP = 190.0, 110.0
#: Space between a label and the box beside it, where the arrow begins and at its head.
_GAP_START, _GAP_HEAD, _LABEL_LINE = 6.0, 12.0, 11.0

Way = tuple[tuple[float, float], ...]

_CSS = """
text { font: 12px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #212529; }
.title { font-weight: bold; font-size: 14px; }
.box rect { stroke: #495057; stroke-width: 1; }
.box.asked rect { stroke: #c92a2a; stroke-width: 3; }
.first { font-weight: bold; }
.arrow path { fill: none; stroke: #868e96; stroke-width: 1.3; }
.label { font-size: 10px; fill: #495057; paint-order: stroke; stroke: #fff; stroke-width: 4px;
  pointer-events: none; }
.maybe path { stroke-dasharray: 5 4; }
.arrow:hover path { stroke: #c92a2a; stroke-width: 3; }
"""
_MARKER = (
    '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
    'markerHeight="7" orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="#868e96"/>'
    "</marker></defs>"
)
#: Pointing at a box shows its arrows: in a crowd nobody can follow them with the eye alone.
_POINTED = (
    "svg:has(#b{0}:hover) :is(.f{0},.t{0}) path{{stroke:#c92a2a;stroke-width:2.5}}"
    "svg:has(#b{0}:hover) :is(.arrow,.label):not(.f{0},.t{0}){{opacity:.15}}"
)


def render(drawing: Drawing) -> str:
    """One document, the same text for the same drawing."""
    return "\n".join(_document(drawing)) + "\n"


def inline(drawing: Drawing) -> str:
    """The picture for an HTML page, which has a style and a title of its own."""
    lines, width, height = _picture(drawing)
    body = "\n".join(lines)
    return (
        f'<svg width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'role="group" aria-label="{_text(drawing.title)}">\n{_MARKER}\n{body}\n</svg>'
    )


def _document(drawing: Drawing) -> Iterator[str]:
    lines, width, height = _picture(drawing)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">'
    )
    yield f"<title>{_text(drawing.title)}</title>"
    index = {box.id: number for number, box in enumerate(drawing.boxes)}
    joined = {index[id] for arrow in drawing.arrows for id in (arrow.source, arrow.target)}
    pointed = "\n".join(_POINTED.format(number) for number in sorted(joined))
    yield f"<style>{_CSS}{pointed}</style>"
    yield _MARKER
    yield '<rect width="100%" height="100%" fill="#ffffff"/>'
    yield f'<text class="title" x="{_MARGIN}" y="{_MARGIN}">{_text(drawing.title)}</text>'
    yield from lines
    yield "</svg>"


def _picture(drawing: Drawing) -> tuple[Sequence[str], float, float]:
    """Boxes, arrows and what their colors mean; width and height."""
    index = {box.id: number for number, box in enumerate(drawing.boxes)}
    labeled = len(drawing.arrows) <= _LABELED
    placed = place(
        [_size(box) for box in drawing.boxes],
        [(index[arrow.source], index[arrow.target]) for arrow in drawing.arrows],
        _GAP_LABELS if labeled else _GAP,
    )
    kinds = sorted({box.kind for box in drawing.boxes})
    width = max(placed.width, _wide(drawing.title), 200.0 * len(kinds)) + 2 * _MARGIN
    height = placed.height + _HEAD + 2 * _MARGIN + 30
    lines = [f'<g transform="translate({_MARGIN} {_HEAD + _MARGIN / 2})">']
    ends = [f"f{index[arrow.source]} t{index[arrow.target]}" for arrow in drawing.arrows]
    for arrow, two, way in zip(drawing.arrows, ends, placed.ways, strict=True):
        lines += _arrow(arrow, two, way)
    if labeled:
        # After all arrows, so that none crosses them out.
        lines += _labels(drawing.arrows, ends, placed.ways)
    for number, box in enumerate(drawing.boxes):
        lines += _box(box, placed, number)
    lines.append("</g>")
    lines += _key(kinds, height - _MARGIN)
    return lines, width, height


def _box(box: Box, placed: Placed, number: int) -> Iterator[str]:
    x, y = placed.corners[number]
    width, height = _size(box)
    mark = " asked" if box.asked else ""
    yield f'<g id="b{number}" class="box{mark}"><title>{_text(box.title)}</title>'
    yield (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="5" '
        f'fill="{FILLS.get(box.kind, OTHER)}"/>'
    )
    for line, text in enumerate(box.label):
        at = y + _PADDING + _LINE * (line + 0.7)
        first = ' class="first"' if line == 0 else ""
        yield f'<text{first} x="{x + _PADDING:.1f}" y="{at:.1f}">{_text(_short(text))}</text>'
    yield "</g>"


def _arrow(arrow: Arrow, ends: str, way: Way) -> Iterator[str]:
    maybe = "" if arrow.certain else " maybe"
    yield f'<g class="arrow {ends}{maybe}"><title>{_text(arrow.title)}</title>'
    yield f'<path d="{_curve(way)}" marker-end="url(#head)"/></g>'


def _labels(arrows: Sequence[Arrow], ends: Sequence[str], ways: Sequence[Way]) -> Iterator[str]:
    """The labels, each beside the end of its arrow that fewer share: there they lie apart.

    Where one stands already the next one is above it.
    """
    leaving = Counter(arrow.source for arrow in arrows)
    arriving = Counter(arrow.target for arrow in arrows)
    taken = Counter[tuple[str, bool]]()
    for arrow, two, way in zip(arrows, ends, ways, strict=True):
        at_start = leaving[arrow.source] < arriving[arrow.target]
        end = arrow.source if at_start else arrow.target, at_start
        (x, y), (other, _) = way[:2] if at_start else way[:-3:-1]
        gap = _GAP_START if at_start else _GAP_HEAD
        x, anchor = (x + gap, "start") if other >= x else (x - gap, "end")
        y -= 4 + _LABEL_LINE * taken[end]
        taken[end] += 1
        if arrow.label:
            yield (
                f'<text class="label {two}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
                f"{_text(_short(arrow.label, 28))}</text>"
            )


def _curve(way: Way) -> str:
    """A smooth line through all points, level where it passes them."""
    parts = [f"M{way[0][0]:.1f} {way[0][1]:.1f}"]
    for (x1, y1), (x2, y2) in pairwise(way):
        bend = (x2 - x1) / 2
        parts.append(f"C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f} {x2:.1f} {y2:.1f}")
    return "".join(parts)


def _key(kinds: list[str], y: float) -> Iterator[str]:
    for number, kind in enumerate(kinds):
        x = _MARGIN + 200.0 * number
        yield (
            f'<rect x="{x:.1f}" y="{y - 11:.1f}" width="14" height="14" rx="3" '
            f'fill="{FILLS.get(kind, OTHER)}" stroke="#495057"/>'
        )
        yield f'<text x="{x + 20:.1f}" y="{y:.1f}">{_text(NAMES.get(kind, kind))}</text>'


def _size(box: Box) -> tuple[float, float]:
    width = max((_wide(_short(text)) for text in box.label), default=0.0)
    return width + 2 * _PADDING, _LINE * len(box.label) + 2 * _PADDING - 4


def _wide(text: str) -> float:
    return len(printable(text)) * _CHARACTER


def _short(text: str, most: int = _LONGEST) -> str:
    return short(printable(text), most)


def _text(text: str) -> str:
    return escape("\n".join(map(printable, text.split("\n"))), {'"': "&quot;"})
