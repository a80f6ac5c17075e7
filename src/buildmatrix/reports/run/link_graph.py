"""Graph of links and requirements: distributions as boxes, arrows to their dependencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from buildmatrix.phrases import size
from buildmatrix.reports.drawings.layout import place
from buildmatrix.reports.drawings.style import short
from buildmatrix.reports.page.vendors import vendor_class
from buildmatrix.rules.composition import Composition, DistributionBytes

#: Boxes of one picture; more than these nobody follows.
_MOST = 60
_CHARACTER, _HEIGHT, _PADDING, _MARGIN, _GAP = 7.0, 38.0, 10.0, 12.0, 90.0


@dataclass(frozen=True, slots=True)
class GraphBox:
    """One distribution."""

    x: float
    y: float
    width: float
    height: float
    style: str
    is_wasted: bool
    name: str
    size: str
    text: str


@dataclass(frozen=True, slots=True)
class GraphArrow:
    """A library of one distribution links one of another, or a requirement of it."""

    path: str
    #: Whether libraries are linked; else it is only required.
    is_link: bool
    text: str


@dataclass(frozen=True, slots=True)
class LinkGraph:
    """The picture, and the same in sentences."""

    targets: tuple[str, ...]
    width: float
    height: float
    boxes: tuple[GraphBox, ...]
    arrows: tuple[GraphArrow, ...]
    #: Distributions that have arrows and are not drawn.
    left_out: int


def link_graph(
    targets: Sequence[str], composition: Composition, *, shows_waste: bool = True
) -> LinkGraph | None:
    """The graph of one composition; None where nothing links or requires anything.

    `shows_waste` is False for targets that differ in what is wasted.
    """
    parts = {part.name: part for part in composition.distributions if part.name}
    arrows: dict[tuple[str, str], bool] = {}
    for name, part in parts.items():
        for needed in part.links:
            arrows[name, needed] = True
        for asker in part.required_by:
            arrows.setdefault((asker, name), False)
    arrows = {ends: is_link for ends, is_link in arrows.items() if ends[0] != ends[1]}
    joined = [name for name in parts if any(name in ends for ends in arrows)]
    # What links, what weighs most, and what is wasted says most.
    linked = {name for ends, is_link in arrows.items() if is_link for name in ends}
    joined.sort(key=lambda name: (name not in linked, -parts[name].size))
    drawn = joined[:_MOST]
    index = {name: number for number, name in enumerate(drawn)}
    kept = [
        (ends, is_link) for ends, is_link in arrows.items() if ends[0] in index and ends[1] in index
    ]
    if not kept:
        return None
    sizes = [(_width(parts[name]), _HEIGHT) for name in drawn]
    placed = place(sizes, [(index[source], index[end]) for (source, end), _ in kept], _GAP)
    return LinkGraph(
        tuple(targets),
        placed.width + 2 * _MARGIN,
        placed.height + 2 * _MARGIN,
        tuple(
            _box(parts[name], corner, width, shows_waste=shows_waste)
            for name, corner, (width, _) in zip(drawn, placed.corners, sizes, strict=True)
        ),
        tuple(
            GraphArrow(
                _curve(way),
                is_link,
                f"{source} {'links libraries of' if is_link else 'requires'} {end}",
            )
            for ((source, end), is_link), way in zip(kept, placed.ways, strict=True)
        ),
        len(joined) - len(drawn),
    )


def _box(
    part: DistributionBytes, corner: tuple[float, float], width: float, *, shows_waste: bool
) -> GraphBox:
    main = part.vendors[0].vendor if part.vendors else ""
    is_wasted = shows_waste and part.wasted > 0
    wasted = f", of these {size(part.wasted)} wasted" if is_wasted else ""
    return GraphBox(
        corner[0] + _MARGIN,
        corner[1] + _MARGIN,
        width,
        _HEIGHT,
        vendor_class(main),
        is_wasted and part.wasted > part.size / 2,
        short(part.name, 40),
        size(max(0, part.size)),
        f"{part.name} {part.version}: {size(max(0, part.size))}{wasted}",
    )


def _width(part: DistributionBytes) -> float:
    return max(9, len(short(part.name, 40))) * _CHARACTER + 2 * _PADDING


def _curve(way: Sequence[tuple[float, float]]) -> str:
    """A smooth line through all points, level where it passes them."""
    points = [(x + _MARGIN, y + _MARGIN) for x, y in way]
    parts = [f"M{points[0][0]:.0f} {points[0][1]:.0f}"]
    for (x1, y1), (x2, y2) in pairwise(points):
        middle = (x1 + x2) / 2
        parts.append(f"C{middle:.0f} {y1:.0f} {middle:.0f} {y2:.0f} {x2:.0f} {y2:.0f}")
    return "".join(parts)
