"""`scan --select`: a source that is judged as a target of the specification."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from buildmatrix import cli

SPEC = """
[project]
name = "fit"
version = "1.0"
[defaults]
python = ["3.11"]
requirements = ["r.in"]
[backend.cuda]
base = "nvidia/cuda:12.8.1-base-ubuntu22.04"
runtime = ["12.8", "13.0"]
[node-class.old]
backend = "cuda"
driver = "550.54.14"
archs = ["sm_90"]
[[waive]]
rule = "BM701"
reason = "until the upgrade"
owner = "team@example.com"
expires = 2999-01-31
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main([str(one) for one in arguments])
    printed = capsys.readouterr()
    return int(stop.value.code or 0), printed.out, printed.err


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "buildmatrix.toml").write_text(SPEC)
    (tmp_path / "r.in").write_text("torch\n")
    site = tmp_path / "tree/lib/python3.11/site-packages/demo-1.0.dist-info"
    site.mkdir(parents=True)
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_source_is_judged_with_the_node_classes_of_a_target(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    form = "json=report.json"
    code, _, _ = run(capsys, "scan", "dir:tree", "--select", "cuda12.8*", "--format", form)
    assert code == 0
    (target,) = json.loads((project / "report.json").read_text())["targets"]
    assert target["id"] == "cuda12.8-py311-default"
    assert target["nodes"] == [{"node": "old", "state": "ok", "reasons": [], "devices": []}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--select", "cuda*"], "fits 2 targets"),
        (["--select", "rocm*"], "rocm"),
        (["--select", "cuda12.8*", "--backend", "cuda"], "leave the others out"),
        (["--select", "cuda12.8*", "--runtime", "12.8"], "leave the others out"),
    ],
)
def test_what_is_no_single_target(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, _, err = run(capsys, "scan", "dir:tree", *arguments)
    assert code == 2 and message in err


def test_without_a_target_nothing_is_said_of_node_classes(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "scan", "dir:tree", "--backend", "cuda", "--format", "json=report.json")
    report = json.loads((project / "report.json").read_text())
    assert "nodes" not in report["targets"][0]
