"""What a change brought is still in a report that was saved, rendered again and merged."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_report_formats import finding, report, result

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.judge.model import AuditTotals
from buildmatrix.reports import json_form as as_json
from buildmatrix.reports import run_markdown, run_table
from buildmatrix.reports.diff import (
    ChangedFinding,
    DistributionChange,
    DistributionChanges,
    FindingChanges,
    VerdictChange,
)
from buildmatrix.reports.run import Difference, Report, TargetDifference
from buildmatrix.reports.saved import merge, read


def compared(target: str = "cpu-py311-server", commit: str = "abc") -> Report:
    found = finding(target=target)
    changes = TargetDifference(
        target,
        "cpu",
        None,
        AuditTotals(9, 20, 3, 4),
        FindingChanges(
            1,
            (found,),
            (replace(found, distribution="old", fingerprint="2" * 32),),
            (ChangedFinding(replace(found, waived="accepted"), found),),
        ),
        DistributionChanges(4, (DistributionChange("added", "xgboost", "cpu", (), ("3.4.1",)),)),
        (VerdictChange("xgboost", "cpu", None, "bloat", "it is foreign"),),
    )
    difference = Difference(
        "main",
        commit,
        (changes,),
        ("a note",),
    )
    return replace(report(found, targets=(result(target),)), diff=difference)


def saved(folder: Path, name: str, one: Report) -> Report:
    path = folder / name
    path.write_text(as_json.render(one))
    return read(path)


def test_a_saved_audit_of_a_change_is_the_same_in_every_format(tmp_path: Path) -> None:
    before = compared()
    after = saved(tmp_path, "report.json", before)
    assert as_json.render(after) == as_json.render(before)
    assert run_markdown.render(after) == run_markdown.render(before)
    assert run_table.render(after, width=100, color=False) == run_table.render(
        before, width=100, color=False
    )


def test_shards_of_one_change_are_one_change(tmp_path: Path) -> None:
    parts = [
        saved(tmp_path, f"{name}.json", compared(name))
        for name in ("cpu-py311-server", "cpu-py312-server")
    ]
    merged = merge(parts).diff
    assert merged is not None
    assert [one.id for one in merged.targets] == ["cpu-py311-server", "cpu-py312-server"]
    assert merged.notes == ("a note",)


def test_shards_that_were_compared_with_different_commits_are_refused() -> None:
    with pytest.raises(UsageError, match="the same commit"):
        merge([compared("a", "abc"), compared("b", "def")])
    with pytest.raises(UsageError, match="the same commit"):
        merge([compared("a"), report(targets=(result("b"),))])
