"""Ranges of drivers and kernels: their lowest end, and contradictions."""

from __future__ import annotations

import pytest

from buildmatrix.matrix.kinds import DRIVER, KERNEL, compare, numbers, version_range


@pytest.mark.parametrize(
    ("text", "lowest"),
    [
        ("550.54.14", (550, 54, 14)),
        ("570", (570,)),
        ("1.21.0.rc2", (1, 21, 0)),
        ("6.8.0-45-generic", (6, 8, 0)),
        (">=550,<570", (550,)),
        (">550, >=560.35", (560, 35)),
        ("==570.*", (570,)),
        ("~=570.26", (570, 26)),
        ("<580", None),
        ("!=570.1", None),
        ("", None),
    ],
)
def test_a_range_is_judged_by_its_lowest_end(text: str, lowest: tuple[int, ...] | None) -> None:
    assert version_range(text).lowest == lowest
    assert not version_range(text).is_empty


@pytest.mark.parametrize(
    "text",
    [">=580,<570", ">=570,<570", ">570,<=570", "==570.*,>=580", "~=550.1,>=560", "==570.1,!=570.1"],
)
def test_a_range_that_contradicts_itself_is_not_taken(text: str) -> None:
    assert version_range(text).is_empty
    for kind in (DRIVER, KERNEL):
        assert "contradict" in (kind.complaint(text) or "")


@pytest.mark.parametrize("text", [">=570,<=570", "==570.*,>=570.26", ">=550,!=550.1,<560"])
def test_a_narrow_range_is_none(text: str) -> None:
    assert not version_range(text).is_empty
    assert DRIVER.complaint(text) is None


def test_numbers_that_are_left_out_are_zero() -> None:
    assert compare((6, 8), (6, 8, 0)) == 0
    assert compare((6, 8), (6, 8, 1)) < 0 < compare((6, 10), (6, 9, 9))
    assert numbers("latest") is None
    # More digits than a version has: nothing to count with.
    assert numbers("9" * 5000) == (999999999,)
