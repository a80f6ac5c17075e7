"""How long `explore` takes to begin, and from each key to the screen that it makes.

    python bench/explore.py                       # 100,000 libraries, beside ncdu where it is there
    python bench/explore.py --libraries 10000

`begin`   seconds until the first screen, with everything read and judged.
`memory`  MiB that the program holds then (PSS).
keys      milliseconds from a key to the last byte of what it changes on a terminal of 80 columns
          and 24 lines, medians of the repetitions: as a person waits, and of processor time, which
          is the one to go by on a machine that does other work.

ncdu reads only the sizes of the same files and judges nothing: it is what a list of that length
costs in C.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/servers"), str(ROOT / "tests/unit/facts/elf")]

from elf_images import Image  # noqa: E402
from terminal import Terminal, terminal  # noqa: E402

#: Libraries of one distribution, and the distributions of which one is CUDA's.
EACH, FOREIGN = 100, 50
#: Seconds without a byte after which a screen is done.
QUIET = 0.3
DT_SONAME = 14

Keys = Sequence[tuple[str, str]]


def typed(where: str, text: str) -> Keys:
    return [(f"{where}filter: {text[: at + 1]}", letter) for at, letter in enumerate(text)]


MOVES = (("down", "j"), ("page down", "\x1b[6~"), ("last row", "G"), ("first row", "g"))
#: What is pressed one after the other; the last keys of each part take back what it did.
KEYS: Keys = (
    ("distributions", "2"),
    *MOVES,
    ("open", " "),
    ("close", " "),
    ("sort by wasted", "s"),
    ("sort by name", "s"),
    ("sort by size", "s"),
    ("libraries", "3"),
    *((f"libraries: {name}", key) for name, key in MOVES),
    ("libraries: sort by wasted", "s"),
    ("libraries: sort by name", "s"),
    ("libraries: sort by size", "s"),
    ("libraries: only wasted", "x"),
    ("libraries: all", "x"),
    ("libraries: one vendor", "v"),
    ("libraries: all vendors", "v"),
    ("libraries: filter opens", "/"),
    *typed("libraries: ", "lib07"),
    ("libraries: filter: erase", "\x7f"),
    ("libraries: filter ends", "\x1b"),
    ("libraries: why", "w"),
    ("libraries: back", "\x1b"),
    ("all views: vendors", "4"),
    ("all views: distributions", "2"),
    ("open all", "\x00"),
    *((f"open all: {name}", key) for name, key in MOVES),
    ("open all: sort by wasted", "s"),
    ("open all: sort by name", "s"),
    ("open all: sort by size", "s"),
    ("open all: filter opens", "/"),
    *typed("open all: ", "lib07"),
    ("open all: filter ends", "\x1b"),
    ("close all", "\x00"),
)
#: The same in ncdu, which shows one folder at a time.
PEER: Keys = (
    ("down", "j"),
    ("page down", "\x1b[6~"),
    ("last row", "\x1b[F"),
    ("first row", "\x1b[H"),
    ("sort by name", "n"),
    ("sort by size", "s"),
    ("open", "\r"),
    ("close", "h"),
)


@dataclass(frozen=True)
class Cost:
    """As a person waits, and of processor time."""

    wall: float
    work: float


@dataclass(frozen=True)
class Run:
    """One program: seconds until it shows something, MiB, and milliseconds of each key."""

    begin: Cost
    held: float
    keys: Mapping[str, Cost]


def make_tree(folder: Path, libraries: int) -> None:
    """Distributions with libraries that need each other, some of them CUDA's."""
    site = folder / "usr/lib/python3/site-packages"
    for number in range(libraries // EACH):
        is_foreign = number % FOREIGN == 0
        name = f"nvidia-part{number}-cu12" if is_foreign else f"part{number}"
        package = site / name.replace("-", "_")
        package.mkdir(parents=True)
        for at in range(EACH):
            soname = f"libcublas{at}.so.12" if is_foreign else f"lib{number:04}_{at:02}.so"
            needed = (f"lib{number:04}_{at - 1:02}.so",) if at else ("libcudart.so.12",)
            image = Image(needed=needed, strings={DT_SONAME: soname}).build()
            (package / soname).write_bytes(image + bytes(number % 7 * 100 + at))
        info = site / f"{package.name}-1.0.dist-info"
        info.mkdir()
        requires = f"Requires-Dist: part{number + 1}\n" if number + 1 < libraries // EACH else ""
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}"
        )
        (info / "RECORD").write_text(
            "".join(f"{path.relative_to(site)},,\n" for path in sorted(package.iterdir()))
            + f"{info.name}/METADATA,,\n"
        )


