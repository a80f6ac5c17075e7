"""docs/policy.md says of every rule what it is by default."""

from __future__ import annotations

import re
from pathlib import Path

from buildmatrix.judge.registry import RULES

PAGE = Path(__file__).parents[3] / "docs" / "policy.md"
ROW = re.compile(r"^\| (BM[^|]+) \| (error|warning|note) \| [^|]+ \|$", re.MULTILINE)


def test_the_page_has_the_severity_of_every_rule_once() -> None:
    said = [
        (code, severity)
        for codes, severity in ROW.findall(PAGE.read_text())
        for code in codes.split(", ")
    ]
    assert sorted(said) == [(rule.code, rule.severity) for rule in RULES]
