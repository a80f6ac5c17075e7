"""The rung `collective`, with a real interpreter and a torch whose ranks do as they are told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from probing import install, runner

from buildmatrix.catalogue.load import load
from buildmatrix.commands.preflight import collective
from buildmatrix.commands.preflight.collective import run_collective
from buildmatrix.reports.preflight.model import Check

#: A torch on top of numpy. What the ranks do wrong stands in BREAKS.
TORCH = """
import numpy
__version__ = "2.13.0"
float32 = "float32"
class version: cuda = None; hip = None
class backends: pass
class Tensor(numpy.ndarray):
    def to(self, type): return self.astype(type)
    def clone(self): return self.copy()
def arange(count, device): return numpy.arange(count).view(Tensor)
equal = numpy.array_equal
"""
DISTRIBUTED = """
import os, signal, time
BREAKS, rank = os.environ.get("BREAKS", ""), None
class Backend: default_device_backend_map = {"cpu": "gloo"}
def is_available(): return BREAKS != "unavailable"
def init_process_group(backend, init_method, rank, world_size, timeout):
    globals()["rank"] = rank
    if rank == 1 and BREAKS == "hangs": time.sleep(1000)
    if rank == 1 and BREAKS == "dies": os.kill(os.getpid(), signal.SIGSEGV)
    if rank == 1 and BREAKS == "raises": raise RuntimeError("no interface")
    if rank == 1 and BREAKS == "floods": print("x" * 1000, flush=True); print("y" * 100_000_000)
def all_reduce(data):
    if BREAKS in ("hangs", "dies", "raises"): time.sleep(1000)
    if BREAKS != "wrong" or rank == 0: data[:] = data / (rank + 1) * 3
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site-packages"
    install(folder, "torch", TORCH)
    (folder / "torch/distributed.py").write_text(DISTRIBUTED)
    installed = Path(np.__file__).parent
    for path in (installed, installed.with_name("numpy.libs")):
        if path.exists():
            (folder / path.name).symlink_to(path)
    return folder


def reduced(
    site: Path, monkeypatch: pytest.MonkeyPatch, breaks: str = "", seconds: int = 30
) -> tuple[Check, str]:
    monkeypatch.setattr(collective, "EACH_S", seconds)
    (check,), why = run_collective(runner(site, BREAKS=breaks), "cpu", load())
    return check, why


@pytest.mark.parametrize("breaks", ["", "floods"])
def test_two_processes_of_a_cpu_add_up(
    site: Path, monkeypatch: pytest.MonkeyPatch, breaks: str
) -> None:
    check, why = reduced(site, monkeypatch, breaks)
    assert (check.subject, check.state, why) == ("torch cpu gloo", "passed", "")
    assert check.values["ranks"] == 2
    rate = check.values["gbps"]
    assert isinstance(rate, float) and rate > 0


def test_a_rank_that_hangs_is_named_and_not_those_that_wait_for_it(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, _ = reduced(site, monkeypatch, "hangs", seconds=2)
    assert check.state == "failed"
    assert check.message == "rank 1 of 2 stopped after it had imported: took more than 2 s"


@pytest.mark.parametrize(
    ("breaks", "why"),
    [
        ("dies", "died by SIGSEGV"),
        ("raises", "ended with exit code 1: RuntimeError: no interface"),
    ],
)
def test_a_rank_that_ends_is_named_with_its_reason(
    site: Path, monkeypatch: pytest.MonkeyPatch, breaks: str, why: str
) -> None:
    check, _ = reduced(site, monkeypatch, breaks, seconds=2)
    assert check.state == "failed"
    assert check.message == f"rank 1 of 2 stopped after it had imported: {why}"


def test_a_sum_that_is_wrong_fails_on_the_rank_that_has_it(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, _ = reduced(site, monkeypatch, "wrong")
    assert (check.state, check.message) == ("failed", "the sum is wrong on rank 1 of 2")


def test_a_build_without_collectives_is_not_run(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, why = reduced(site, monkeypatch, "unavailable")
    assert check.state == "not-run"
    assert why == "this torch has no collectives for cpu devices"


def test_without_a_framework_nothing_is_run_and_that_is_said(tmp_path: Path) -> None:
    checks, why = run_collective(runner(tmp_path), "cpu", load())
    assert (checks, "torch, jax" in why) == ((), True)
