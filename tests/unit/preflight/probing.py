"""Runs probes as an image would, with packages of the test's own and no others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from buildmatrix.engines.model import Run, RunResult

#: What a torch of some build answers; the rest is what a test adds.
TORCH = """
__version__ = "2.13.0"
class version: cuda = {cuda!r}; hip = None
class Tensor:
    def add_(self, other): return self
    def sum(self): return self
    def item(self): return 8.0
def zeros(*shape, device):
    {zeros}
    return Tensor()
class cuda:
    @staticmethod
    def device_count(): return {count}
    @staticmethod
    def get_device_properties(number):
        class properties: name = "ACME 100"; total_memory = 80 << 30
        return properties
class backends: pass
"""
#: Comes before a program: each deadline that its clock has passes once a file is there.
_CLOCK = """
import os, time
_now = time.monotonic
time.monotonic = lambda: _now() + 1e6 * os.path.exists({end!r})
"""


def with_clock(program: str, end: Path) -> str:
    """The program with a clock that jumps ahead by days when somebody makes the file `end`."""
    return _CLOCK.format(end=str(end)) + program


def torch(cuda: str | None = None, count: int = 0, zeros: str = "pass") -> str:
    return TORCH.format(cuda=cuda, count=count, zeros=zeros)


def install(site: Path, name: str, source: str) -> None:
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").write_text(source)


def runner(site: Path, end: Path | None = None, **variables: str) -> Run:
    """Runs a probe, or another command of Python's; see `with_clock` for `end`."""

    def run(command: Sequence[str], timeout_s: float) -> RunResult:
        _, *arguments = command
        if end is not None:
            arguments[1] = with_clock(arguments[1], end)
        done = subprocess.run(
            [sys.executable, "-S", *arguments],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(site), **variables},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        return RunResult(done.returncode, done.stdout + done.stderr, timed_out=False)

    return run
