"""The rung `cold-start`, with a real interpreter and a torch that compiles what it is asked."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from probing import install, runner

from buildmatrix.catalogue.load import load
from buildmatrix.engines.model import RunResult
from buildmatrix.preflight import timed_rungs
from buildmatrix.preflight.timed_rungs import run_cold_start
from buildmatrix.reports.preflight import Check

TORCH = """
import numpy, os, pathlib
__version__ = "2.13.0"
float32 = "float32"
class version: cuda = None; hip = None
class backends: pass
class Tensor(numpy.ndarray):
    device = "cpu"
    def to(self, device, type): return self.astype(type)
def arange(count): return numpy.arange(count).view(Tensor)
def mm(left, right):
    cache = pathlib.Path.home() / ".nv/ComputeCache/7/a"
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "kernel").write_bytes(b"x" * 2000)
    (pathlib.Path.home() / "notes").write_text("no kernel")
    return left @ right
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """numpy alone, as it is installed here."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    installed = Path(np.__file__).parent
    for path in (installed, installed.with_name("numpy.libs")):
        if path.exists():
            (folder / path.name).symlink_to(path)
    return folder


def started(site: Path, home: Path, repeat: int = 3, late: Sequence[str] = ()) -> Check:
    run = runner(site, HOME=str(home))
    (check,) = run_cold_start(run, repeat, "cpu", load(), late)
    return check


def seconds(check: Check, name: str) -> float:
    value = check.values[name]
    assert isinstance(value, float)
    return value


def test_a_start_is_divided_into_container_import_and_first_call(
    site: Path, tmp_path: Path
) -> None:
    check = started(site, tmp_path)
    assert (check.subject, check.state, check.values["n"]) == ("numpy", "passed", 3)
    parts = [seconds(check, name) for name in ("container_s", "import_s", "first_call_s")]
    assert all(part > 0 for part in parts)
    samples = check.values["samples_s"]
    assert isinstance(samples, list) and len(samples) == 3
    assert seconds(check, "p50_s") in samples
    assert "p95_s" not in check.values and "kernel_caches" not in check.values


def test_kernels_that_the_first_call_compiled_are_named(site: Path, tmp_path: Path) -> None:
    install(site, "torch", TORCH)
    check = started(site, tmp_path, 1, ["torch has no binary code for sm_120"])
    assert check.subject == "torch"  # numpy is nobody's answer beside it
    assert check.values["kernel_caches"] == {".nv/ComputeCache": 2000.0}
    assert "compiled kernels (2.0 kB in .nv/ComputeCache)" in check.message
    assert check.message.endswith("torch has no binary code for sm_120")


def test_a_framework_that_computes_elsewhere_has_failed(site: Path, tmp_path: Path) -> None:
    install(site, "torch", TORCH.replace('device = "cpu"', 'device = "meta"'))
    check = started(site, tmp_path)
    assert (check.state, check.message) == ("failed", "was computed on meta, and not on cpu")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise OSError('no driver')", "OSError: no driver"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "exit code -9 and no answer"),
        ("import os; print('garbage' * 1000); os._exit(0)", "exit code 0 and no answer"),
    ],
)
def test_a_start_without_an_answer_fails_with_its_reason(
    site: Path, tmp_path: Path, source: str, message: str
) -> None:
    install(site, "torch", source)
    check = started(site, tmp_path)
    assert check.state == "failed" and message in check.message


def test_a_framework_without_a_device_of_the_backend_is_not_run(site: Path, tmp_path: Path) -> None:
    install(site, "torch", TORCH)
    checks = run_cold_start(runner(site, HOME=str(tmp_path)), 1, "cuda", load())
    assert [(check.subject, check.state) for check in checks] == [("torch", "not-run")]


def test_starts_within_one_container_are_new_processes_whose_container_is_not_timed(
    site: Path, tmp_path: Path
) -> None:
    install(site, "torch", TORCH)
    (check,) = run_cold_start(runner(site, HOME=str(tmp_path)), 3, "cpu", load(), is_within=True)
    assert (check.subject, check.state) == ("torch in a running container", "passed"), check
    assert check.values["n"] == 3 and seconds(check, "p50_s") > 0
    assert "container_s" not in check.values and "container " not in check.message.split(";")[1]
    # Each had an empty home folder, in which it compiled again; none was left.
    assert check.values["kernel_caches"] == {".nv/ComputeCache": 2000.0}
    assert not any(tmp_path.glob("home/*"))


def test_a_start_that_fails_within_a_container_costs_no_other_framework(
    site: Path, tmp_path: Path
) -> None:
    install(site, "torch", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    install(site, "jax", "raise ImportError('no jaxlib')")
    jax, torch = sorted(
        run_cold_start(runner(site, HOME=str(tmp_path)), 2, "cpu", load(), is_within=True),
        key=lambda check: check.subject,
    )
    assert (torch.state, torch.message) == ("failed", "start 1: died by SIGKILL")
    assert jax.state == "failed" and "no jaxlib" in jax.message
    ended = RunResult(137, "", timed_out=True)
    (lost,) = run_cold_start(lambda *_: ended, 2, "cpu", load(), is_within=True)
    assert lost.state == "undecided"


def test_a_container_that_hangs_is_undecided_before_and_failed_after_it_began(
    monkeypatch: pytest.MonkeyPatch, site: Path
) -> None:
    monkeypatch.setattr(timed_rungs, "START_EACH_S", 7)
    hangs = RunResult(137, "", timed_out=True)
    (check,) = run_cold_start(lambda *_: hangs, 1, "cpu", load())
    assert (check.state, check.message) == ("undecided", "the probe did not end within 7 s")
    first = runner(site)

    def run(command: Sequence[str], timeout_s: float) -> RunResult:
        return hangs if "start" in json.loads(command[-1]) else first(command, timeout_s)

    (check,) = run_cold_start(run, 1, "cpu", load())
    assert (check.state, check.message) == ("failed", "start 1: no answer within 7 s")


def test_a_clock_of_another_machine_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, site: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(timed_rungs, "_read_boot_id", lambda: "another")
    began = time.monotonic()
    check = started(site, tmp_path, 1)
    samples = check.values["samples_s"]
    assert isinstance(samples, list) and isinstance(samples[0], float)
    assert 0 < samples[0] < time.monotonic() - began
