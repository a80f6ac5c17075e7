"""Fixes that are tried on the machine's real package index."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Buildmatrix

pytestmark = pytest.mark.network

QUIET = ("--no-vulnerabilities", "--format", "json")


def test_xgboost_on_cpu_ends_clean_with_its_twin_and_says_the_bytes_a9(
    buildmatrix: Buildmatrix, tmp_path: Path
) -> None:
    """dmlc/xgboost #10596, PostHog PR 100971: 300 MB of NCCL in an image without a GPU."""
    requirements = tmp_path / "requirements.in"
    requirements.write_text("# boosting\nxgboost==3.4.1\n")
    dry = buildmatrix(
        tmp_path, "audit", "requirements.in", "--backend", "cpu", "--fix", "--dry-run", *QUIET
    )
    assert dry.code == 1
    assert requirements.read_text() == "# boosting\nxgboost==3.4.1\n"
    fixes = dry.report()["fixes"]
    assert "+xgboost-cpu==3.4.1" in fixes["patch"]
    (foreign,) = [one for one in dry.report()["findings"] if one["rule"] == "BM101"]
    assert foreign["fix"]["tried"]["works"] is True
    assert foreign["fix"]["tried"]["saved_download"] > 300_000_000

    run = buildmatrix(tmp_path, "audit", "requirements.in", "--backend", "cpu", "--fix", *QUIET)
    assert run.code == 0
    assert requirements.read_text() == "# boosting\nxgboost-cpu==3.4.1\n"
    assert run.report()["findings"] == []
    assert run.report()["fixes"]["written"] is True
    (saved,) = run.report()["fixes"]["saved"]
    assert saved["download"] > 300_000_000
    assert saved["installed"] > 400_000_000


@pytest.mark.weekly  # xgboost above has a fix to try; test_audit_real_index.py names the torch.
def test_the_default_torch_of_a_requirement_gets_a_tried_route_or_the_reason_for_none_a10(
    buildmatrix: Buildmatrix, tmp_path: Path
) -> None:
    """sentence-transformers brings the default torch; other builds are on an index of their own."""
    requirements = tmp_path / "requirements.in"
    requirements.write_text("sentence-transformers\n")
    arguments = ("audit", "requirements.in", "--backend", "cpu", "--fix", "--python", "3.12")
    run = buildmatrix(tmp_path, *arguments, "--dry-run", *QUIET)
    assert run.code == 1
    report = run.report()
    (torch,) = [one for one in report["findings"] if one["rule"] == "BM104"]
    # The chain is there, whatever came of the fix.
    assert torch["chain"][0] == "requirements.in:1"
    assert torch["chain"][1].startswith("sentence-transformers ")
    tried = torch["fix"]["tried"]
    assert requirements.read_text() == "sentence-transformers\n"
    if tried["works"]:
        # The index of torch's builds can be reached from here.
        assert tried["saved_download"] > 1_000_000_000
        (saved,) = report["fixes"]["saved"] or [{"download": tried["saved_download"]}]
        assert saved["download"] > 1_000_000_000
    else:
        assert tried["works"] is None
        assert "cannot be reached" in tried["outcome"]
        assert tried["saved_download"] == 0
        assert report["fixes"]["patch"] == ""


def test_one_version_has_a_way_out_on_rocm_too(buildmatrix: Buildmatrix, tmp_path: Path) -> None:
    run = buildmatrix(
        tmp_path,
        *("audit", "pypi:xgboost==3.4.1", "--backend", "rocm", "--fix", "--dry-run", *QUIET),
    )
    assert run.code == 1
    rules = {one["rule"] for one in run.report()["findings"]}
    assert {"BM101", "BM201", "BM401"} <= rules
    fix = next(one["fix"] for one in run.report()["findings"] if one["rule"] == "BM401")
    assert "xgboost-cpu" in fix["text"]
    assert fix["tried"]["works"] is True
