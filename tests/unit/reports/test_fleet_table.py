"""The answer about a fleet as text: short for 10,000 images, whole where it is asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fleet_cases import clean, fleet, later

from buildmatrix.base.data import replace
from buildmatrix.reports.fleet_assembly import assemble
from buildmatrix.reports.formats import FLEET, Destination, find_format

GOLDEN = Path(__file__).parents[2] / "golden/fleet"


def text_of(report, name: str, **options) -> str:
    return find_format(FLEET, name).render(report, Destination(**options))


@pytest.mark.parametrize("name", ["table", "markdown"])
def test_a_fleet_is_written_as_it_was(name: str) -> None:
    path, text = GOLDEN / f"fleet.{name}", text_of(later(150), name)
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_a_short_table_stays_short_and_in_its_width_and_says_how_to_see_all() -> None:
    small, large = fleet(200), fleet(1500)
    for width in (80, 100, 160):
        lines = text_of(large, "table", width=width).splitlines()
        assert len(lines) <= 66
        assert abs(len(lines) - len(text_of(small, "table", width=width).splitlines())) < 6
        assert max(map(len, lines)) <= width
    assert "--format html=FILE is a page with" in " ".join(lines)
    every = text_of(small, "table", every=True)
    assert "--format" not in every
    for result in small.results:
        if result.unusable_download or result.state == "undecided":
            assert result.title in every


def test_missing_and_undecided_come_before_what_is_fine() -> None:
    lines = text_of(fleet(200), "table").splitlines()
    assert "not read" in lines[1]
    assert lines[-1] == "65 of 200 images failed, 2 undecided, not everything was looked at"
    assert "undecided" in lines


def test_an_empty_fleet_says_so() -> None:
    assert "Nothing is in this fleet" in text_of(assemble("x", (), "2026-11-20"), "table")


def test_a_comment_has_sixty_lines_at_most_and_says_first_what_to_do() -> None:
    every = replace(later(300), missing=("a: b",) * 9, notes=("c",) * 9)
    text = text_of(every, "markdown")
    lines = text.splitlines()
    assert len(lines) <= 60
    assert lines[0].startswith("## buildmatrix: 84 of 296 images failed")
    assert lines[2].startswith("**First:** 50 images with nvidia-part0 and 11 more: write `torch")
    assert "and no more" not in text
    assert len(text_of(every, "markdown", every=True).splitlines()) > 250


@pytest.mark.parametrize("name", ["table", "markdown"])
def test_where_nothing_is_wrong_nothing_is_to_do(name: str) -> None:
    text = text_of(clean(), name)
    assert "Passed: all of" in text
    assert "**First:**" not in text and "fix" not in text
