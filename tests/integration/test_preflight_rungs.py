"""The rungs `batch` and `cold-start` in containers that really run, and an end by Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import Buildmatrix

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.usefixtures("engine")]

TARGET = "cpu-py311-default"
SPEC = """\
[project]
name = "rungs"
version = "1.0"
[defaults]
python = "3.11"
requirements = ["requirements.txt"]
[backend.cpu]
runtime = "any"
base = "python:{python}-slim-bookworm"
[[smoke]]
name = "warmup"
level = "batch"
command = ["python", "-c", '''COMMAND''']
timeout = "60s"
"""
RESULT = """import numpy; print('BUILDMATRIX_RESULT {"norm": %r}' % float(numpy.ones(4).sum()))"""


def test_commands_and_cold_starts_are_timed_compared_and_end_by_ctrl_c(
    tmp_path: Path, buildmatrix: Buildmatrix
) -> None:
    spec = tmp_path / "buildmatrix.toml"
    spec.write_text(SPEC.replace("COMMAND", RESULT))
    (tmp_path / "requirements.txt").write_text("numpy\n")
    engine = ("--engine", "oci")
    run = buildmatrix(tmp_path, "build", *engine, "--no-vulnerabilities")
    assert run.code == 0, run.err
    accept = ("--repeat", "3", "--accept", "base.json", "--format", "json")
    run = buildmatrix(tmp_path, "preflight", TARGET, *engine, *accept)
    assert run.code == 0, run.out + run.err
    (target,) = json.loads(run.out)["targets"]
    rungs = {rung["rung"]: rung for rung in target["rungs"]}
    assert rungs["collective"]["state"] == "not-run"
    cold, warm = rungs["batch"]["checks"]
    assert [check["state"] for check in (cold, warm)] == ["passed", "passed"], (cold, warm)
    assert cold["values"]["result"] == {"norm": 4.0}
    (start,) = rungs["cold-start"]["checks"]
    assert (start["subject"], start["state"], start["values"]["n"]) == ("numpy", "passed", 3)
    assert start["values"]["container_s"] > 0 and start["values"]["p50_s"] > 0

    # Another result than that of the reference fails.
    spec.write_text(SPEC.replace("COMMAND", RESULT.replace("ones(4)", "ones(5)")))
    compare = ("--level", "batch", "--reference", "base.json", "--format", "json")
    run = buildmatrix(tmp_path, "preflight", TARGET, *engine, *compare)
    assert run.code == 1
    assert "norm is 5, not 4" in run.out

    spec.write_text(SPEC.replace("COMMAND", "import time; time.sleep(1000)"))
    line = [sys.executable, "-m", "buildmatrix", "preflight", TARGET, *engine, "--level", "batch"]
    with subprocess.Popen(
        line, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stderr is not None
        assert any("rung batch" in text for text in process.stderr)
        time.sleep(1)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.stderr.read()
        assert process.wait(30) == 130
        assert time.monotonic() - began < 3
