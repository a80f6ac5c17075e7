"""Preflights for tests of their formats: one in which everything occurs, and a hostile one."""

from __future__ import annotations

from buildmatrix.reports.preflight import (
    Check,
    Preflight,
    PreflightTarget,
    RungOutcome,
    Value,
)
from buildmatrix.reports.run import ReportTool

TOOL = ReportTool(version="1.0", catalogue="2026-11-20")
#: Starts of a container, in seconds: most are alike, and some are late.
STARTS = [round(1.2 + 0.011 * (number * 7 % 23) + (0.9 if number % 25 == 0 else 0), 4)
          for number in range(100)]  # fmt: skip


def percentiles(*seconds: float) -> dict[str, Value]:
    return dict(zip(("p50_s", "p95_s", "p99_s"), seconds, strict=False))


def preflight() -> Preflight:
    """An image on two nodes of a class, one that no one could run, and one that is slow."""
    starts: dict[str, Value] = {"samples_s": list(STARTS), **percentiles(1.32, 1.44, 2.2)}
    before = {"p50_s": 1.0, "p95_s": 1.1, "p99_s": 1.6}
    ratios = {"p50_s": 1.32, "p95_s": 1.309, "p99_s": 1.375}
    slow = "p50 1.32 s is 1.32 times the 1.00 s of the baseline (tolerance 1.2)"
    cpu = PreflightTarget(
        "cpu-py312-server",
        "cpu",
        (
            RungOutcome("static", "passed", (Check("scan", "passed", "0 findings"),), seconds=0.1),
            RungOutcome("import", "passed", (Check("numpy", "passed", "", 0.31),), seconds=2.5),
            RungOutcome(
                "batch",
                "passed",
                (
                    Check("warmup cold", "passed", "p50 0.41 s of 3 (0.39 to 0.52 s)", 1.3,
                          {"samples_s": [0.39, 0.41, 0.52], "p50_s": 0.41}),
                ),
                seconds=3.0,
            ),
            RungOutcome(
                "cold-start",
                "failed",
                (
                    Check("torch", "passed", "p50 1.32 s, p95 1.44 s, p99 2.20 s of 100", 140.0,
                          starts),
                    Check("torch against the baseline", "failed", slow,
                          values={"ratios": ratios, "baseline": before}),
                ),
                seconds=141.0,
            ),
        ),
        "localhost:5000/demo:1",
        "sha256:" + "1" * 64,
    )  # fmt: skip
    missing = Check("cv2", "failed", "libGL.so.1 is missing, which importing it needs", 0.2)
    rocm = PreflightTarget(
        "rocm7.2-py312-server",
        "rocm",
        (
            RungOutcome("import", "failed", (missing,), seconds=1.0),
            RungOutcome("device", "not-run", why="the rung `import` failed", run_on=("mi300",)),
        ),
    )
    devices = (Check("torch cuda:0", "passed", "H200", 3.1),)
    cuda = PreflightTarget(
        "cuda12.8-py312-server",
        "cuda",
        (
            RungOutcome("device", "passed", devices, where="gpu-00", seconds=4.0),
            RungOutcome(
                "device",
                "undecided",
                (Check("pod demo-1", "undecided", "the pod was evicted"),),
                where="gpu-01",
            ),
            RungOutcome("compute", "not-run", why="no device of cuda is visible here",
                        run_on=("h200",)),
        ),
        None,
        None,
        "h200",
    )  # fmt: skip
    return Preflight(TOOL, (cpu, rocm, cuda))


def hostile_preflight(evil: str, endless: str) -> Preflight:
    """Every text of a preflight is somebody's attack, and no number can be drawn."""
    values: dict[str, Value] = {
        "samples_s": [float("inf"), -1.0, 0.5, 0.5, 1e300],
        "p50_s": float("nan"),
        evil: endless,
    }
    checks = (
        Check(evil, "passed", endless, 0.0, values),
        Check(f"{evil} against the baseline", "failed", evil, None, {"baseline": {"p50_s": 1e-9}}),
        Check(endless, "undecided", evil),
    )
    rungs = (
        RungOutcome("batch", "failed", checks, evil, (evil,), endless, 1.0),
        RungOutcome("cold-start", "not-run", (), evil, (evil, endless), evil),
    )
    return Preflight(TOOL, (PreflightTarget(evil, evil, rungs, endless, evil, endless),))
