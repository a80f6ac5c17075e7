"""What a scan costs, beside other readers of ELF files, in one run: time, memory, bytes read.

    python bench/scan.py --tree .venv/lib/python3.11/site-packages    # an installed stack
    python bench/scan.py --root FOLDER                                # a root file system
    python bench/scan.py --wheels FOLDER
    python bench/scan.py --tree A --root B --wheels C --json FILE [PART...]

`headers`  NEEDED of every binary in --tree: beside scanelf (the whole tree), and beside readers
           that are given the list of binaries. Ours walks the tree, opens every file and reads
           headers, versions, notes and sections: the scan without its deep part. `ours, resolved`
           also finds each library as the loader would; lddtree, libtree and auditwheel do, too.
`large`    the same of the single libraries over 100 MB.
`full`     everything `scan` reads of --tree, and of what that is made.
`linked`   a scan of hard links to --tree, or of a copy on another disk: with an empty cache, after
           a scan of --tree (a second environment of uv's cache), and after one of themselves.
`root`     headers and everything of --root; bench/root.py makes one of 60,000 files.
`wheels`   everything of each wheel, beside inflating it with zlib to nowhere.

Each line is a process of its own, with its start and imports, but for `large` and `wheels`: there
the clock starts behind the imports. Files are warm: a first run only tells the memory, and its time
is thrown away. The best of --runs counts. The peak is of all processes of one job together, and
what they share counts once (bench/memory.py). `cpu` has the seconds of all of them. `read` is what
read calls gave, and `reads` how many there were; scanelf and libtree map files instead. A peer that
is not installed is named as missing. Machines differ and are busy: the ratio to the first line of a
part is the result.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from memory import Watch

from buildmatrix.base.data import replace
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.images.store.cache import Cache
from buildmatrix.images.store.facts import FactCache

LARGE = 100_000_000
JOBS = Path(__file__).with_name("readers.py")


@dataclass(frozen=True)
class Row:
    """What one job cost; without numbers when it could not run."""

    part: str
    name: str
    seconds: float | None = None
    cpu: float | None = None
    #: Bytes.
    peak: float | None = None
    read: float | None = None
    #: Read calls: what would be requests for parts of a file on an index.
    reads: float | None = None
    #: Seconds by those of the job that it is compared with.
    ratio: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Job:
    """A line of the table: a command, and whether the clock is the whole process's or its own."""

    name: str
    command: Sequence[str]
    #: What must exist for it: a program or a module.
    program: str | None = None
    module: str | None = None
    own_clock: bool = False


def ours(name: str, job: str, *paths: str | Path, **more: Any) -> Job:
    """A job of bench/readers.py."""
    return Job(name, [sys.executable, str(JOBS), job, *map(str, paths)], **more)


