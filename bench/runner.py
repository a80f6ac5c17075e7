"""A new CI runner and a pull request that changes a file of the project, from nothing to verdicts.

    python bench/runner.py

Needs base images and a package index (`scripts.stack up`). An earlier runner has filled the store
that both share. The new one has a Python and nothing else: no buildmatrix, no uv, no cache. Says
in seconds of wall clock and of processor time what each step of the recipes in docs/ci takes.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SPEC = """
schema = 1
[project]
name = "bench"
version = "1"
image = "registry.example.com/bench"
[defaults]
python = ["3.11"]
requirements = ["requirements.in"]
copy = [["app", "/app"]]
[backend.cpu]
runtime = "any"
base = "python:{python}-slim-bookworm"
"""
REQUIREMENTS = "numpy\nscipy\npandas\nscikit-learn\nxgboost-cpu\n"
UV = next(
    line.split(":", 1)[1].strip()
    for line in (ROOT / ".github/workflows/matrix.yml").read_text().splitlines()
    if line.strip().startswith("UV:")
)


class Runner:
    """A folder for everything that a runner keeps, and the seconds of each of its steps."""

    def __init__(self, folder: Path, project: Path, store: Path) -> None:
        self.folder, self.project = folder, project
        self.python = str(folder / "venv/bin/python")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "UV_CACHE"))}
        self.env |= {
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PIP_CACHE_DIR": str(folder / "pip"),
            "UV_CACHE_DIR": str(folder / "uv"),
            "BUILDMATRIX_CACHE": str(folder / "cache/buildmatrix"),
            "BUILDMATRIX_STORE": str(store),
        }
        self.rows: dict[str, tuple[float, float]] = {}

    def step(self, name: str, *command: str) -> None:
        """Run a command that must succeed."""
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            command,
            cwd=self.project,
            env=self.env,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            sys.exit(f"{name}: exit code {done.returncode}\n{done.stdout[-4000:]}")
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
        self.rows[name] = (time.monotonic() - began, cpu)

    def day(self, wheel: Path) -> None:
        """Do what the recipes do, with the wheel instead of a version on PyPI."""
        subprocess.run([sys.executable, "-m", "venv", self.folder / "venv"], check=True)
        pip = (self.python, "-I", "-m", "pip", "install", "--quiet")
        self.step(f"pip install {UV}", *pip, UV)
        uv = (self.python, "-I", "-m", "uv", "pip", "install", "--no-config")
        self.step("uv pip install buildmatrix", *uv, "--python", self.python, f"{wheel}[keyless]")
        tool = (self.python, "-m", "buildmatrix")
        self.step("buildmatrix audit --diff", *tool, "audit", "--diff", "HEAD^")
        self.step(
            "buildmatrix build",
            *tool,
            "build",
            "--locked",
            "--engine",
            "oci",
            "--no-vulnerabilities",
        )


def main() -> None:
    """Measure, and print a table."""
    with tempfile.TemporaryDirectory(prefix="bench.") as name:
        here = Path(name)
        build = [sys.executable, "-m", "uv", "build", "--quiet", "--wheel", "--out-dir", here, ROOT]
        subprocess.run(build, check=True)
        (wheel,) = here.glob("*.whl")
        project = here / "project"
        (project / "app").mkdir(parents=True)
        (project / "buildmatrix.toml").write_text(SPEC)
        (project / "requirements.in").write_text(REQUIREMENTS)
        (project / ".gitignore").write_text(".buildmatrix\n")
        subprocess.run([sys.executable, "-m", "buildmatrix", "lock", "-q"], cwd=project, check=True)
        git = ["git", "-C", project, "-c", "user.name=bench", "-c", "user.email=bench@example.com"]
        subprocess.run([*git, "init", "-q"], check=True)
        for number in range(2):
            (project / "app/main.py").write_text(f"print({number})\n")
            subprocess.run([*git, "add", "."], check=True)
            subprocess.run([*git, "commit", "-q", "-m", f"change {number}"], check=True)
        runners = [Runner(here / kind, project, here / "store") for kind in ("earlier", "new")]
        for runner in runners:
            shutil.rmtree(project / ".buildmatrix", ignore_errors=True)
            runner.day(wheel)
        earlier, new = runners
        print("seconds of the clock (of processors): earlier runner, store empty; new runner")
        for step in new.rows:
            print(f"{step:30} {show(earlier.rows[step]):>16} {show(new.rows[step]):>16}")
        sums = [tuple(map(sum, zip(*runner.rows.values(), strict=True))) for runner in runners]
        print(f"{'all':30} {show(sums[0]):>16} {show(sums[1]):>16}")
        print(json.dumps({"load": os.getloadavg()[0], "cores": os.cpu_count()}))


def show(row: tuple[float, ...]) -> str:
    """Clock and processor time of a step."""
    clock, cpu = row
    return f"{clock:.1f} ({cpu:.1f})"


if __name__ == "__main__":
    main()
