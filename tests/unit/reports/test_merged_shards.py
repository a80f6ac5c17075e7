"""The reports of a divided matrix: all of them, each once, and of one division."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from itertools import permutations
from pathlib import Path

import pytest
from test_report_formats import result

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError, UsageError
from buildmatrix.reports import json_form
from buildmatrix.reports.formats import RUN, Destination
from buildmatrix.reports.run import Report, ReportShard, assemble, exit_code
from buildmatrix.reports.saved import merge, parse, read

PLAN, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def part(number: int, count: int = 3, plan: str = PLAN, target: str | None = None) -> Report:
    """The report of one shard, which has one target."""
    name = target or f"cpu-py31{number}-server"
    made = assemble("buildmatrix.toml", "2026-11-23", targets=[result(name)])
    return replace(made, shards=(ReportShard(number, count, plan),))


def unread(merged: Report) -> list[str]:
    return [item.path for item in merged.unread]


def through_json(reports: Iterable[Report]) -> list[Report]:
    return [parse(json_form.render(item).encode(), "report.json") for item in reports]


def test_all_shards_together_are_a_whole() -> None:
    merged = merge(through_json([part(3), part(1), part(2)]))
    assert (exit_code(merged), unread(merged)) == (0, [])
    assert [shard.number for shard in merged.shards or ()] == [1, 2, 3]


def test_a_missing_shard_is_named_and_leaves_the_run_undecided() -> None:
    merged = merge([part(1), part(3)])
    assert unread(merged) == ["the report of shard 2/3"]
    assert (exit_code(merged), exit_code(merged, strict=True)) == (3, 1)


def test_one_report_that_is_alone_lacks_the_others_and_a_run_of_one_shard_nothing() -> None:
    assert unread(merge([part(2)])) == ["the report of shard 1/3, 3/3"]
    assert exit_code(part(2)) == 0
    assert exit_code(merge([part(1, count=1)])) == 0


def test_reports_that_were_merged_before_are_merged_again_in_any_order() -> None:
    whole = json_form.render(merge([part(1), part(2), part(3)]))
    for first, second, third in permutations([part(1), part(2), part(3)]):
        two = merge([first, second])
        assert exit_code(two) == 3
        merged = merge(through_json([third, two]))
        assert exit_code(merged) == 0
        names = sorted(target.id for target in merged.targets)
        assert (names, merged.shards) == (
            ["cpu-py311-server", "cpu-py312-server", "cpu-py313-server"],
            parse(whole.encode(), "w").shards,
        )
    assert merge([two]) == two


@pytest.mark.parametrize("target", [None, "cpu-py319-server"])
def test_a_shard_that_is_there_twice_is_undecided(target: str | None) -> None:
    with pytest.raises(UndecidedError, match=r"shard 2/3 is in more than one of these reports"):
        merge([part(1), part(2), part(3), part(2, target=target)])


def test_a_shard_of_another_division_is_undecided() -> None:
    merged = merge([part(1), part(2), part(3, plan=OTHER)])
    assert exit_code(merged) == 3
    assert sorted(unread(merged)) == [
        "the report of shard 1/3, 2/3",
        "the report of shard 3/3",
    ]
    assert all("another division of the targets" in item.why for item in merged.unread)


def test_a_target_in_shards_of_two_divisions_is_undecided() -> None:
    with pytest.raises(UndecidedError, match=r"cpu-py311-server is in more than one shard.*--timi"):
        merge([part(1), part(2), part(3), part(1, plan=OTHER)])
    plain = replace(part(1), shards=None)
    with pytest.raises(UsageError, match="merge only reports of one run"):
        merge([part(1), plain])


def test_two_whole_matrices_and_a_report_without_shards_are_one_report() -> None:
    names = [f"cuda-py31{number}" for number in (1, 2, 3)]
    others = [part(n, plan=OTHER, target=name) for n, name in enumerate(names, 1)]
    plain = replace(part(1, target="rocm-py311"), shards=None)
    merged = merge([part(1), part(2), part(3), *others, plain])
    assert (exit_code(merged), unread(merged), len(merged.targets)) == (0, [], 7)


@pytest.mark.parametrize("name", ["table", "markdown", "concise", "sarif", "junit", "html"])
@pytest.mark.usefixtures("a_day")
def test_every_format_says_which_shard_is_missing(name: str) -> None:
    merged = merge([part(1), part(3)])
    form = next(item for item in RUN if item.name == name)
    text = form.render(merged, Destination(width=100, exit_code=3))
    assert "shard 2/3" in text


@pytest.mark.parametrize("number", ["0", "-1", "1000000", '"1"'])
def test_what_is_no_shard_is_no_report(number: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json_form.render(part(2)).replace('"count": 3', f'"count": {number}'))
    with pytest.raises(UsageError, match="is not a report of buildmatrix"):
        read(path)


def test_a_million_missing_shards_are_one_line_and_take_no_memory() -> None:
    tracemalloc.start()
    try:
        (item,) = merge([part(1, count=999_999)]).unread
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert item.path.endswith("11/999999 and 999988 more")
    assert peak < 5_000_000
