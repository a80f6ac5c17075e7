"""What a judge refuses before it judges anything."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from buildmatrix.base.errors import SpecError
from buildmatrix.judge.judging import Judge
from buildmatrix.matrix.load import load_spec

SPEC = """
schema = 1
[project]
name = "p"
version = "1"
image = "p"
[backend.cpu]
runtime = "any"
base = "b"
python = ["3.11"]
requirements = ["r.in"]
[[waive]]
rule = "BM999"
reason = "r"
owner = "o"
expires = 2099-01-01
"""


def test_a_waiver_of_a_rule_that_does_not_exist_is_an_error_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "r.in").write_text("packaging\n")
    path = tmp_path / "buildmatrix.toml"
    path.write_text(SPEC)

    with pytest.raises(SpecError, match=r"buildmatrix\.toml:12: there is no rule BM999"):
        Judge(load_spec(path), "error", date(2026, 11, 21))


def test_a_severity_of_a_rule_that_does_not_exist_is_an_error_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "r.in").write_text("packaging\n")
    path = tmp_path / "buildmatrix.toml"
    path.write_text(SPEC[: SPEC.index("[[waive]]")] + '[policy.severity]\nBM999 = "off"\n')

    with pytest.raises(SpecError, match=r"buildmatrix\.toml:13:9: there is no rule BM999"):
        Judge(load_spec(path), "error", date(2026, 11, 21))
