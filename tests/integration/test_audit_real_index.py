"""`buildmatrix audit` against the real package index. Letters are rows of docs/incidents.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Buildmatrix

pytestmark = pytest.mark.network

COMMON = ("--no-vulnerabilities", "--no-progress", "--format", "json", "--python", "3.12")


@pytest.fixture
def audited(buildmatrix: Buildmatrix, tmp_path: Path):
    def run(text: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        """The exit code and the report of an audit of a requirements file."""
        (tmp_path / "requirements.in").write_text(text)
        done = buildmatrix(tmp_path, "audit", "requirements.in", *COMMON, *arguments)
        assert done.out, done.err
        return done.code, json.loads(done.out)

    return run


def finding(report: dict[str, Any], rule: str, distribution: str) -> dict[str, Any]:
    return next(
        one
        for one in report["findings"]
        if (one["rule"], one["distribution"]) == (rule, distribution)
    )


def test_xgboost_on_rocm_shows_its_code_its_runtime_what_it_forces_and_the_way_out_a9(
    buildmatrix: Buildmatrix, tmp_path: Path
) -> None:
    arguments = ("audit", "pypi:xgboost==3.4.1", "--backend", "rocm", "--no-cache", *COMMON)
    done = buildmatrix(tmp_path, *arguments)
    assert done.code == 1, done.err
    report = done.report()
    code = finding(report, "BM401", "xgboost")
    assert {"sm_75", "sm_90"} <= set(code["evidence"][0]["architectures"])
    assert "`audit --deep` reads the rest" in code["message"]
    assert "static cudart" in finding(report, "BM201", "xgboost")["message"]
    forced = finding(report, "BM101", "nvidia-nccl-cu13")
    assert forced["chain"][1].startswith("xgboost 3.4.1")
    assert "xgboost-cpu" in forced["fix"]["text"]
    one = next(one for one in report["distributions"] if one["name"] == "xgboost")
    assert (one["verdict"], one["depth"]) == ("bloat", "heads")
    assert one["open"] is not None
    assert report["stats"]["bytes_read"] < report["stats"]["bytes_total"] / 5


@pytest.mark.parametrize(
    ("line", "through"),
    [
        ("sentence-transformers", "sentence-transformers"),
        pytest.param("docling", "docling", marks=pytest.mark.weekly),
        ("accelerate", "accelerate"),
    ],
)
def test_what_pulls_the_default_torch_is_named_with_its_bytes_a5_a10(
    audited, line: str, through: str
) -> None:
    code, report = audited(f"# models\n{line}\n", "--backend", "cpu", "--backend", "rocm")
    assert code == 1
    for target in report["targets"]:
        assert target["gates"]["lock"] == "failed"
        assert target["audit"]["foreign_download"] > 1_000_000_000
    torch = finding(report, "BM104", "torch")
    assert torch["chain"][0] == "requirements.in:2"
    assert torch["chain"][1].startswith(through)
    cublas = finding(report, "BM101", "nvidia-cublas")
    assert cublas["chain"][:2] == torch["chain"][:2]
    asker = next(one for one in report["distributions"] if one["name"] == through)
    assert asker["verdict"] == "bloat"


def test_tools_inside_triton_are_seen_from_the_index_a8(audited) -> None:
    code, report = audited("triton\n", "--backend", "cpu")
    assert code == 1
    tools = finding(report, "BM203", "triton")
    assert (
        any("ptxas" in item["detail"] for item in tools["evidence"]) or "tool" in tools["message"]
    )


@pytest.mark.weekly  # lmcache has the largest wheel of this file; xgboost above is another on ROCm.
def test_lmcache_on_rocm_is_foreign_by_what_it_links_and_requires_a6(audited) -> None:
    code, report = audited("lmcache==0.5.6\n", "--backend", "rocm")
    assert code == 1
    assert finding(report, "BM101", "cupy-cuda13x")["chain"][1] == "lmcache 0.5.6"
    one = next(one for one in report["distributions"] if one["name"] == "lmcache")
    assert one["verdict"] in ("bloat", "broken")


@pytest.mark.parametrize(
    ("depth", "count"),
    [
        ([], 6),
        # 60 MB are read whole; tests/integration/test_depths_of_real_wheels.py has smaller ones.
        pytest.param(["--deep"], 3, marks=pytest.mark.weekly),
    ],
    ids=["parts", "whole"],
)
def test_what_is_clean_is_silent_on_every_backend(audited, depth: list[str], count: int) -> None:
    names = ["numpy", "pandas", "onnxruntime", "scipy", "scikit-learn", "pyarrow"]
    code, report = audited("\n".join(names[:count]) + "\n", *depth)
    assert code == 0
    assert report["findings"] == report["unread"] == []
    assert {one["backend"] for one in report["targets"]} == {"cuda", "rocm", "oneapi", "cpu"}
    assert {one["verdict"] for one in report["distributions"]} == {"ok"}
    # What a part of a wheel does not settle is said, and all of it settles everything.
    open_ones = [one for one in report["distributions"] if not one["certain"]]
    assert all("--deep" in one["open"] for one in open_ones)
    assert not (depth and open_ones)


def test_the_lock_of_torch_and_xgboost_costs_a_hundredth_for_four_backends(audited) -> None:
    code, report = audited("torch\nxgboost\n", "--no-cache")
    assert code == 1
    stats = report["stats"]
    assert stats["bytes_total"] > 1_000_000_000
    assert stats["bytes_read"] < stats["bytes_total"] / 100
    states = {one["backend"]: one["gates"]["lock"] for one in report["targets"]}
    assert states == {"cuda": "passed", "rocm": "failed", "oneapi": "failed", "cpu": "failed"}
