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
