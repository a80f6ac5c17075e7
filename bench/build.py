"""Building images: the engine oci beside `docker buildx bake`, of one specification, in one run.

    python bench/build.py [--targets 8]

Needs a Docker engine, base images and a package index (`scripts.stack up`). Both engines start
without layers of this specification, and with wheels that were downloaded before. Says
for the first build, for one changed requirement and for nothing changed: seconds of wall clock,
the ratio, and the most memory that buildmatrix took.
"""

from __future__ import annotations

import argparse
import os
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


def build(folder: Path, engine: str) -> tuple[float, int]:
    """Seconds and bytes of one build."""
    command = [sys.executable, "-m", "buildmatrix", "build", "-q", "--engine", engine]
    command += ["--no-vulnerabilities", "--no-audit", "--no-smoke", "--jobs", "2"]
    started = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"the build with {engine} failed")
    return time.monotonic() - started, usage.ru_maxrss << 10


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", type=int, default=8)
    targets = parser.parse_args().targets
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
            shutil.rmtree(folder / ".buildmatrix")
            if engine == "oci":
                for kind in ("images/layout", "image-layers", "layers"):
                    shutil.rmtree(Path(name, "cache/buildmatrix", kind))
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


if __name__ == "__main__":
    main()
