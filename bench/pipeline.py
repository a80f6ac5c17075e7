"""What `buildmatrix build` costs over plain `docker buildx bake` of the files it generated.

    eval "$(python3 -m scripts.stack env)"      # or any Docker engine
    python bench/pipeline.py help noop build

`help`   `buildmatrix --help` and `targets` beside a bare interpreter.
`noop`   a second run of eight targets with nothing changed, beside plain bake, all layers cached.
`build`  the example's cpu target without layer cache, beside plain bake of the same files; both
         keep the builder's wheel cache, so that the network is not what is measured.

Every line is a median of `--runs`, with the ratio to the peer of the same run. Machines are noisy:
the ratio is the result, the seconds are context. Peak memory is the tool's own process.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STATE = Path(".buildmatrix")

#: Runs the command line in a fresh interpreter and writes that interpreter's own peak (KiB).
MEASURED = """
import resource, sys
from pathlib import Path
from buildmatrix.cli import main
try:
    main(sys.argv[2:])
finally:
    Path(sys.argv[1]).write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
"""


def timed(runs: int, work: Callable[[], object], before: Callable[[], object] = int) -> float:
    """Median seconds of `work`; `before` runs outside the clock."""
    seconds = []
    for _ in range(runs):
        before()
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def quiet(command: Sequence[str], cwd: Path) -> None:
    """Run a command that must succeed; its output is shown only when it does not."""
    # An installed package has its bytecode; a checkout gets it here, too.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        command, env=env, check=False, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout.decode()[-4000:]}")


def buildmatrix(folder: Path, *arguments: str) -> int:
    """Run the tool; its peak memory in bytes."""
    with tempfile.NamedTemporaryFile() as peak:
        quiet([sys.executable, "-c", MEASURED, peak.name, *arguments], folder)
        return int(Path(peak.name).read_text()) * 1024


def bake(folder: Path, *targets: str) -> None:
    """Plain bake of the generated files, with what this machine's builds need."""
    command = ["docker", "buildx", "bake", "-f", str(STATE / "generated/docker-bake.json")]
    command += [
        "--progress=quiet",
        "--load",
        "--set",
        "*.args.MIRROR=" + os.environ.get("BUILDMATRIX_MIRROR", ""),
    ]
    if network := os.environ.get("BUILDMATRIX_NETWORK"):
        command += ["--set", f"*.network={network}", f"--allow=network.{network}"]
    if ca := os.environ.get("BUILDMATRIX_CA"):
        command += ["--set", f"*.secrets=id=ca,src={ca}", f"--allow=fs.read={ca}"]
    quiet([*command, *targets], folder)


def line(name: str, own: float, peer_name: str, peer: float, memory: int | None = None) -> None:
    """One result."""
    peak = f", peak {memory / 1e6:.0f} MB" if memory else ""
    ratio = f"ratio {own / peer:.2f}, {own - peer:+.2f} s"
    print(f"{name}: {own:.2f} s, {peer_name} {peer:.2f} s, {ratio}{peak}")


def measure_help(runs: int) -> None:
    """Start-up."""
    own = timed(runs, lambda: quiet([sys.executable, "-m", "buildmatrix", "--help"], ROOT))
    bare = timed(runs, lambda: quiet([sys.executable, "-c", "pass"], ROOT))
    targets = timed(runs, lambda: quiet([sys.executable, "-m", "buildmatrix", "targets"], ROOT))
    line("--help", own, "python -c pass", bare)
    line("targets", targets, "python -c pass", bare)


EIGHT = """
schema = 1
[project]
name = "noop"
version = "1"
image = "buildmatrix-bench/noop"
[defaults]
python = ["3.11"]
requirements = ["base.in"]
variant = ["a", "b", "c", "d", "e", "f", "g", "h"]
[backend.cpu]
runtime = "any"
base = "python:{python}-slim-bookworm"
"""


def measure_noop(runs: int) -> None:
    """Nothing to do, eight times."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "buildmatrix.toml").write_text(EIGHT)
        (folder / "base.in").write_text("packaging\n")
        buildmatrix(folder, "-q", "build")
        peaks: list[int] = []
        own = timed(runs, lambda: peaks.append(buildmatrix(folder, "-q", "build")))
        peer = timed(runs, lambda: bake(folder, "default"))
        line("no-op, 8 targets", own, "bake, all cached", peer, max(peaks))


def measure_build(runs: int) -> None:
    """One real target, every layer made anew."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(ROOT / "buildmatrix.toml", folder)
        shutil.copytree(ROOT / "images", folder / "images")
        target = "cpu-py311-server"
        buildmatrix(folder, "-q", "build", "--no-smoke", "--select", target)

        def forget() -> None:
            quiet(["docker", "buildx", "prune", "-af", "--filter", "type=regular"], folder)
            shutil.rmtree(folder / STATE / "state")

        peaks: list[int] = []
        own = timed(
            runs,
            lambda: peaks.append(
                buildmatrix(folder, "-q", "build", "--no-smoke", "--select", target)
            ),
            forget,
        )

        def forget_layers() -> None:
            quiet(["docker", "buildx", "prune", "-af", "--filter", "type=regular"], folder)

        peer = timed(runs, lambda: bake(folder, target), forget_layers)
        line(f"build and scan {target}", own, "plain bake", peer, max(peaks))


MEASURES = {"help": measure_help, "noop": measure_noop, "build": measure_build}


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="+", choices=MEASURES)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    for name in options.what:
        MEASURES[name](options.runs)


if __name__ == "__main__":
    main()
