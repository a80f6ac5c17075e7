"""What an audit adds to the report: totals, who wastes what, and what stayed open."""

from __future__ import annotations

import json
from hashlib import sha256

import jsonschema

from buildmatrix.judge.model import AuditTotals, Finding, TargetResult, Verdict
from buildmatrix.judge.registry import BY_CODE
from buildmatrix.reports import json_form as as_json
from buildmatrix.reports import run_markdown, run_table, sarif, saved
from buildmatrix.reports.formats import document_schema
from buildmatrix.reports.run import Report, assemble, exit_code
from buildmatrix.reports.summary import list_waste

LINE = "images/requirements.in:3"


def finding(name: str, version: str, *chain: str, rule: str = "BM101") -> Finding:
    return Finding(
        rule=rule,
        name=BY_CODE[rule].name,
        severity="error",
        target="cpu-py312",
        backend="cpu",
        vendor="nvidia",
        message=f"{name} {version} belongs to NVIDIA CUDA, not usable on cpu",
        distribution=name,
        version=version,
        chain=chain,
        fingerprint=sha256(name.encode()).hexdigest()[:32],
    )


def verdict(name: str, version: str, installed: int, download: int, **more: object) -> Verdict:
    return Verdict(
        name,
        version,
        "cpu",
        "bloat",
        "it belongs to NVIDIA CUDA",
        installed,
        ("nvidia",),
        depth="listing",
        download=download,
        foreign_download=download,
        **more,  # type: ignore[arg-type]
    )


def report(**more: object) -> Report:
    findings = [
        finding("torch", "2.9.0", LINE, "demo 1.0", "torch 2.9.0", rule="BM104"),
        finding("nvidia-cublas-cu12", "12.8", LINE, "demo 1.0", "torch 2.9.0", "nvidia-cublas"),
        finding("nvidia-nccl-cu12", "2.27", "images/other.in:1", "nvidia-nccl-cu12 2.27"),
    ]
    return assemble(
        "buildmatrix.toml",
        "2026-11-20",
        targets=[
            TargetResult(
                "cpu-py312",
                "cpu",
                {"lock": "failed"},
                audit=AuditTotals(3_100_000_000, 5_400_000_000, 2_900_000_000, 4_900_000_000),
            )
        ],
        findings=findings,
        verdicts=[
            verdict("torch", "2.9.0", 1_000_000_000, 600_000_000),
            verdict("nvidia-cublas-cu12", "12.8", 700_000_000, 500_000_000),
            verdict("nvidia-nccl-cu12", "2.27", 300_000_000, 200_000_000),
            *more.pop("verdicts", ()),  # type: ignore[misc]
        ],
    )


def test_each_requirement_line_is_charged_with_what_it_brings() -> None:
    first, second = list_waste(report(), "cpu-py312")
    assert (first.line, first.asker) == (LINE, "demo 1.0")
    assert (first.distributions, first.download, first.installed) == (
        2,
        1_100_000_000,
        1_700_000_000,
    )
    assert (second.line, second.download) == ("images/other.in:1", 200_000_000)


def test_the_table_has_the_totals_and_the_lines_that_bring_them() -> None:
    text = run_table.render(report(), width=100, color=False)
    head, row = text.splitlines()[:2]
    assert head.split() == ["target", "audit", "download", "wasted", "installed", "wasted"]
    assert row.split()[:4] == ["cpu-py312", "failed", "3.1", "GB"]
    assert f"{LINE} demo 1.0: 1.1 GB to download and 1.7 GB installed are wasted" in text


def test_the_comment_on_a_pull_request_has_them_too() -> None:
    text = run_markdown.render(report())
    assert "| cpu-py312 | **failed** | 3.1 GB | 2.9 GB | 5.4 GB | 4.9 GB |" in text
    assert "demo 1.0: 1.1 GB to download and 1.7 GB installed are wasted" in text


def test_the_requirement_line_is_where_code_hosts_show_it() -> None:
    results = json.loads(sarif.render(report()))["runs"][0]["results"]
    places = {
        (
            one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
            one["locations"][0]["physicalLocation"]["region"]["startLine"],
        )
        for one in results
    }
    assert places == {("images/requirements.in", 3), ("images/other.in", 1)}


def test_the_json_fits_its_schema_and_can_be_read_back(tmp_path) -> None:
    text = as_json.render(report())
    jsonschema.validate(json.loads(text), document_schema("report"))
    assert json.loads(text)["targets"][0]["audit"]["foreign_download"] == 2_900_000_000
    assert json.loads(text)["distributions"][0]["depth"] == "listing"
    path = tmp_path / "report.json"
    path.write_text(text)
    assert as_json.render(saved.read(path)) == text


def test_a_verdict_that_rests_on_a_part_is_named_and_fails_where_that_was_asked_for() -> None:
    doubtful = Verdict(
        "scipy",
        "1.17",
        "cpu",
        "ok",
        "nothing",
        open="3 of 9 binary files not opened",
        certain=False,
        depth="listing",
    )
    clean = assemble("x", "2026-11-20", verdicts=[doubtful])
    assert exit_code(clean) == 0
    assert exit_code(clean, strict=True) == 1
    assert "judged by part of their files: scipy 1.17" in run_table.render(
        clean, width=100, color=False
    )


def test_of_two_targets_of_one_backend_the_worse_verdict_is_reported() -> None:
    good = Verdict("demo", "1.0", "cpu", "ok", "nothing")
    bad = Verdict("demo", "1.0", "cpu", "bloat", "5 MB")
    for order in ((good, bad), (bad, good)):
        assert assemble("x", "2026-11-20", verdicts=order).distributions == (bad,)
