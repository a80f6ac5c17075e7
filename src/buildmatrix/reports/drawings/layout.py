"""Positions of the boxes of a picture: layers from left to right, with few crossings.

The method is the one of Sugiyama, Tagawa and Toda (1981): break cycles, give each box a layer, put
a stand-in into every layer that a long arrow passes, order each layer by its neighbors, then move
the boxes of a layer up and down to where their neighbors are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

#: Times that the layers are gone through, to order them and then to place them.
_SWEEPS = 12
#: Height of the stand-in of an arrow, and the free space between two boxes of a layer.
_PASSAGE, _BETWEEN = 10.0, 14.0


#: Columns of boxes that no arrow leads to or from.
_LOOSE_WIDTH = 1400.0


@dataclass(frozen=True, slots=True)
class Placed:
    """A layout. Units are those of the sizes that were given."""

    #: Upper left corner of each box.
    corners: tuple[tuple[float, float], ...]
    #: For each arrow the points that it passes, from the box that it leaves on.
    ways: tuple[tuple[tuple[float, float], ...], ...]
    width: float
    height: float


def place(
    sizes: Sequence[tuple[float, float]], arrows: Sequence[tuple[int, int]], gap: float
) -> Placed:
    """Place boxes of the given sizes, `gap` apart from layer to layer.

    `arrows` are pairs of indexes into `sizes`. An arrow from a box to itself is drawn beside it.
    Boxes without arrows stand in rows below the others.
    """
    joined = sorted({node for arrow in arrows for node in arrow})
    index = {node: number for number, node in enumerate(joined)}
    placed = _place(
        [sizes[node] for node in joined], [(index[a], index[b]) for a, b in arrows], gap
    )
    corners = dict(zip(joined, placed.corners, strict=True))
    wide = max(_LOOSE_WIDTH, placed.width)
    x, y, row, right = 0.0, placed.height + (3 * _BETWEEN if joined else 0.0), 0.0, placed.width
    for node, (width, height) in enumerate(sizes):
        if node in index:
            continue
        if x and x + width > wide:
            x, y, row = 0.0, y + row + _BETWEEN, 0.0
        corners[node] = (x, y)
        x, row = x + width + _BETWEEN, max(row, height)
        right = max(right, x - _BETWEEN)
    bottom = y + row if len(joined) < len(sizes) else placed.height
    return Placed(tuple(corners[n] for n in range(len(sizes))), placed.ways, right, bottom)


def _place(
    sizes: Sequence[tuple[float, float]], arrows: Sequence[tuple[int, int]], gap: float
) -> Placed:
    count = len(sizes)
    forward = _without_cycles(count, arrows)
    layers = _layers(count, forward)
    # Nodes from `count` on are stand-ins.
    height = [size[1] for size in sizes]
    layer = list(layers)
    passes: list[list[int]] = []
    links: list[tuple[int, int]] = []
    for source, target in forward:
        stations = [source]
        for at in range(layers[source] + 1, layers[target]):
            layer.append(at)
            height.append(_PASSAGE)
            stations.append(len(layer) - 1)
        stations.append(target)
        passes.append(stations)
        links += pairwise(stations)
    rows = _ordered(layer, links)
    tops = _tops(rows, height, links)
    lefts, widths = _columns(rows, sizes, gap)
    placed = [(lefts[layer[node]], tops[node]) for node in range(count)]
    ways = []
    for (source, target), stations in zip(arrows, passes, strict=True):
        # Level inside of a column, so that it runs behind no box, and bent only between columns.
        points = [
            (lefts[layer[stations[0]]] + sizes[stations[0]][0], _middle(tops, height, stations[0]))
        ]
        for node in stations[:-1]:
            left, y = lefts[layer[node]], _middle(tops, height, node)
            if node >= count:
                points.append((left, y))
            points.append((left + widths[layer[node]], y))
        points.append((lefts[layer[stations[-1]]], _middle(tops, height, stations[-1])))
        if stations[0] != source:
            # It was turned around to break a cycle: the box that it leaves stands on the right.
            points.reverse()
        ways.append(tuple(points) if source != target else _loop(placed[source], sizes[source]))
    return Placed(
        tuple(placed),
        tuple(ways),
        max((x + sizes[node][0] for node, (x, _) in enumerate(placed)), default=0.0),
        max((tops[node] + height[node] for node in range(len(layer))), default=0.0),
    )


def _middle(tops: Sequence[float], height: Sequence[float], node: int) -> float:
    return tops[node] + height[node] / 2


def _loop(
    corner: tuple[float, float], size: tuple[float, float]
) -> tuple[tuple[float, float], ...]:
    x, y = corner[0] + size[0], corner[1]
    return ((x, y + size[1] * 0.7), (x + 24, y + size[1] / 2), (x, y + size[1] * 0.3))


def _without_cycles(count: int, arrows: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The arrows, those turned around that lead back on a walk from the boxes nothing leads to."""
    out: list[list[int]] = [[] for _ in range(count)]
    entered = [False] * count
    for number, (source, target) in enumerate(arrows):
        if source != target:
            out[source].append(number)
            entered[target] = True
    state = [0] * count  # 1: on the way, 2: done
    turned = set[int]()
    for start in sorted(range(count), key=lambda node: entered[node]):
        if state[start]:
            continue
        state[start] = 1
        stack = [(start, iter(out[start]))]
        while stack:
            node, rest = stack[-1]
            number = next(rest, -1)
            if number < 0:
                state[node] = 2
                stack.pop()
                continue
            target = arrows[number][1]
            if state[target] == 1:
                turned.add(number)
            elif not state[target]:
                state[target] = 1
                stack.append((target, iter(out[target])))
    return [
        (target, source) if number in turned else (source, target)
        for number, (source, target) in enumerate(arrows)
    ]