def run(job: Job, *, watched: bool = False) -> tuple[dict[str, float], str]:
    """Costs of one run, and what it printed; `watched`, with the peak of all its processes."""
    before = _so_far("rchar"), _so_far("syscr")
    started = time.perf_counter()
    process = subprocess.Popen(job.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    with Watch(process.pid) if watched else nullcontext() as watch:
        output = process.stdout.read().decode("utf-8", "replace")
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    cost = {
        "seconds": seconds,
        "cpu": usage.ru_utime + usage.ru_stime,
        "peak": float(watch.peak if watch and watch.processes > 1 else usage.ru_maxrss * 1024),
        "read": float(_so_far("rchar") - before[0]),
        "reads": float(_so_far("syscr") - before[1]),
    }
    if str(JOBS) in job.command:
        if process.returncode:
            raise SystemExit(f"{job.name} failed with exit code {process.returncode}")
        answer = json.loads(output)
        cost["read"] = float(answer["read"])
        if job.own_clock:
            cost["seconds"] = answer["seconds"]
    return cost, output


def _so_far(field: str) -> int:
    """What this process and its ended children got from read calls, or how many they made."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields[field])


def measure(part: str, jobs: Sequence[Job], runs: int) -> Iterator[tuple[Row, str]]:
    """The best run of each job, beside the first one, and what it printed; the jobs take turns."""
    best: dict[str, tuple[dict[str, float], str]] = {}
    peaks: dict[str, float] = {}
    absent = {job.name: missing(job) for job in jobs}
    for turn in range(runs + 1):
        for job in jobs:
            if absent[job.name]:
                continue
            cost, output = run(job, watched=not turn)
            if not turn:
                peaks[job.name] = cost["peak"]
                continue
            known = best.get(job.name)
            if known is None or cost["seconds"] < known[0]["seconds"]:
                best[job.name] = cost | {"peak": peaks[job.name]}, output
    for job in jobs:
        if absent[job.name]:
            yield Row(part, job.name, note=absent[job.name]), ""
            continue
        cost, output = best[job.name]
        ratio = cost["seconds"] / best[jobs[0].name][0]["seconds"]
        yield Row(part, job.name, ratio=ratio, **cost), output


def missing(job: Job) -> str:
    """Why a job cannot run here, or nothing."""
    if job.program and shutil.which(job.program) is None:
        return f"missing: {job.program} is not installed"
    if job.module:
        found = subprocess.run(
            [sys.executable, "-c", f"import {job.module}"], check=False, capture_output=True
        )
        if found.returncode:
            return f"missing: no module {job.module} beside buildmatrix"
    return ""


def headers(options: argparse.Namespace) -> Iterator[Row]:
    """NEEDED of all binaries of a tree."""
    tree = options.tree
    files = [str(tree / path) for path in json.loads(run(ours("", "needed", tree))[1])["facts"]]
    scanelf = ["scanelf", "-qnRyF", "%n %F", str(tree)]
    script = [sys.executable, shutil.which("lddtree") or "", "-l", *files]
    yield from compared(
        "headers",
        [
            ours("ours", "needed", tree),
            Job("scanelf -n", scanelf, program="scanelf"),
            ours("pyelftools, NEEDED only", "pyelftools", *files, module="elftools"),
            ours("elfdeps", "elfdeps", *files, module="elfdeps"),
            ours("LIEF, parser options off", "lief-least", *files, module="lief"),
            ours("ours, resolved", "linking", tree),
            Job("libtree", ["libtree", "-p", *files], program="libtree"),
            Job("lddtree of pax-utils", script, program="lddtree", module="elftools"),
            ours("lddtree of auditwheel", "auditwheel", *files, module="auditwheel"),
        ],
        options.runs,
        tree,
    )


def large(options: argparse.Namespace) -> Iterator[Row]:
    """The libraries over 100 MB one by one, in one process."""
    files = [
        str(path)
        for path in sorted(options.tree.rglob("*.so*"))
        if path.is_file() and not path.is_symlink() and path.stat().st_size > LARGE
    ]
    if not files:
        yield Row("large", "ours", note=f"no library over 100 MB in {options.tree}")
        return
    yield from compared(
        "large",
        [
            ours("ours", "files", *files, own_clock=True),
            ours("pyelftools", "pyelftools", *files, module="elftools", own_clock=True),
            ours("elfdeps", "elfdeps", *files, module="elfdeps", own_clock=True),
            ours("LIEF, options off", "lief-least", *files, module="lief", own_clock=True),
            ours("LIEF, everything", "lief-all", *files, module="lief", own_clock=True),
        ],
        options.runs,
        Path("/"),
    )


def full(options: argparse.Namespace) -> Iterator[Row]:
    """Everything of a tree."""
    jobs = [
        ours("reading alone", "searched", options.tree),
        ours("binaries, deep", "binaries", options.tree),
        ours("all of `scan`", "full", options.tree),
    ]
    yield from (row for row, _ in measure("full", jobs, options.runs))


def linked(options: argparse.Namespace) -> Iterator[Row]:
    """A second environment with the files of --tree."""
    with TemporaryDirectory() as place:
        caches = [Path(place) / name for name in ("none", "first", "second")]
        copy, files = Path(place) / "tree", options.tree
        for folder in caches:
            folder.mkdir()
        scan_with_cache(files, caches[1])
        try:
            shutil.copytree(files, copy, symlinks=True, copy_function=os.link)
        except shutil.Error:  # on another disk
            shutil.rmtree(copy)
            shutil.copytree(files, copy, symlinks=True)
        (copy / "second").touch()  # else its names and stamps could be those of --tree
        scan_with_cache(copy, caches[2])
        jobs = [
            ours("with an empty cache", "environment", copy, caches[0]),
            ours("after --tree", "environment", copy, caches[1]),
            ours("again", "environment", copy, caches[2]),
        ]
        yield from (row for row, _ in measure("linked", jobs, options.runs))


def scan_with_cache(root: Path, cache: Path) -> None:
    """Fill a cache."""
    time.sleep(0.2)  # Files that changed just now are not trusted to stay.
    with DirectoryTree(root) as tree:
        FactCache(Cache(cache), key=bytes(32)).folder(root, tree)


def root(options: argparse.Namespace) -> Iterator[Row]:
    """A root file system."""
    tree = options.root
    yield from compared(
        "root",
        [
            ours("ours", "needed", tree),
            Job("scanelf -n", ["scanelf", "-qnRyF", "%n %F", str(tree)], program="scanelf"),
            ours("ours, resolved", "linking", tree),
            ours("reading alone", "searched", tree),
            ours("binaries, deep", "binaries", tree),
            ours("all of `scan`", "full", tree),
        ],
        options.runs,
        tree,
    )


def wheels(options: argparse.Namespace) -> Iterator[Row]:
    """Wheels, the smallest first; the ratio is to inflating them."""
    for path in sorted(options.wheels.glob("*.whl"), key=lambda path: path.stat().st_size):
        name = "-".join(path.name.split("-")[:2])
        jobs = [
            ours(f"{name}: inflate", "inflate", path, own_clock=True),
            ours(name, "wheel", path, own_clock=True),
        ]
        # What takes seconds says the same each time.
        runs = options.runs if path.stat().st_size < 20e6 else 1
        _, (row, _) = measure("wheels", jobs, runs)
        yield row


#: Peers whose output has no NEEDED by path.
_OTHER_FORM = ("elfdeps", "libtree", "lddtree of pax-utils")


def compared(part: str, jobs: Sequence[Job], runs: int, tree: Path) -> Iterator[Row]:
    """The jobs, and whether those that tell NEEDED tell the same as the first."""
    expected: dict[str, list[str]] | None = None
    for row, output in measure(part, jobs, runs):
        said = told(output, tree) if row.name not in _OTHER_FORM else {}
        expected = expected or said
        differs = said and said != expected
        yield replace(row, note=f"tells other names than {jobs[0].name}") if differs else row


def told(output: str, tree: Path) -> dict[str, list[str]]:
    """NEEDED by path below `tree`, where a job told it."""
    found: dict[str, list[str]] = {}
    if output.startswith("{"):
        facts = json.loads(output)["facts"]
        found = {path: needed for path, needed in facts.items() if isinstance(needed, list)}
    else:
        # scanelf's lines; what other tools print has another form.
        for line in output.splitlines():
            needed, _, path = line.partition(" ")
            if path.startswith(f"{tree}/"):
                found[path] = needed.split(",")
    return {path.removeprefix(f"{tree}/"): needed for path, needed in found.items() if any(needed)}


PARTS: dict[str, tuple[str, Callable[[argparse.Namespace], Iterator[Row]]]] = {
    "headers": ("tree", headers),
    "large": ("tree", large),
    "full": ("tree", full),
    "linked": ("tree", linked),
    "root": ("root", root),
    "wheels": ("wheels", wheels),
}


def described(row: Row) -> str:
    """A line of the table."""
    if row.seconds is None:
        return f"{row.name:<36} {row.note}"
    return (
        f"{row.name[:36]:<36}{row.seconds:10.3f}{row.ratio:8.2f}{row.cpu:9.2f}"
        f"{(row.peak or 0) / 1e6:9.0f}{(row.read or 0) / 1e6:11,.1f}"
        f"{row.reads or 0:9,.0f}  {row.note}"
    ).rstrip()


def main() -> None:
    """Measures what was asked for, or all that there is something to measure with."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=" ".join(PARTS))
    parser.add_argument("--tree", type=Path, help="an installed stack")
    parser.add_argument("--root", type=Path, help="a root file system")
    parser.add_argument("--wheels", type=Path, help="a folder of wheels")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    if unknown := set(options.parts) - PARTS.keys():
        parser.error(f"no part is called {', '.join(sorted(unknown))}: {', '.join(PARTS)}")
    rows: list[Row] = []
    for name, (needs, part) in PARTS.items():
        if options.parts and name not in options.parts:
            continue
        if getattr(options, needs) is None:
            print(f"{name}: not measured, for want of --{needs}")
            continue
        print(
            f"\n{name:<36}{'seconds':>10}{'ratio':>8}{'cpu':>9}{'peak MB':>9}"
            f"{'read MB':>11}{'reads':>9}"
        )
        for row in part(options):
            print(described(row), flush=True)
            rows.append(row)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
