"""Reports that were saved: rendered again as they were, merged, and refused when they are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_report_formats import finding, report, result

from buildmatrix.errors import UsageError
from buildmatrix.inventory.model import Inventory, Stats, Unread
from buildmatrix.reports import json as as_json
from buildmatrix.reports import table
from buildmatrix.reports.model import Report
from buildmatrix.reports.saved import merge, read


def saved(folder: Path, name: str, one: Report) -> Path:
    path = folder / name
    path.write_text(as_json.render(one))
    return path


def test_a_saved_report_is_the_same_in_every_format(tmp_path: Path) -> None:
    tree = Inventory(unread=(Unread("a", "because"),), stats=Stats(3, 2, 100, 50, 1.5, 0))
    before = report(finding(waived="accepted"), inventories=[tree])

    after = read(saved(tmp_path, "report.json", before))

    assert as_json.render(after) == as_json.render(before)
    assert table.render(after, width=100, color=False) == table.render(
        before, width=100, color=False
    )


def test_shards_become_one_report(tmp_path: Path) -> None:
    one = report(finding(), targets=(result("cpu-py311-server"),))
    two = report(
        finding(target="cpu-py312-server"), targets=(result("cpu-py312-server", scan="failed"),)
    )

    merged = merge([read(saved(tmp_path, f"{n}.json", r)) for n, r in enumerate((one, two))])

    assert [t.id for t in merged.targets] == ["cpu-py311-server", "cpu-py312-server"]
    assert {f.target for f in merged.findings} == {"cpu-py311-server", "cpu-py312-server"}
    assert merged.subject == "buildmatrix.toml"


def test_one_target_in_two_reports_is_refused_because_only_one_can_count() -> None:
    with pytest.raises(UsageError, match="cpu-py311-server is in more than one report"):
        merge([report(), report()])


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "\x00", '{"schema": "buildmatrix/report/1"}', "[" * 100_000],
    ids=["empty", "object", "list", "nul", "cut off", "deep"],
)
def test_what_is_no_report_is_said_to_be_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)

    with pytest.raises(UsageError, match=r"x\.json is no report of buildmatrix"):
        read(path)


def test_a_report_of_another_format_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path, "old.json", report())
    path.write_text(path.read_text().replace("report/1", "report/9"))

    with pytest.raises(UsageError, match="has the format buildmatrix/report/9"):
        read(path)


def test_a_missing_report_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.json cannot be read: No such file"):
        read(tmp_path / "gone.json")