def _layers(count: int, arrows: Iterable[tuple[int, int]]) -> list[int]:
    """The longest way to each box; boxes that nothing leads to stand close to what they lead to."""
    out: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for source, target in arrows:
        if source != target:
            out[source].append(target)
            missing[target] += 1
    starts = [node for node in range(count) if not missing[node]]
    layer = [0] * count
    ahead = list(starts)
    for node in ahead:  # grows while it is walked
        for target in out[node]:
            layer[target] = max(layer[target], layer[node] + 1)
            missing[target] -= 1
            if not missing[target]:
                ahead.append(target)
    for node in starts:
        if out[node]:
            layer[node] = min(layer[target] for target in out[node]) - 1
    return layer


def _ordered(layer: Sequence[int], links: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Nodes of each layer, ordered by where their neighbors stand (barycenters)."""
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for node, at in enumerate(layer):
        rows[at].append(node)
    left, right = _neighbors(len(layer), links)
    position = [0.0] * len(layer)
    for row in rows:
        for place, node in enumerate(row):
            position[node] = float(place)
    for sweep in range(_SWEEPS):
        backwards = sweep % 2 == 1
        for row in reversed(rows) if backwards else rows:
            near = right if backwards else left
            row.sort(
                key=lambda node: (
                    sum(position[other] for other in near[node]) / len(near[node])
                    if near[node]
                    else position[node]
                )
            )
            for place, node in enumerate(row):
                position[node] = float(place)
    return rows


def _tops(
    rows: Sequence[Sequence[int]], height: Sequence[float], links: Iterable[tuple[int, int]]
) -> list[float]:
    """Upper edge of every node: as near to its neighbors as the order of its layer allows."""
    left, right = _neighbors(len(height), links)
    middle = [0.0] * len(height)
    for row in rows:
        y = 0.0
        for node in row:
            middle[node] = y + height[node] / 2
            y += height[node] + _BETWEEN
    for sweep in range(_SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = []
            for node in row:
                near = [*left[node], *right[node]]
                wanted.append(sum(middle[o] for o in near) / len(near) if near else middle[node])
            for node, y in zip(row, _apart(row, wanted, height), strict=True):
                middle[node] = y
    tops = [middle[node] - height[node] / 2 for node in range(len(height))]
    highest = min(tops, default=0.0)
    return [top - highest for top in tops]


def _apart(row: Sequence[int], wanted: Sequence[float], height: Sequence[float]) -> list[float]:
    """Middles nearest to `wanted` (least squares) that keep the order and the distances.

    Without the distances this is isotonic regression, done by pooling adjacent violators.
    """
    shift, shifts = 0.0, []
    for number, node in enumerate(row):
        if number:
            shift += (height[row[number - 1]] + height[node]) / 2 + _BETWEEN
        shifts.append(shift)
    pools: list[list[float]] = []  # sum, count
    for value, offset in zip(wanted, shifts, strict=True):
        pools.append([value - offset, 1.0])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            total, many = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += many
    free = [total / many for total, many in pools for _ in range(int(many))]
    return [value + offset for value, offset in zip(free, shifts, strict=True)]


def _columns(
    rows: Sequence[Sequence[int]], sizes: Sequence[tuple[float, float]], gap: float
) -> tuple[list[float], list[float]]:
    """Left edge and width of each layer."""
    lefts, widths = [], []
    x = 0.0
    for row in rows:
        width = max((sizes[node][0] for node in row if node < len(sizes)), default=0.0)
        lefts.append(x)
        widths.append(width)
        x += width + gap
    return lefts, widths


def _neighbors(
    count: int, links: Iterable[tuple[int, int]]
) -> tuple[list[list[int]], list[list[int]]]:
    left: list[list[int]] = [[] for _ in range(count)]
    right: list[list[int]] = [[] for _ in range(count)]
    for source, target in links:
        left[target].append(source)
        right[source].append(target)
    return left, right
