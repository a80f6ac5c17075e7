"""The answer about a fleet as a table: short for 10,000 images, whole where it is asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fleet_cases import fleet, later

from buildmatrix.reports.fleet.assembly import assemble
from buildmatrix.reports.formats import FLEET, Destination, by_name

GOLDEN = Path(__file__).parents[2] / "golden/fleet"


def text_of(report, name: str, **options) -> str:
    return by_name(FLEET, name).render(report, Destination(**options))


@pytest.mark.parametrize("name", ["table"])
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
    assert "--all lists all" in " ".join(lines)
    every = text_of(small, "table", every=True)
    assert "--all" not in every
    for result in small.results:
        if result.unusable_download or result.state == "undecided":
            assert result.title in every


def test_missing_and_undecided_come_before_what_is_fine() -> None:
    lines = text_of(fleet(200), "table").splitlines()
    assert "not looked at" in lines[1]
    assert lines[-1] == "65 of 200 images failed, 2 undecided, not everything was looked at"
    assert "undecided: none of these is clean" in lines


def test_an_empty_fleet_says_so() -> None:
    assert "Nothing is in this fleet" in text_of(assemble("x", (), "2026-11-20"), "table")
