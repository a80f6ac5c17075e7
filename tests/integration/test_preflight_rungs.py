"""The rungs `batch` and `cold-start` in containers that really run, and an end by Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.usefixtures("engine")]

#: Seconds until a test that waits for ever fails; the smoke command may take longer.
PATIENCE = 300
TARGET, ENGINE = "cpu-py311-default", ("--engine", "oci")
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
timeout = "1h"
"""
#: The command line, where the rungs below `batch` and `memory` measure less and less often: whether
#: they measure is not what is tested here.
SHORT = """
from buildmatrix.cli import main
from buildmatrix.preflight import rungs
rungs.TIMED_S, rungs.MOST = 0.1, 128 << 20
main()
"""
RESULT = """import numpy; print('BUILDMATRIX_RESULT {"norm": %r}' % float(numpy.ones(4).sum()))"""


@pytest.fixture(scope="module")
def project(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a specification whose one image is built."""
    folder = tmp_path_factory.mktemp("rungs")
    (folder / "requirements.txt").write_text("numpy\n")
    smoke(folder, RESULT)
    build = [sys.executable, "-m", "buildmatrix", "build", *ENGINE, "--no-vulnerabilities"]
    subprocess.run(build, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder


def smoke(project: Path, program: str) -> None:
    """Make this the program of the smoke command, which is in no image."""
    (project / "buildmatrix.toml").write_text(SPEC.replace("COMMAND", program))


def preflight(*arguments: str) -> list[str]:
    return [sys.executable, "-c", SHORT, "preflight", TARGET, *ENGINE, *arguments]


def test_commands_and_cold_starts_are_timed_and_compared(project: Path) -> None:
    def climb(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = preflight(*arguments, "--format", "json")
        return subprocess.run(line, cwd=project, capture_output=True, text=True)

    smoke(project, RESULT)
    run = climb("--repeat", "3", "--accept", "base.json")
    assert run.returncode == 0, run.stdout + run.stderr
    (target,) = json.loads(run.stdout)["targets"]
    rungs = {rung["rung"]: rung for rung in target["rungs"]}
    assert rungs["collective"]["state"] == "not-run"
    cold, warm = rungs["batch"]["checks"]
    assert [check["state"] for check in (cold, warm)] == ["passed", "passed"], (cold, warm)
    assert cold["values"]["result"] == {"norm": 4.0}
    (start,) = rungs["cold-start"]["checks"]
    assert (start["subject"], start["state"], start["values"]["n"]) == ("numpy", "passed", 3)
    assert start["values"]["container_s"] > 0 and start["values"]["p50_s"] > 0

    # Another result than that of the reference fails.
    smoke(project, RESULT.replace("ones(4)", "ones(5)"))
    run = climb("--level", "batch", "--reference", "base.json")
    assert run.returncode == 1
    assert "norm is 5, not 4" in run.stdout


def processes(text: str) -> list[int]:
    """Those of Python on this machine whose command line has this text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # It has ended.
            program, *words = path.read_text(errors="replace").split("\0")
            if "python" in program and any(text in word for word in words):
                found.append(int(path.parent.name))
    return found


def until(condition: Callable[[], bool]) -> bool:
    """Wait until it is true; whether it ever was."""
    end = time.monotonic() + PATIENCE
    while not (is_true := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return is_true


def test_ctrl_c_ends_a_command_that_never_ends(project: Path) -> None:
    hangs = f"import signal; signal.signal(signal.SIGTERM, print); signal.pause()  # {os.getpid()}"
    smoke(project, f"while True: {hangs}")
    with subprocess.Popen(
        preflight("--level", "batch"),
        cwd=project, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert any("rung batch" in text for text in process.stderr)
        assert until(lambda: bool(processes(hangs)))
        process.send_signal(signal.SIGINT)
        process.stderr.read()
        assert process.wait(PATIENCE) == 130
    assert until(lambda: not processes(hangs))
