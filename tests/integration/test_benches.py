"""Benchmarks run: the tables in docs can be made again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_small_benchmarks_run_and_say_when_and_with_what(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    command = [sys.executable, "-m", "bench", "--json", str(told)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = json.loads(told.read_text())
    assert results.keys() == {"made", "commit", "python", "machine", "small", "benches"}
    output = {row["bench"]: row["output"] for row in results["benches"]}
    assert any(line.startswith("ours  ") for line in output["scan"])
    assert any("paint" in line for line in output["html"])


def run_gpu(folder: Path, *parts: str) -> subprocess.CompletedProcess[str]:
    """Run bench/gpu.py with the programs of a folder alone."""
    environment = {"PATH": str(folder), "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, ROOT / "bench/gpu.py", *parts]
    return subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True
    )


def test_without_a_gpu_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    done = run_gpu(tmp_path)
    assert (done.returncode, "this machine has no NVIDIA GPU" in done.stderr) == (2, True)


def test_a_driver_that_is_not_found_disagrees_with_the_vendors_tool(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'Acme, 1.2.3, 80000, 0000:01:00.0, 16, 5, Disabled, 9.0'\n")
    tool.chmod(0o755)
    done = run_gpu(tmp_path, "engine")
    assert done.returncode == 1, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "driver by its files" in line]
    assert line.split()[5:7] == ["1.2.3", "NO"]
