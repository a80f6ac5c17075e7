"""What `buildmatrix audit` costs: locks for Python 3.12 on Linux.

    pip install auditwheel
    python bench/audit.py               # beside `pip download` and `auditwheel show`
    python bench/audit.py --no-peer     # without downloading 3 GB
    python bench/audit.py web           # one of the sets

`stack`  torch and xgboost: 32 wheels, 3.1 GB.
`web`    a web application: 117 wheels, most of them small.

`cold`   nothing known of any wheel, one backend; the resolution is done, as a lock is there.
`warm`   the same again.
`four`   cold, for four backends at once.

Seconds, CPU seconds and the peak are those of the whole process and its children. Machines and
networks are noisy: the ratios, the bytes and the requests are the result.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

REQUIREMENTS = {
    "stack": "torch xgboost",
    "web": "django djangorestframework fastapi[standard] celery[redis] sqlalchemy psycopg[binary]"
    " boto3 sentry-sdk pandas pillow lxml cryptography opentelemetry-sdk gunicorn"
    " opentelemetry-exporter-otlp uvicorn[standard] aiohttp grpcio pyarrow scikit-learn matplotlib",
}
PYTHON = "3.12"
PLATFORM = "x86_64-manylinux_2_35"
BACKENDS = ("cuda", "rocm", "oneapi", "cpu")

MEASURED = """
import json, resource, sys
from pathlib import Path
from buildmatrix.cli import main
from buildmatrix.net.requests import Traffic
wholes, begin = [], Traffic.__init__
def remember(traffic, whole=None):
    begin(traffic, whole)
    wholes.extend([traffic] if whole is None else [])
Traffic.__init__ = remember
try:
    main(sys.argv[2:])
finally:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cost = {
        "cpu": sum(one.ru_utime + one.ru_stime for one in used),
        "peak": max(one.ru_maxrss for one in used) * 1024,
        "requests": sum(one.requests for one in wholes),
    }
    Path(sys.argv[1]).write_text(json.dumps(cost))
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One call of the tool."""

    seconds: float
    #: Seconds of the process and its children.
    cpu: float
    #: Of the largest of them, in bytes.
    peak: int
    #: Requests over the network, redirects and repetitions included.
    requests: int
    #: Bytes of all wheels, and those that came over the network.
    total: int
    read: int
    wheels: int
    #: Distributions whose verdict could change if all of their bytes were read.
    open: int


def audit(lock: Path, cache: Path, *backends: str, deep: bool = False) -> Run:
    """Audit a lock with what `cache` knows."""
    report, cost = lock.with_name("report.json"), lock.with_name("cost.json")
    command = [sys.executable, "-c", MEASURED, str(cost), "--no-progress", "audit", f"lock:{lock}"]
    command += [f"--backend={name}" for name in backends]
    command += [f"--python={PYTHON}", "--no-vulnerabilities", "--fail-on=never"]
    command += [f"--format=json={report}", *(["--deep"] if deep else [])]
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    done = subprocess.run(
        command,
        env={**env, "BUILDMATRIX_CACHE": str(cache)},
        cwd=lock.parent,
        check=False,
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - started
    if done.returncode not in (0, 3):
        sys.exit(f"exit {done.returncode}\n{done.stderr[-4000:]}")
    answer = json.loads(report.read_text())
    stats = answer["stats"]
    wheels = sum("wheels" in one for one in tomllib.loads(lock.read_text())["packages"])
    return Run(
        seconds=seconds,
        total=stats["bytes_total"],
        read=stats["bytes_read"],
        wheels=wheels,
        open=sum(not one["certain"] for one in answer["distributions"]),
        **json.loads(cost.read_text()),
    )


def locked(folder: Path, requirements: str) -> Path:
    """The lock, and its pins beside it."""
    (folder / "requirements.in").write_text(requirements.replace(" ", "\n"))
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    command = [uv, "pip", "compile", "-q", "requirements.in", f"--python-version={PYTHON}"]
    command += [f"--python-platform={PLATFORM}", "--only-binary=:all:"]
    subprocess.run([*command, "--format=pylock.toml", "-o", "pylock.toml"], cwd=folder, check=True)
    subprocess.run([*command, "-o", "pins.txt"], cwd=folder, check=True)
    return folder / "pylock.toml"


def peer(folder: Path) -> float:
    """Seconds to download all wheels, and to let auditwheel look at each."""
    wheels = folder / "wheels"
    started = time.perf_counter()
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir"),
            *("--disable-pip-version-check", "--only-binary=:all:", f"--python-version={PYTHON}"),
            *(f"--platform=manylinux_2_{minor}_x86_64" for minor in range(35, 16, -1)),
            *(f"--platform={name}_x86_64" for name in ("manylinux2014", "manylinux2010")),
            *("-d", str(wheels), "-r", "pins.txt"),
        ],
        cwd=folder,
        check=True,
    )
    for wheel in sorted(wheels.iterdir()):
        # It fails for wheels without binaries, which is an answer, too.
        subprocess.run(
            [sys.executable, "-m", "auditwheel", "show", str(wheel)],
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    return time.perf_counter() - started


def line(name: str, run: Run, note: str = "") -> None:
    """One result."""
    part = f"{run.read / 1e6:.1f} MB of {run.total / 1e6:.0f} MB ({run.read / run.total:.2%})"
    cost = f"{run.seconds:.2f} s, {run.cpu:.2f} s of CPU, peak {run.peak / 1e6:.0f} MB"
    wheels = f"{run.wheels} wheels, {run.open} open"
    print(f"{name}: {cost}, {wheels}, {run.requests} requests, {part}{note}", flush=True)


def measure(requirements: str, deep: bool, has_peer: bool) -> None:
    """Lines of one set."""
    with tempfile.TemporaryDirectory(prefix="bench-audit-") as name:
        folder = Path(name)
        lock = locked(folder, requirements)
        one = audit(lock, folder / "one", "cpu")
        line("cold, cpu", one)
        warm = audit(lock, folder / "one", "cpu")
        line("warm, cpu", warm, f", {one.seconds / warm.seconds:.1f}x faster than cold")
        four = audit(lock, folder / "four", *BACKENDS)
        line("cold, four backends", four, f", {four.seconds / one.seconds:.2f}x one backend")
        again = audit(lock, folder / "four", *BACKENDS)
        line("warm, four backends", again)
        if deep:
            line("cold, cpu, deep", audit(lock, folder / "deep", "cpu", deep=True))
        if has_peer:
            other = peer(folder)
            print(
                f"pip download, auditwheel show: {other:.1f} s,"
                f" {other / one.seconds:.0f}x cold, {other / warm.seconds:.0f}x warm"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", metavar="SET", help=" ".join(REQUIREMENTS))
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--deep", action="store_true", help="also reads members whole: 1 GB or so")
    arguments = parser.parse_args()
    for name in arguments.sets or REQUIREMENTS:
        print(f"{name}, load {os.getloadavg()[0]:.1f}")
        measure(REQUIREMENTS[name], arguments.deep, not arguments.no_peer)


if __name__ == "__main__":
    main()
