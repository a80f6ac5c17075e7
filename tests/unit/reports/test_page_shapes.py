"""Bars and treemaps: what is drawn is in proportion to bytes, and nothing is lost or covered."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildmatrix.reports.page import Area, lengths, squarify

SIZES = st.lists(st.integers(1, 10**12), min_size=1, max_size=24).map(
    lambda sizes: sorted(sizes, reverse=True)
)


@settings(max_examples=60, deadline=None)
@given(SIZES)
def test_areas_are_in_proportion_to_bytes_and_fill_the_whole(sizes: list[int]) -> None:
    whole = Area(3.0, 5.0, 100.0, 60.0)
    areas = squarify(sizes, whole)
    for size, area in zip(sizes, areas, strict=True):
        assert area.width * area.height == pytest.approx(6000 * size / sum(sizes), rel=1e-6)
        assert area.x >= 3 - 1e-6 and area.x + area.width <= 103 + 1e-6
        assert area.y >= 5 - 1e-6 and area.y + area.height <= 65 + 1e-6
    for one, other in combinations(areas, 2):
        across = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
        down = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
        assert across < 1e-6 or down < 1e-6


def test_equal_sizes_are_near_to_squares() -> None:
    for area in squarify([5] * 12, Area(0, 0, 400, 300)):
        assert area.width == pytest.approx(100) and area.height == pytest.approx(100)


def test_what_has_no_bytes_has_no_area() -> None:
    assert [area.width * area.height for area in squarify([7, 0], Area(0, 0, 10, 10))] == [100, 0]
    assert squarify([0, 0], Area(1, 2, 10, 10)) == [Area(1, 2, 0, 0)] * 2
    assert squarify([], Area(0, 0, 10, 10)) == []


@given(SIZES)
def test_parts_of_a_bar_stand_behind_each_other(sizes: list[int]) -> None:
    parts = lengths(sizes, sum(sizes))
    assert sum(length for _, length in parts) == pytest.approx(100)
    for (start, length), (after, _) in pairwise(parts):
        assert start + length == pytest.approx(after)


def test_a_bar_is_as_long_as_its_share() -> None:
    assert lengths([25, 25], 200) == [(0, 12.5), (12.5, 12.5)]
    assert lengths([0], 0) == [(0.0, 0.0)]
