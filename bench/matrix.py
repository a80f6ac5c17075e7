"""What a matrix of hundreds of targets costs that ask few distinct questions of uv.

    python bench/matrix.py --before HEAD~1 --targets 500 lock generate build

`lock`      all locks anew, with the cache of uv warm, and once more with nothing to do.
`generate`  nothing changed.
`build`     nothing to do: an engine that has every image stands for Docker, since what is measured
            is buildmatrix's own work. Each image holds the same real wheels.
`docker`    the same with a real daemon (DOCKER_HOST), beside the processor time of all dockerd and
            containerd of this machine: images of one file that differ in a label. Builds them
            first, at a second or two for each; `--builder` takes several. No commit before.

Every other line is the least processor time of `--runs` runs, those of uv included, beside the
same of the commit `--before` in turns. Machines are noisy: the ratio is the result.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
#: Each is a requirements file; with the Pythons they are the distinct questions.
ASKED = ("numpy", "onnxruntime", "idna", "jinja2", "httpx", "pandas", "rich", "fastapi", "pyarrow")
ASKED += ("scikit-learn", "pydantic")
#: What lies in every image.
INSTALLED = ("numpy", "onnxruntime", "scikit-learn", "pandas", "fastapi")

#: The command line with an engine that builds by one scan, and has all that it built.
DRIVER = """
import hashlib, json, subprocess, sys
from pathlib import Path
from types import SimpleNamespace
from buildmatrix.cli import main
from buildmatrix.engines import docker_engine as engine
from buildmatrix.engines.model import BuildOutcome

REMEMBERED = Path("images.json")


class Engine:
    name = "docker"

    def __init__(self):
        self.images = json.loads(REMEMBERED.read_text()) if REMEMBERED.exists() else {}

    def check(self, builder=None):
        return "docker 28.5.2"

    def refusals(self, jobs):
        return {}

    def build(self, job, surroundings, progress):
        inventory = job.scan_output / "inventory.json"
        job.scan_output.mkdir(parents=True, exist_ok=True)
        if not Path("inventory.json").exists():
            scanner = job.bake_file.parent / "scan/scan.pyz"
            command = [sys.executable, "-I", scanner, "root", "inventory.json"]
            subprocess.run(command, check=True)
        inventory.write_bytes(Path("inventory.json").read_bytes())
        job.log.write_text("")
        digest = "sha256:" + hashlib.sha256(job.id.encode()).hexdigest()
        self.images[job.staged] = digest
        return BuildOutcome(job.id, digest, inventory, 1.0, digest, True, has_layers=True)

    def release(self, staged, tags):
        self.images |= dict.fromkeys(tags, self.images[staged])

    def present(self, references):
        return {name: self.images[name] for name in references if name in self.images}

    def cancel(self):
        pass

    def close(self):
        REMEMBERED.write_text(json.dumps(self.images))

    def __getattr__(self, name):
        raise RuntimeError(f"the bench asks for {name}")


