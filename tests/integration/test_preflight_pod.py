"""What a manifest runs, in a container that is confined as the manifest says; then its log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from buildmatrix.matrix.load import load_spec
from buildmatrix.preflight import protocol
from buildmatrix.preflight.cluster import (
    collect,
    find_subject,
    make_reference_subject,
    write_manifests,
)
from buildmatrix.reports.preflight import RungOutcome

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("engine")]

IMAGE = f"{os.environ.get('BUILDMATRIX_MIRROR', '')}python:3.11-slim-bookworm"
DIGESTED = f"registry.example.com/inferno@sha256:{'7' * 64}"
SPEC = """
schema = 1
[project]
name = "inferno"
version = "1.0"
image = "registry.example.com/{project}"
[defaults]
python = ["3.11"]
requirements = ["requirements.in"]
[backend.cpu]
runtime = { any = {} }
base = "python:{python}-slim-bookworm"
[node-class.plain]
backend = "cpu"
cpu = "x86-64-v2"
"""


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[list[str]]:
    """The command line of a container that is what the Job describes."""
    (tmp_path / "requirements.in").write_text("")
    (tmp_path / "buildmatrix.toml").write_text(SPEC)
    spec = load_spec(tmp_path / "buildmatrix.toml")
    (target,) = spec.targets
    subject = make_reference_subject(DIGESTED, "cpu", spec, cast(Any, None), target)
    (file,) = write_manifests([subject], "device", None, 1, tmp_path / "jobs", date(2026, 11, 23))
    config, job = yaml.safe_load_all(file.read_text())
    folder = tmp_path / "plan"
    folder.mkdir()
    for name, content in config["data"].items():
        (folder / name).write_text(content)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    program, *arguments = container["command"]
    name = f"buildmatrix-pod-{os.getpid()}"
    plain = [f"--env={item['name']}={item.get('value', 'n1')}" for item in container["env"]]
    yield [
        "docker", "run", "--rm", "--name", name, "--network=none", "--read-only",
        "--cap-drop=ALL", "--security-opt=no-new-privileges", "--memory=8g",
        f"--user={pod['securityContext']['runAsUser']}", "--tmpfs=/tmp:mode=1777,exec", *plain,
        f"--volume={folder}:/buildmatrix:ro", f"--entrypoint={program}", IMAGE, *arguments,
    ]  # fmt: skip
    subprocess.run(["docker", "rm", "--force", name], capture_output=True, check=False)


def outcomes_of(log: str, folder: Path) -> dict[str, RungOutcome]:
    (folder / "log").write_text(log)
    spec = load_spec(folder / "buildmatrix.toml")
    found = protocol.read_logs([str(folder / "log")])
    result = collect(found, partial(find_subject, spec, cast(Any, None)), None, date(2026, 11, 23))
    (target,) = result.targets
    return {outcome.rung: outcome for outcome in target.rungs}


def test_a_pod_runs_the_rungs_as_a_container_here_does(pod: list[str], tmp_path: Path) -> None:
    ended = subprocess.run(pod, stdout=subprocess.PIPE, text=True, timeout=600, check=True)
    device = outcomes_of(ended.stdout, tmp_path)["device"]
    # No framework is in the image; of the processor the kernel tells.
    assert device.where == "n1"
    assert {check.subject: check.state for check in device.checks}["cpu"] == "passed"


def test_a_pod_that_is_told_to_end_says_so_and_ends(pod: list[str], tmp_path: Path) -> None:
    # The first of its commands never ends.
    plan = json.loads((tmp_path / "plan/plan.json").read_text())
    plan["steps"][0] |= {"command": ["sleep", "infinity"], "seconds": 3600}
    (tmp_path / "plan/plan.json").write_text(json.dumps(plan))
    name = pod[pod.index("--name") + 1]
    with subprocess.Popen(pod, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert json.loads(first)["buildmatrix"] == "begin"
        # What has not ended by then is killed, and ends with another code.
        subprocess.run(["docker", "stop", "--time", "300", name], check=True, capture_output=True)
        rest = process.stdout.read()
    assert process.returncode == 128 + signal.SIGTERM
    stopped = outcomes_of(first + rest, tmp_path)[plan["steps"][0]["rung"]]
    assert stopped.state == "undecided" and "SIGTERM" in stopped.why
