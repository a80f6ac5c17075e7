"""The rungs that compute, in containers of a real daemon, with frameworks and PoCL's device.

PoCL is an OpenCL driver whose device is the processor: an accelerator as far as the ladder goes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from buildmatrix.catalogue.load import load
from buildmatrix.engines.docker_engine import DockerEngine
from buildmatrix.engines.model import Run, RunResult
from buildmatrix.preflight import rungs
from buildmatrix.preflight.rungs import run_compute, run_devices, run_memory
from buildmatrix.reports.preflight import Check, state_of

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.usefixtures("engine")]

BASE = f"{os.environ.get('BUILDMATRIX_MIRROR', '')}python:3.11-slim-bookworm"
DOCKERFILE = f"""\
FROM {BASE}
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends pocl-opencl-icd
COPY site /site
ENV PYTHONPATH=/site
USER 1000
"""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured here is whether it is measured, and not how fast it is."""
    monkeypatch.setattr(rungs, "TIMED_S", 0.1)
    monkeypatch.setattr(rungs, "MOST", 128 << 20)


def wheels(folder: Path, *names: str) -> Path:
    """A folder with these distributions, for Python 3.11."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert uv is not None, "uv is among the development dependencies"
    options = ("--python-version", "3.11", "--only-binary", ":all:", "--target", folder / "site")
    subprocess.run([uv, "pip", "install", "-q", *options, *names], check=True)
    return folder / "site"


@pytest.fixture(scope="module")
def run(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Commands in an image that has an OpenCL driver, and nothing else to compute with."""
    folder = tmp_path_factory.mktemp("image")
    wheels(folder, "numpy", "pyopencl")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    tag = f"buildmatrix-test/preflight:{uuid.uuid4().hex[:12]}"
    network = os.environ.get("BUILDMATRIX_NETWORK") or "default"
    line = ["docker", "buildx", "build", "-q", "--load", "--network", network, "-t", tag, folder]
    subprocess.run(line, check=True)
    with DockerEngine().runner(tag) as start:
        yield start
    subprocess.run(["docker", "image", "rm", "--force", tag], capture_output=True, check=True)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Commands on this machine, with frameworks for the CPU."""
    site = wheels(tmp_path_factory.mktemp("here"), "numpy", "onnxruntime", "openvino")

    def start(command: Sequence[str], timeout_s: float) -> RunResult:
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site)}
        line = [sys.executable, "-S", *command[1:]]
        done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=timeout_s)
        return RunResult(done.returncode, done.stdout + done.stderr, timed_out=False)

    return start


def by_subject(checks: tuple[Check, ...]) -> Mapping[str, Check]:
    return {check.subject: check for check in checks}


def test_devices_and_products_of_opencl_are_real(run: Run) -> None:
    devices, why = run_devices(run, "opencl", load(), None)
    assert (state_of(devices), why) == ("passed", "")
    seen = by_subject(devices)
    (device,) = (name for name in seen if name.startswith("pyopencl "))
    assert seen[device].values["kind"] == "CPU The pocl project"
    loaded = seen[device].values["vendor_libraries"]
    assert isinstance(loaded, list) and any("libpocl" in str(path) for path in loaded)
    computed, why = run_compute(run, "opencl", load())
    assert (state_of(computed), why) == ("passed", "")
    product = by_subject(computed)[f"{device} float32"].values
    assert product["device"] == device.partition(" ")[2]
    for name in ("tflops", "median_seconds", "cold_seconds", "size"):
        assert float(str(product[name])) > 0
    copied = by_subject(computed)[f"{device} memory"].values
    assert float(str(copied["gbps"])) > 0


def test_frameworks_compute_on_the_cpu(here: Run) -> None:
    devices, _ = run_devices(here, "cpu", load(), None)
    seen = by_subject(devices)
    assert state_of(devices) == "passed"
    assert {"cpu", "numpy cpu", "onnxruntime CPUExecutionProvider", "openvino CPU"} <= set(seen)
    assert str(seen["cpu"].values["instruction_level"]).startswith("x86-64")
    computed = by_subject(run_compute(here, "cpu", load())[0])
    assert {check.state for check in computed.values()} <= {"passed", "not-run"}
    for name in ("numpy cpu", "onnxruntime CPUExecutionProvider", "openvino CPU"):
        assert computed[f"{name} float32"].state == "passed"
        copied = computed[f"{name} memory"].values
        assert float(str(copied["gbps"])) > 0 and int(str(copied["bytes"])) >= 16 << 20


@pytest.mark.parametrize("backend", ["cuda", "opencl"])
def test_what_runs_on_the_cpu_passes_for_no_other_backend(here: Run, backend: str) -> None:
    for checks, why in (
        run_devices(here, backend, load(), None),
        run_compute(here, backend, load()),
    ):
        assert (state_of(checks), bool(why)) == ("not-run", True)


def test_memory_of_the_container_and_of_the_device_comes_back(run: Run) -> None:
    checks, _ = run_memory(run, "opencl", load())
    assert state_of(checks) == "passed"
    assert {check.subject.partition(" ")[0] for check in checks} == {"container", "pyopencl"}
    # The container's bound, and not the memory of its host.
    assert by_subject(checks)["container"].values["total_bytes"] == 8 << 30
