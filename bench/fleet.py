"""What `fleet scan` costs, as a curve over the number of images and of workers.

    python bench/fleet.py measure FOLDER RESULTS --images 10 100 1000 --workers 1 2 4
    python bench/fleet.py plot RESULTS docs/pictures/fleet.svg
    python bench/fleet.py table RESULTS

FOLDER is the storage of a registry that `bench/fleet_registry.py` filled; Debian's registry
serves it on loopback (the test stack unpacks it). Nothing is deleted before the end: ext4 passes
over what was deleted within the last minutes when it makes a file, and that would be on the bill
of whoever comes next. Images are drawn from all of the fleet, a smaller number being the
beginning of a larger one. Each point is a first run, with an empty store, and three that find
nothing new and start no worker; RESULTS gets a line of JSON for each, and of these the median
counts. Seconds are those of the clock, and those of processors for the command with all of its
workers and for the registry; a machine that does other work, too, changes the latter least.
Memory is the peak of the largest worker and of the process of the command, read every
0.2 s. 0 workers stand for the peer: one process that does the same work without Dask, in the same
minutes. The ratio is the result, since machines are noisy.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 0.2
#: Runs that find nothing new.
AGAIN = 3


def references(folder: Path, host: str) -> list[str]:
    """All images of the fleet, in an order that depends on nothing but their names."""
    home = folder / "docker/registry/v2/repositories"
    tags = sorted(home.glob("*/*/_manifests/tags/*"))
    every = [f"{host}/{tag.parents[2].relative_to(home)}:{tag.name}" for tag in tags]
    random.Random(0).shuffle(every)
    return every


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Debian's registry over a storage, on a free port, and its process."""
    sys.path.insert(0, str(ROOT))
    from scripts.stack.layout import Layout

    program = Layout.of_environment().cache / "registry-prefix/usr/bin/docker-registry"
    if not program.exists():
        raise SystemExit("there is no docker-registry; run `python3 -m scripts.stack up`")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    settings = {
        "version": "0.1",
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder.absolute())}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(settings, file)
        file.flush()
        process = subprocess.Popen(
            [program, "serve", file.name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            for _ in range(100):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/").close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield f"localhost:{port}", psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait()


class Memory:
    """The peak of a process and of the largest of its descendants, in bytes."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.own = self.worker = 0
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(SECONDS):
            try:
                self.own = max(self.own, self._process.memory_info().rss)
                for child in self._process.children(recursive=True):
                    self.worker = max(self.worker, child.memory_info().rss)
            except psutil.Error:
                continue

    def stop(self) -> None:
        """No more is read."""
        self._ended.set()
        self._thread.join()


def plain(arguments: argparse.Namespace) -> None:
    """The same work, one image after the other in this process; the bill as JSON."""
    from datetime import date

    from buildmatrix.fleet.model import Subject, WorkerSettings
    from buildmatrix.fleet.work import judge_image, read_layer, resolve_and_judge

    settings = WorkerSettings(
        store=str(arguments.store), platform="linux/amd64", today=date.today()
    )
    started = time.monotonic()
    layers = transferred = stored = 0
    for reference in arguments.references.read_text().split():
        task = resolve_and_judge(settings, Subject(reference=reference, places=("bench",)))
        transferred += task.bytes_read
        layers += len(task.read)
        for layer in task.unread:
            transferred += read_layer(settings, layer).bytes_read
            layers += 1
        stored += task.is_stored
        if not task.results:
            transferred += judge_image(settings, task).bytes_read
    seconds = round(time.monotonic() - started, 2)
    work = {"stored": stored, "layers_read": layers, "bytes_read": transferred}
    print(json.dumps({"work": {**work, "seconds": seconds, "busy": seconds}}))


def spent(process: psutil.Process) -> float:
    """Seconds of processors that a process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)


def run(
    chosen: Sequence[str], workers: int, store: Path, registry: psutil.Process
) -> dict[str, Any]:
    """One run of the command, in a folder beside the store; 0 workers for one without Dask."""
    folder = Path(tempfile.mkdtemp(dir=store.parent))
    (folder / "images.txt").write_text("\n".join(chosen) + "\n")
    output = folder / "report.json"
    command = [sys.executable, "-m", "buildmatrix", "fleet", "scan", "file:images.txt"]
    command += ["--store", str(store), "--workers", str(workers), "--quiet"]
    command += ["--format", "json", "--output", str(output)]
    if not workers:
        command = [sys.executable, __file__, "plain", "images.txt", str(store)]
    environment = {**os.environ, "BUILDMATRIX_CACHE": str(folder / "cache")}
    started, served_before = time.monotonic(), spent(registry)
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out)
    memory = Memory(process.pid)
    # With all processes that it has waited for.
    _, status, usage = os.wait4(process.pid, 0)
    code = process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - started
    memory.stop()
    if code not in (0, 1, 3):
        raise SystemExit(f"fleet scan ended with {code}")
    if not workers:
        output = folder / "out"
    report = json.loads(output.read_bytes())
    return {
        "images": len(chosen),
        "code": code,
        "processor": round(usage.ru_utime + usage.ru_stime, 2),
        "processor_registry": round(spent(registry) - served_before, 2),
        "load": round(os.getloadavg()[0], 1),
        "memory": memory.own,
        "memory_worker": memory.worker or memory.own,
        "report_bytes": output.stat().st_size,
        **report["work"],
        # Those that were asked for: a run in which nothing is new starts none.
        "workers": workers,
        # Those of the run without the interpreter, and of the whole command.
        "work_seconds": report["work"]["seconds"],
        "seconds": round(seconds, 2),
    }


