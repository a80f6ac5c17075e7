"""What a scan of real wheels costs: seconds, bytes and memory for each, beside inflating it.

Each wheel is read in a process of its own, so that peak memory is its own. Inflating every member
with zlib, to nowhere, is the floor for anything that looks into a wheel.

    python bench/corpus.py                      # all wheels of the corpus that are in the cache
    python bench/corpus.py --wheels FOLDER      # all wheels in a folder
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import zipfile
from pathlib import Path

CHUNK = 1 << 20


def inflate(path: Path) -> int:
    """Inflates all members of a wheel; returns their bytes."""
    total = 0
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            with archive.open(member) as stream:
                while chunk := stream.read(CHUNK):
                    total += len(chunk)
    return total


def scan(path: Path) -> dict[str, int]:
    """Scans a wheel and matches it with the catalogue."""
    from buildmatrix.catalogue.load import load
    from buildmatrix.catalogue.match import evidence
    from buildmatrix.inventory.collect import collect
    from buildmatrix.trees.wheel import WheelTree

    with WheelTree(path) as tree:
        inventory = collect(tree)
    return {
        "binaries": len(inventory.binaries),
        "unread": len(inventory.unread),
        "evidence": len(evidence(inventory, load())),
    }


def measure(what: str, path: Path) -> None:
    """Runs in a process of its own: prints one JSON object."""
    started = time.perf_counter()
    found = {"bytes": inflate(path)} if what == "inflate" else scan(path)
    seconds = time.perf_counter() - started
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(json.dumps({**found, "seconds": seconds, "peak": max(own, children)}))


def run(what: str, path: Path) -> dict[str, float]:
    """The measurement of one wheel."""
    command = [sys.executable, __file__, "--measure", what, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> None:
    """Measures every wheel and prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wheels", type=Path, default=Path.home() / ".cache/buildmatrix/corpus")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure[0], Path(options.measure[1]))
        return
    wheels = sorted(options.wheels.glob("*.whl"), key=lambda path: path.stat().st_size)
    if not wheels:
        sys.exit(f"{options.wheels} holds no wheels; tests/corpus/check_corpus.py fetches them")
    print(f"{'wheel':44} {'MB':>7} {'scan s':>7} {'zlib s':>7} {'ratio':>6} {'peak MiB':>8}")
    together = [0.0, 0.0]
    for path in wheels:
        scanned, inflated = run("scan", path), run("inflate", path)
        together[0] += scanned["seconds"]
        together[1] += inflated["seconds"]
        print(
            f"{path.name[:44]:44} {path.stat().st_size / 1e6:7.1f} {scanned['seconds']:7.2f} "
            f"{inflated['seconds']:7.2f} {scanned['seconds'] / inflated['seconds']:6.2f} "
            f"{scanned['peak'] / 1024:8.0f}",
            flush=True,
        )
    print(
        f"{'all':44} {'':7} {together[0]:7.1f} {together[1]:7.1f} {together[0] / together[1]:6.2f}"
    )


if __name__ == "__main__":
    main()
