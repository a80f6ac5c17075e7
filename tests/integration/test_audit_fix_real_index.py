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


def test_a_route_whose_index_cannot_be_reached_is_not_offered_as_tried_a10(
    buildmatrix: Buildmatrix, tmp_path: Path
) -> None:
    """sentence-transformers brings the default torch; other builds are on an index of their own."""
    (tmp_path / "requirements.in").write_text("sentence-transformers\n")
    arguments = ("audit", "requirements.in", "--backend", "cpu", "--fix", "--python", "3.12")
    run = buildmatrix(tmp_path, *arguments, *QUIET)
    assert run.code == 1
    (torch,) = [one for one in run.report()["findings"] if one["rule"] == "BM104"]
    tried = torch["fix"]["tried"]
    if tried["works"]:
        pytest.skip("the index of torch's builds can be reached from here")
    assert tried["works"] is None
    assert "cannot be reached" in tried["outcome"]
    assert tried["saved_download"] == 0
    assert run.report()["fixes"]["patch"] == ""
    assert (tmp_path / "requirements.in").read_text() == "sentence-transformers\n"
    # The chain and the bytes are there all the same.
    assert torch["chain"][:2] == ["requirements.in:1", torch["chain"][1]]
    assert torch["chain"][1].startswith("sentence-transformers ")


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
