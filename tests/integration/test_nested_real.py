"""Archives in real packages, and caches of real installers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Buildmatrix

from buildmatrix.locks.index.model import NESTED_ENDS

pytestmark = pytest.mark.network

RUNTIME = "nvidia-cuda-runtime-cu12==12.8.90"
COMMON = ("--no-cache", "--no-progress", "--format", "json")


def test_a_jar_with_kernels_leaves_the_verdict_open_e1(
    buildmatrix: Buildmatrix, tmp_path: Path
) -> None:
    """h2o.jar (279 MB) holds libxgboost4j_gpu.so (157 MB); `--deep` reads it (bench, by hand)."""
    arguments = ("--backend", "cpu", "--no-vulnerabilities", "--python", "3.12", *COMMON)
    done = buildmatrix(tmp_path, "audit", "pypi:h2o==3.46.0.11", *arguments)
    one = next(one for one in done.report()["distributions"] if one["name"] == "h2o")
    assert one["certain"] is False
    assert "not opened" in one["open"]
    # The list of the jar's 79,000 files begins more than 3 MiB before its end.
    assert done.report()["stats"]["bytes_read"] < NESTED_ENDS[-1] + 1_500_000


def test_what_uv_leaves_behind_is_its_cache_and_a_wheelhouse_is_told_b6_d1_e1(
    buildmatrix: Buildmatrix, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    environment, wheels = root / "opt/venv", root / "wheels"
    python, cache = environment / "bin/python", root / "root/.cache/uv"
    wheels.mkdir(parents=True)
    install = f"uv pip install --quiet --link-mode hardlink --cache-dir {cache} --python {python}"
    for command in (
        f"uv venv --quiet {environment}",
        f"{install} {RUNTIME}",
        f"{sys.executable} -m pip download --quiet --no-deps --dest {wheels} {RUNTIME}",
    ):
        subprocess.run(command.split(), check=True, timeout=300)
    done = buildmatrix(tmp_path, "scan", f"dir:{root}", "--backend", "cpu", *COMMON)
    assert done.code == 1, done.err
    report = done.report()
    assert [(one["rule"], one["path"]) for one in report["findings"] if one["rule"] == "BM605"] == [
        ("BM605", "wheels")
    ]
    assert [one["name"] for one in report["distributions"]] == ["nvidia-cuda-runtime-cu12"]
    bundled = next(one for one in report["findings"] if one["rule"] == "BM201")
    assert bundled["path"].startswith("opt/venv/lib/")
    (cached,) = (path.relative_to(root) for path in cache.glob("**/libcudart.so.12"))
    why = buildmatrix(tmp_path, "why", f"dir:{root}", str(cached))
    assert why.code == 0, why.err
    assert "opt/venv/lib/" in why.out
