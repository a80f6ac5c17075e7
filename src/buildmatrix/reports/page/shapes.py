"""Areas and lengths in proportion to bytes: bars and treemaps, as rectangles in percent.

Treemaps are squarified: Bruls, Huizing and van Wijk, "Squarified Treemaps", 2000.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Area:
    """A rectangle, in the units of the picture that it is a part of."""

    x: float
    y: float
    width: float
    height: float

    def inside(self, left: float, top: float, right: float, bottom: float) -> Area:
        """Return the area inside of margins; never negative."""
        return Area(
            self.x + left,
            self.y + top,
            max(0.0, self.width - left - right),
            max(0.0, self.height - top - bottom),
        )


def lengths(sizes: Sequence[int], whole: int) -> list[tuple[float, float]]:
    """Start and length of the parts of a bar, in percent of `whole`."""
    parts, start = [], 0
    for size in sizes:
        parts.append((100 * start / whole, 100 * size / whole) if whole else (0.0, 0.0))
        start += size
    return parts


def squarified(sizes: Sequence[int], area: Area) -> list[Area]:
    """An area for each size, in proportion to it, as near to a square as it gets.

    `sizes` are in descending order, as the layout needs them. All together fill `area`.
    """
    total = sum(sizes)
    if not total:
        return [Area(area.x, area.y, 0.0, 0.0) for _ in sizes]
    areas: list[Area] = []
    left, rest, first = area, total, 0
    while first < len(sizes):
        # Bytes along the shorter side, if the longer one were as long as all bytes that are left.
        side = min(left.width, left.height) / max(left.width, left.height, 1e-300)
        last, row = first + 1, sizes[first]
        worst = _worst(sizes[first], sizes[first], row, rest, side)
        while last < len(sizes):
            longer = _worst(sizes[first], sizes[last], row + sizes[last], rest, side)
            if longer > worst:
                break
            row, worst, last = row + sizes[last], longer, last + 1
        left = _placed(sizes[first:last], row, rest, left, areas)
        rest, first = rest - row, last
    return areas


def _worst(largest: int, smallest: int, row: int, rest: int, side: float) -> float:
    """The worst ratio of two sides in a row along the shorter side.

    A row of `row` bytes is as deep as its share of `rest`, where the longer side is 1.
    """
    if not row or not smallest or not side:
        return float("inf")
    depth = row / rest
    return max(side * largest / row / depth, depth / (side * smallest / row))


def _placed(row: Sequence[int], total: int, rest: int, left: Area, areas: list[Area]) -> Area:
    """Add a row along the shorter side; what is left then."""
    share = total / rest if rest else 0.0
    is_column = left.width >= left.height
    depth = (left.width if is_column else left.height) * share
    at = 0
    for size in row:
        before, part = (at / total, size / total) if total else (0.0, 0.0)
        areas.append(
            Area(left.x, left.y + left.height * before, depth, left.height * part)
            if is_column
            else Area(left.x + left.width * before, left.y, left.width * part, depth)
        )
        at += size
    if is_column:
        return Area(left.x + depth, left.y, left.width - depth, left.height)
    return Area(left.x, left.y + depth, left.width, left.height - depth)
