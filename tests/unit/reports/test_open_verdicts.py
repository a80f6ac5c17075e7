"""What is said of open verdicts names a remedy that the command has."""

from __future__ import annotations

import pytest

from buildmatrix.judge.model import AuditTotals, Depth, TargetResult, Verdict
from buildmatrix.reports import run_markdown, run_table
from buildmatrix.reports.run import Report, assemble


def report(depth: Depth | None, totals: AuditTotals | None) -> Report:
    verdict = Verdict(
        "scipy", "1.17", "cpu", "ok", "nothing", depth=depth, open="1 file", certain=False
    )
    target = TargetResult("cpu", "cpu", gates={"scan": "passed"}, audit=totals)
    return assemble("x", "2026-11-20", targets=[target], verdicts=[verdict])


@pytest.mark.parametrize(
    ("depth", "totals", "deeper"),
    [
        ("heads", AuditTotals(), True),
        ("whole", AuditTotals(), False),
        (None, None, False),
    ],
    ids=["audit", "audit --deep", "scan"],
)
def test_a_deeper_look_is_advised_where_there_is_one(
    depth: Depth | None, totals: AuditTotals | None, deeper: bool
) -> None:
    known = report(depth, totals)
    for text in (run_table.render(known, width=200, color=False), run_markdown.render(known)):
        assert ("`audit --deep` reads the rest" in text) == deeper
        assert ("without Python files that could not be parsed: scipy 1.17" in text) != deeper
