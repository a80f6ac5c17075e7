"""How long a report is, and what it counts, for what the real index has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from buildmatrix.cli import group
from buildmatrix.judge.model import Finding
from buildmatrix.judge.registry import drop_repeats
from buildmatrix.reports.saved import read

pytestmark = pytest.mark.network

#: Backends, some of which have a build of torch 2.9 and some of which have none.
BACKENDS = ("cpu", "rocm", "oneapi", "openvino", "tpu", "npu", "vulkan", "neuron", "hpu")


def audit(root: Path, requirements: str, *backends: str) -> tuple[str, str, Path]:
    """The table, the Markdown, and where the JSON is."""
    (root / "requirements.txt").write_text(requirements)
    names = {name: root / name for name in ("table", "markdown", "json", "sarif")}
    arguments = ["--no-progress", "audit", str(root / "requirements.txt"), "--no-vulnerabilities"]
    arguments += [f"--backend={one}" for one in backends]
    arguments += [f"--format={name}={path}" for name, path in names.items()]
    result = CliRunner().invoke(group, arguments, standalone_mode=False)
    assert result.return_value == 1, result.output
    return names["table"].read_text(), names["markdown"].read_text(), names["json"]


def test_nine_targets_with_one_cause_are_read_in_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not beside the specification of the checkout, whose targets have bases of their own.
    monkeypatch.chdir(tmp_path)
    table, markdown, saved = audit(tmp_path, "torch==2.9.0\n", *BACKENDS)
    assert len(table.splitlines()) < 120
    assert table.count("BM101") == 1
    assert "foreign-dependency  nvidia-cudnn-cu12" in table
    head, _, _ = markdown.partition("<details>")
    assert len(head.splitlines()) <= 60
    findings = read(saved).findings
    assert len(findings) > 100
    results = json.loads((tmp_path / "sarif").read_text())["runs"][0]["results"]
    counted = f"({len(results)} findings in "
    assert counted in table and counted in markdown
    assert f"cure {len(results)} of {len(results)} findings" in markdown
    for backend in BACKENDS:
        assert any(line.startswith(backend) for line in table.splitlines())


def test_a_distribution_of_the_other_line_is_one_finding(tmp_path: Path) -> None:
    """As in the requirements of lmcache, where nixl brings its builds for both lines."""
    _, _, saved = audit(tmp_path, "nixl==1.5.1\n", "cuda13.0")
    findings = read(saved).findings
    assert rules(findings) >= {"BM103", "BM109", "BM204"}
    assert rules(drop_repeats(findings)) == {"BM103"}


def rules(findings: tuple[Finding, ...]) -> set[str]:
    return {one.rule for one in findings if "nixl-cu12" in one.distributions}