def measure(arguments: argparse.Namespace) -> None:
    """All points; RESULTS is appended to."""
    with (
        served(arguments.folder) as (host, registry),
        tempfile.TemporaryDirectory(prefix="fleet-") as scratch,
    ):
        every = references(arguments.folder, host)
        for count in arguments.images:
            for workers in arguments.workers:
                store = Path(scratch) / f"store-{count}-{workers}"
                store.mkdir()
                for number in ("first", *["second"] * AGAIN):
                    point = run(every[:count], workers, store, registry)
                    with arguments.results.open("a") as file:
                        file.write(json.dumps({"run": number, **point}) + "\n")
                    print(number, point, flush=True)


def points(results: Path) -> list[dict[str, Any]]:
    """What was measured: of equal first runs the last one, of second runs the median by seconds.

    The second run of the peer asks one image after the other.
    """
    held: dict[tuple[str, int, bool, int], list[dict[str, Any]]] = {}
    for line in results.read_text().splitlines():
        point = json.loads(line)
        is_first, has_workers = point["run"] == "first", point["workers"] > 0
        key = (point["run"], point["images"], has_workers, point["workers"] if is_first else 0)
        held[key] = [point] if is_first else [*held.get(key, ()), point]
    return [
        sorted(several, key=lambda point: point["seconds"])[len(several) // 2]
        for _, several in sorted(held.items())
    ]


def table(arguments: argparse.Namespace) -> None:
    """The points in Markdown."""
    print(
        "| run | images | workers | seconds | processor s | registry s | layers read | MB read "
        "| largest worker MB | command MB |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for point in points(arguments.results):
        started = point["run"] == "first" and point["workers"]
        worker = f"{point['memory_worker'] / 1e6:.0f}" if started else ""
        print(
            f"| {point['run']} | {point['images']:,} | {_workers(point)} "
            f"| {point['seconds']:.1f} | {point['processor']:.1f} "
            f"| {point['processor_registry']:.1f} | {point['layers_read']:,} "
            f"| {point['bytes_read'] / 1e6:,.0f} | {worker} | {point['memory'] / 1e6:.0f} |"
        )


def _workers(point: dict[str, Any]) -> str:
    """Of how many workers a point tells."""
    return str(point["workers"]) if point["run"] == "first" or not point["workers"] else "none"


def plot(arguments: argparse.Namespace) -> None:
    """Time, bytes and memory against images, one line for each number of workers."""
    # `bench/html.py` stands in this folder, and is not Python's own module.
    sys.path.remove(str(Path(__file__).resolve().parent))
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "fleet"
    every = [
        {**point, "largest": max(point["memory"], point["memory_worker"])}
        for point in points(arguments.results)
    ]
    shown = (
        ("seconds", 1.0, "seconds"),
        ("bytes_read", 1e6, "MB over the network"),
        ("largest", 1e6, "MB of the largest process"),
    )
    figure, panels = pyplot.subplots(1, len(shown), figsize=(12, 3.6), layout="constrained")
    for panel, (key, unit, label) in zip(panels, shown, strict=True):
        for run_name, style in (("first", "-"), ("second", "--")):
            runs = [point for point in every if point["run"] == run_name]
            for workers in sorted(set(map(_workers, runs))):
                line = [
                    (point["images"], point[key] / unit)
                    for point in runs
                    if _workers(point) == workers
                ]
                what = {"0": "one process", "none": "no workers needed", "1": "1 worker"}
                name = f"{run_name} run, {what.get(workers, f'{workers} workers')}"
                panel.plot(*zip(*line, strict=True), style, marker="o", label=name)
        panel.set(xscale="log", xlabel="images", ylabel=label)
        if key == "seconds":
            panel.set(yscale="log")
        else:
            panel.set(ylim=(0, None))
        panel.grid(alpha=0.3)
    panels[0].legend(fontsize=7)
    figure.savefig(arguments.picture, metadata={"Date": None})


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("measure")
    one.add_argument("folder", type=Path)
    one.add_argument("results", type=Path)
    one.add_argument("--images", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    one.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2, 4])
    one.set_defaults(do=measure)
    two = commands.add_parser("plot")
    two.add_argument("results", type=Path)
    two.add_argument("picture", type=Path)
    two.set_defaults(do=plot)
    three = commands.add_parser("table")
    three.add_argument("results", type=Path)
    three.set_defaults(do=table)
    four = commands.add_parser("plain")
    four.add_argument("references", type=Path)
    four.add_argument("store", type=Path)
    four.set_defaults(do=plain)
    arguments = parser.parse_args()
    arguments.do(arguments)


if __name__ == "__main__":
    main()
