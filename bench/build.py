"""Building images: the engine oci beside `docker buildx bake`, of one specification, in one run.

    python bench/build.py [--targets 8]     # both parts
    python bench/build.py peers

`docker` needs a Docker engine, base images and a package index (`scripts.stack up`). Both engines
start without layers of this specification, and with wheels that were downloaded before. Says for
the first build, for one changed requirement and for nothing changed: seconds of wall clock, the
ratio, and the most memory that buildmatrix took.

`peers` needs no Docker engine: it compares a first build of one target by the engine oci, scan
included, with an installation into a folder by pip or uv, tar and gzip, in turns. The wheels are
here. The least seconds of the clock, and of processors, of `--runs` count.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SPEC = """
schema = 1
[project]
name = "bench"
version = "1"
image = "registry.example.com/bench"
[defaults]
python = ["3.11"]
variant = [{variants}]
requirements = ["base.in"]
copy = [["app", "/app"]]
env = {{ PYTHONPATH = "/app" }}
[backend.cpu]
runtime = "any"
base = "python:{{python}}-slim-bookworm"
"""
REQUIREMENTS = ("numpy==2.2.6\nonnxruntime==1.22.1\nidna==3.10\n", "idna==3.10", "idna==3.9")


def project(folder: Path, targets: int) -> None:
    """A matrix with so many targets, which differ in a label of theirs."""
    variants = ", ".join(f'"v{number}"' for number in range(targets))
    tables = "".join(f"[variant.v{n}]\nlabels = {{ number = '{n}' }}\n" for n in range(targets))
    (folder / "buildmatrix.toml").write_text(SPEC.format(variants=variants) + tables)
    (folder / "base.in").write_text(REQUIREMENTS[0])
    (folder / "app").mkdir()
    (folder / "app/main.py").write_text("print(1)\n")


BUILD = (sys.executable, "-m", "buildmatrix", "build", "-q", "--no-vulnerabilities")
BUILD += ("--no-audit", "--no-smoke", "--jobs", "2", "--engine")


def build(folder: Path, engine: str) -> tuple[float, int]:
    """Seconds and bytes of one build."""
    command = [*BUILD, engine]
    started = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"the build with {engine} failed")
    return time.monotonic() - started, usage.ru_maxrss << 10


def measure_peers(folder: Path, runs: int) -> None:
    """Print what a first build costs beside pip and uv."""
    folder.mkdir()
    project(folder, 1)
    pins = ["--no-deps", "--only-binary=:all:", "-r", "base.in", "--target", "site"]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", *pins]
    uv = [sys.executable, "-m", "uv", "pip", "install", "-q", "--no-config", *pins]
    commands: dict[str, list[str]] = {"build": [*BUILD, "oci"]}
    for name, install in {"pip": pip, "uv": uv}.items():
        script = f"{shlex.join(install)} && tar -C site -cf - . | gzip | wc -c"
        commands[f"{name}, tar, gzip"] = ["sh", "-c", script]
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, command in commands.items():
            shutil.rmtree(folder / "site", ignore_errors=True)
            if number and name == "build":
                forget(folder)
            before, started = os.times(), time.monotonic()
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            seconds, used = time.monotonic() - started, os.times()
            cpu = used.children_user + used.children_system
            cpu -= before.children_user + before.children_system
            rows[name].append((seconds, cpu))
    print(f"seconds (of processors), and of the build by these; load {os.getloadavg()[0]:.1f}")
    # The first round fetches wheels.
    best = {name: tuple(map(min, zip(*row[1:], strict=True))) for name, row in rows.items()}
    for name, (seconds, cpu) in best.items():
        ratio = f"{best['build'][0] / seconds:.2f} ({best['build'][1] / cpu:.2f})"
        print(f"{name:16} {seconds:6.2f} ({cpu:.2f})  {ratio}")


def forget(folder: Path) -> None:
    """Remove the images, layers and results of this specification, but no wheels."""
    shutil.rmtree(folder / ".buildmatrix", ignore_errors=True)
    for kind in ("images/layout", "image-layers", "layers"):
        shutil.rmtree(Path(os.environ["BUILDMATRIX_CACHE"], "buildmatrix", kind))


def measure_engines(targets: int) -> None:
    """Print what builds by both engines cost."""
    rows: dict[str, dict[str, tuple[float, int]]] = {}
    with tempfile.TemporaryDirectory(prefix="bench.") as name:
        os.environ["BUILDMATRIX_CACHE"] = f"{name}/cache"
        for engine in ("oci", "docker"):
            folder = Path(name, engine)
            folder.mkdir()
            project(folder, targets)
            (folder / "base.in").write_text(f"{REQUIREMENTS[0]}h11==0.16.0\n")
            build(folder, engine)  # fetches wheels, base and tools
            # Another lock and other sources: the builder cannot take what it has just made. Its
            # cache is not emptied, as it may be somebody's.
            (folder / "base.in").write_text(REQUIREMENTS[0])
            (folder / "app/main.py").write_text(f"print({time.time()})\n")
            if engine == "oci":
                forget(folder)
            shutil.rmtree(folder / ".buildmatrix", ignore_errors=True)
            rows.setdefault("first build, wheels are here", {})[engine] = build(folder, engine)
            rows.setdefault("nothing changed", {})[engine] = build(folder, engine)
            text = (folder / "base.in").read_text()
            (folder / "base.in").write_text(text.replace(*REQUIREMENTS[1:]))
            rows.setdefault("one requirement changed", {})[engine] = build(folder, engine)
    print(f"{targets} targets, seconds (MB): oci, docker, docker / oci")
    for what, row in rows.items():
        (own, memory), (docker, docker_memory) = row["oci"], row["docker"]
        print(
            f"{what:30} {own:6.1f} ({memory / 1e6:.0f})  {docker:6.1f} ({docker_memory / 1e6:.0f})"
            f"  {docker / own:5.1f}"
        )


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="docker peers")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--targets", type=int, default=8)
    options = parser.parse_args()
    parts = set(options.parts) or {"docker", "peers"}
    if unknown := parts - {"docker", "peers"}:
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    if "docker" in parts:
        measure_engines(options.targets)
    if "peers" in parts:
        with tempfile.TemporaryDirectory(prefix="bench.") as name:
            os.environ["BUILDMATRIX_CACHE"] = f"{name}/cache"
            measure_peers(Path(name, "peers"), options.runs)


if __name__ == "__main__":
    main()
