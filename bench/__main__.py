"""Runs benchmarks, each in a process of its own, and says when and with what they were made.

    python -m bench                          # small forms of those that need nothing else, for CI
    python -m bench --all --json results.json
    python -m bench --all scan audit

`--all` takes the sizes of the tables in docs, and also those that need a package index or Docker.
The module of each says what its lines mean.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from bench.fleet_registry import fill
from bench.root import FILES, make

HERE = Path(__file__).parent

#: Name → arguments of the small form, if there is one, and of the whole; `{root}` is a made root
#: file system, `{fleet}` the storage of a registry with 10,000 images.
BENCHES: dict[str, tuple[str | None, str]] = {
    "scan": (
        "--tree {root} --runs 1 headers",
        f"--tree {Path(os.__file__).parent}/site-packages --root {{root}}",
    ),
    "html": ("--findings 100 --runs 1", ""),
    "explore": (None, ""),
    "matrix": (None, "lock generate build"),
    "nodes": (None, ""),
    "audit": (None, ""),
    "build": (None, ""),
    "runner": (None, ""),
    "pipeline": (None, "help noop build"),
    "fleet": (None, "measure {fleet} {fleet}.jsonl"),
}
SMALL_ROOT = 60
FLEET = 10_000


def run(name: str, arguments: list[str]) -> dict[str, object]:
    """Run one and pass its output on."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, str(HERE / f"{name}.py"), *arguments]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"\n# {name} {' '.join(arguments)}\n{done.stdout}", flush=True)
    return {
        "bench": name,
        "arguments": arguments,
        "exit": done.returncode,
        "seconds": round(time.monotonic() - began, 2),
        "cpu": round(used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime, 2),
        "output": done.stdout.splitlines(),
    }


def main() -> None:
    """Run what was asked for; exit with 1 if one of them failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(BENCHES))
    parser.add_argument("--all", action="store_true", help="whole sizes, and all benchmarks")
    parser.add_argument("--json", type=Path, help="write the results to this file as well")
    options = parser.parse_args()
    if unknown := set(options.names) - BENCHES.keys():
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}")
    git = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    made = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": subprocess.run(git, check=False, capture_output=True, text=True).stdout.strip(),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.release()}",
        "small": not options.all,
    }
    print(json.dumps(made))
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        tree, fleet = Path(folder, "root"), Path(folder, "fleet")
        for name, (small, whole) in BENCHES.items():
            words = whole if options.all else small
            if words is None or (options.names and name not in options.names):
                continue
            if "{root}" in words and not tree.exists():
                make(tree, FILES if options.all else SMALL_ROOT)
            if "{fleet}" in words:
                fill(fleet, FLEET)
            rows.append(run(name, words.format(root=tree, fleet=fleet).split()))
    if options.json:
        options.json.write_text(json.dumps({**made, "benches": rows}, indent=1) + "\n")
    sys.exit(any(row["exit"] for row in rows))


if __name__ == "__main__":
    main()