def processor(process: int) -> float:
    """Seconds of processor time that a process and its threads took so far."""
    paths = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in paths) / 1e9


def memory(process: int) -> float:
    """MiB of its pages, shared ones by their share."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def pressed(screen: Terminal, keys: str) -> Cost:
    """What it takes until the screen of a key is there, and nothing is computed any more."""
    process = screen.process.pid
    before = spent = processor(process)
    shown = start = busy = time.perf_counter()
    screen.press(keys)
    while time.perf_counter() - busy < QUIET:
        if screen.read(0.01):
            shown = busy = time.perf_counter()
        now = processor(process)
        if now - spent > 0.005:
            busy = time.perf_counter()
            spent = now
    return Cost(1000 * (shown - start), 1000 * (processor(process) - before))


def measured(
    folder: Path, until: str, keys: Keys, rounds: int, *command: str | Path, **variables: str
) -> Run:
    """Begin a program, press the keys one after the other, `rounds` times, and end it."""
    start = time.perf_counter()
    with terminal(folder, *command, **variables) as screen:
        screen.until(until, patience=1800)
        begin = Cost(time.perf_counter() - start, processor(screen.process.pid))
        costs: dict[str, list[Cost]] = {}
        for _ in range(rounds):
            for name, key in keys:
                costs.setdefault(name, []).append(pressed(screen, key))
        held = memory(screen.process.pid)
        screen.press("q")
        screen.ended()
    return Run(begin, held, {name: _median(items) for name, items in costs.items()})


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(
        statistics.median(cost.wall for cost in costs),
        statistics.median(cost.work for cost in costs),
    )


def _line(name: str, cost: Cost, peer: Cost | None = None) -> None:
    ratio = f"{cost.work / peer.work:9.0f}x of {peer.work:.1f}" if peer and peer.work else ""
    print(f"{name:28} {cost.wall:9.0f} {cost.work:9.0f}{ratio}", flush=True)


def main() -> None:
    """Make the tree, run both, and print what they took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--libraries", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tree", type=Path, help="where the tree is, or is made and left")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        tree = arguments.tree or Path(temporary, "tree")
        if not tree.exists():
            make_tree(tree, arguments.libraries)
        command = (sys.executable, "-m", "buildmatrix", "explore", tree, "--backend", "cpu")
        first = "2 Distributions"
        variables = {"BUILDMATRIX_CACHE": f"{temporary}/cache"}
        ours = measured(tree, first, KEYS, arguments.rounds, *command, **variables)
        peer = None
        if shutil.which("ncdu"):
            site = tree / "usr/lib/python3/site-packages"
            peer = measured(site, "Total disk usage", PEER, arguments.rounds, "ncdu", site)
        print(f"{arguments.libraries} libraries, load {os.getloadavg()[0]:.0f}\n")
        print(f"{'':28} {'wall':>9} {'work':>9}   ncdu, work")
        _line("begin, s", ours.begin, peer.begin if peer else None)
        memory = f"{ours.held / peer.held:9.0f}x of {peer.held:.0f}" if peer else ""
        print(f"{'memory, MiB':28} {'':9} {ours.held:9.0f}{memory}\n\nkeys, ms")
        for name, cost in ours.keys.items():
            _line(name, cost, peer.keys.get(name) if peer else None)


if __name__ == "__main__":
    main()