engine.DockerEngine = Engine
main(sys.argv[1:])
"""


def make(folder: Path, targets: int) -> None:
    """The specification of a matrix of about as many targets."""
    names = [f"v{number}" for number in range(max(1, targets // len(PYTHONS)))]
    text = [
        'schema = 1\n[project]\nname = "matrix"\nversion = "1"\nimage = "bench/matrix"\n[defaults]',
        f"python = {[*PYTHONS]}\nvariant = {names}".replace("'", '"'),
        '[backend.cpu]\nruntime = "any"\nbase = "python:{python}-slim-bookworm"',
    ]
    for number, name in enumerate(names):
        files = f'"base.in", "{ASKED[number % len(ASKED)]}.in"'
        text += [f"[variant.{name}]\nrequirements = [{files}]\nlabels = {{ number = '{number}' }}"]
    (folder / "buildmatrix.toml").write_text("\n".join(text) + "\n")
    (folder / "base.in").write_text("packaging\nrequests\n")
    for name in ASKED:
        (folder / f"{name}.in").write_text(f"{name}\n")


#: One file in an image, and no step that runs: what is left is what each target costs.
SMALL = """{% extends "backend.Dockerfile.j2" %}
{% block final %}
FROM scratch AS final
COPY base.in /
{% endblock %}
""" + "".join(
    f"{{% block {block} %}}{{% endblock %}}\n"
    for block in ("base", "build_env", "build_tools", "install", "python", "account", "app")
)


def make_small(folder: Path, targets: int) -> None:
    """The specification of so many images of one file."""
    names = [f"v{number}" for number in range(targets)]
    text = [
        'schema = 1\n[project]\nname = "small"\nversion = "1"\nimage = "bench/small"\n[defaults]',
        f'python = ["3.11"]\nvariant = {names}\nrequirements = ["base.in"]'.replace("'", '"'),
        'copy = [["base.in", "/base.in"]]',
        '[backend.cpu]\nruntime = "any"\nbase = "python:{python}-slim-bookworm"',
        'template = "small.Dockerfile.j2"',
        *(f"[variant.{name}]\nlabels = {{ number = '{name}' }}" for name in names),
    ]
    (folder / "buildmatrix.toml").write_text("\n".join(text) + "\n")
    (folder / "base.in").touch()
    (folder / "small.Dockerfile.j2").write_text(SMALL)


def daemons() -> float:
    """Seconds of processor time that the daemons of this machine took so far."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue  # It has just ended.
        if name in {"dockerd", "containerd"}:
            ticks += sum(map(int, rest.split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def measure_docker(targets: int, runs: int, builders: Sequence[str]) -> None:
    """Print one line for each run of `build` with nothing to do, after a first one that builds."""
    options = [f"--builder={name}" for name in builders]
    command = ["build", "-q", "--engine=docker", "--no-audit", "--no-vulnerabilities", "--no-smoke"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_small(folder, targets)
        for number in range(runs + 1):
            before, used, started = usage(), daemons(), time.monotonic()
            subprocess.run(
                [sys.executable, "-m", "buildmatrix", *command, *options],
                cwd=folder,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            seconds, here, there = time.monotonic() - started, usage() - before, daemons() - used
            what = "nothing to do" if number else "first build"
            print(
                f"docker, {targets} targets, {what}: {here:.2f} s, daemons {there:.2f} s, "
                f"{seconds:.1f} s of wall clock at a load of {os.getloadavg()[0]:.0f}",
                flush=True,
            )


def usage() -> float:
    """Seconds of processor time of all programs that were run so far."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def install(root: Path) -> None:
    """The root file system of every image."""
    site = root / "opt/venv/lib/python3.11/site-packages"
    command = ["uv", "pip", "install", "-q", "--python-version", "3.11", "--target", str(site)]
    subprocess.run([*command, *INSTALLED], check=True)


def processor_time(source: Path, folder: Path, *arguments: str) -> float:
    """Seconds of one run of the command line of the sources in `source`."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {
        "PYTHONPATH": str(source / "src"),
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "BUILDMATRIX_CACHE": str(folder / "cache"),
    }
    before = usage()
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *arguments],
        cwd=folder,
        env=environment,
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    if done.returncode:
        sys.exit(f"{arguments}: exit {done.returncode}\n{done.stderr.decode()[-3000:]}")
    return usage() - before


def measure(
    name: str,
    sources: Sequence[Path],
    folders: Sequence[Path],
    runs: int,
    arguments: Sequence[str],
    prepare: Callable[[Path], object] = lambda _: None,
) -> None:
    """Print one line: now, before, ratio."""
    least = [float("inf")] * len(sources)
    for _ in range(runs):
        for number, (source, folder) in enumerate(zip(sources, folders, strict=True)):
            prepare(folder)
            least[number] = min(least[number], processor_time(source, folder, *arguments))
    now, *rest = least
    before = "".join(f", before {then:.2f} s, ratio {now / then:.2f}" for then in rest)
    print(f"{name}: {now:.2f} s{before}", flush=True)


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="+", choices=["lock", "generate", "build", "docker"])
    parser.add_argument("--targets", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--before", metavar="COMMIT", help="measure this commit, too")
    parser.add_argument(
        "--builder", action="append", default=[], help="for `docker`; several share"
    )
    options = parser.parse_args()
    if "docker" in options.what:
        measure_docker(options.targets, options.runs, options.builder)
    if not {"lock", "generate", "build"} & {*options.what}:
        return
    with tempfile.TemporaryDirectory() as name:
        sources = [ROOT]
        if options.before:
            sources.append(Path(name, "before"))
            archive = ["git", "-C", str(ROOT), "archive", options.before, "src", "templates"]
            tar = subprocess.run(archive, check=True, stdout=subprocess.PIPE).stdout
            sources[1].mkdir()
            subprocess.run(["tar", "-x", "-C", str(sources[1])], input=tar, check=True)
        folders = [Path(name, f"matrix-{number}") for number in range(len(sources))]
        for folder in folders:
            folder.mkdir()
            make(folder, options.targets)
            processor_time(ROOT, folder, "-q", "lock")
        if "lock" in options.what:
            fresh = ("-q", "lock"), lambda folder: shutil.rmtree(folder / "locks")
            measure("lock, all anew", sources, folders, options.runs, *fresh)
            measure("lock, nothing to do", sources, folders, options.runs, ("-q", "lock"))
        if "generate" in options.what:
            measure("generate", sources, folders, options.runs, ("-q", "generate"))
        if "build" in options.what:
            build = ("-q", "build", "--no-audit", "--no-vulnerabilities", "--no-smoke")
            install(folders[0] / "root")
            for source, folder in zip(sources, folders, strict=True):
                if folder is not folders[0]:
                    (folder / "root").symlink_to(folders[0] / "root")
                processor_time(source, folder, *build)
            measure("build, nothing to do", sources, folders, options.runs, build)


if __name__ == "__main__":
    main()
