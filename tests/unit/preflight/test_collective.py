"""The rung `collective`, with a real interpreter and a torch whose ranks do as they are told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from probing import install, runner

from buildmatrix.catalogue.load import load
from buildmatrix.preflight.rungs import COLLECTIVE_EACH_S, run_collective
from buildmatrix.reports.preflight import Check

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
#: Where rank 0 waits for a rank that hangs or has ended, time is over once it has done so.
DISTRIBUTED = """
import os, pathlib, signal, time
BREAKS, rank = os.environ.get("BREAKS", ""), None
FOLDER = pathlib.Path(os.environ["FOLDER"])
class Backend: default_device_backend_map = {"cpu": "gloo"}
def is_available(): return BREAKS != "unavailable"
def init_process_group(backend, init_method, rank, world_size, timeout):
    globals()["rank"] = rank
    if rank == 0: return
    if BREAKS in ("dies", "raises"): (FOLDER / f"process {os.getpid()}").touch()
    if BREAKS == "hangs": (FOLDER / "hangs").touch(); time.sleep(1000)
    if BREAKS == "dies": os.kill(os.getpid(), signal.SIGSEGV)
    if BREAKS == "raises": raise RuntimeError("no interface")
    if BREAKS == "floods": print("x" * 1000, flush=True); print("y" * 10_000_000)
def has_stopped():
    ended = (path.name.split()[1] for path in FOLDER.glob("process *"))
    return (FOLDER / "hangs").exists() or any(not os.path.exists(f"/proc/{pid}") for pid in ended)
def all_reduce(data):
    if BREAKS in ("hangs", "dies", "raises"):
        while not has_stopped(): time.sleep(0.01)
        (FOLDER / "end").touch()
        time.sleep(1000)
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


def reduced(site: Path, breaks: str = "") -> tuple[Check, str]:
    folder = site.parent
    run = runner(site, folder / "end", BREAKS=breaks, FOLDER=str(folder))
    (check,), why = run_collective(run, "cpu", load())
    return check, why


@pytest.mark.parametrize("breaks", ["", "floods"])
def test_two_processes_of_a_cpu_add_up(site: Path, breaks: str) -> None:
    check, why = reduced(site, breaks)
    assert (check.subject, check.state, why) == ("torch cpu gloo", "passed", "")
    assert check.values["ranks"] == 2
    rate = check.values["gbps"]
    assert isinstance(rate, float) and rate > 0


def test_a_rank_that_hangs_is_named_and_not_those_that_wait_for_it(site: Path) -> None:
    check, _ = reduced(site, "hangs")
    assert check.state == "failed"
    why = f"took more than {COLLECTIVE_EACH_S} s"
    assert check.message == f"rank 1 of 2 stopped after it had imported: {why}"


@pytest.mark.parametrize(
    ("breaks", "why"),
    [
        ("dies", "died by SIGSEGV"),
        ("raises", "ended with exit code 1: RuntimeError: no interface"),
    ],
)
def test_a_rank_that_ends_is_named_with_its_reason(site: Path, breaks: str, why: str) -> None:
    check, _ = reduced(site, breaks)
    assert check.state == "failed"
    assert check.message == f"rank 1 of 2 stopped after it had imported: {why}"


def test_a_sum_that_is_wrong_fails_on_the_rank_that_has_it(site: Path) -> None:
    check, _ = reduced(site, "wrong")
    assert (check.state, check.message) == ("failed", "the sum is wrong on rank 1 of 2")


def test_a_build_without_collectives_is_not_run(site: Path) -> None:
    check, why = reduced(site, "unavailable")
    assert check.state == "not-run"
    assert why == "this torch has no collectives for cpu devices"


def test_without_a_framework_nothing_is_run_and_that_is_said(tmp_path: Path) -> None:
    checks, why = run_collective(runner(tmp_path), "cpu", load())
    assert (checks, "torch, jax" in why) == ((), True)
