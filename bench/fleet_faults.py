"""What `fleet scan` does when something fails under it: each fault, time and again, with a seed.

    python bench/fleet_faults.py [--times 20] [--images 12] [--only TEXT]... [--results FILE]

A fleet of so many small images in Debian's registry (the test stack unpacks it), behind a proxy
that fails on demand; a Dask scheduler with two worker processes; runs of `fleet scan`. A round is
`equal` where the first run said what an undisturbed one says, `undecided` where it said of some
images that it does not know (exit code 3) and the next run said the same as an undisturbed one,
else `wrong`. Prints a table in Markdown; what went wrong goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# `bench/html.py` stands in this folder, and is not Python's own module.
sys.path[0] = str(ROOT)
sys.path[1:1] = [str(ROOT / "tests/servers"), str(ROOT / "tests/integration")]


def rounds(times: int, images: int, only: list[str], results: Path | None) -> bool:
    """All faults; whether all went as they should."""
    from fleet_bed import bed
    from fleet_faults import FAULTS
    from scripts.stack.layout import Layout

    program = Layout.of_environment().cache / "registry-prefix/usr/bin/docker-registry"
    if not program.exists():
        raise SystemExit("there is no docker-registry; run `python3 -m scripts.stack up`")
    home = Path(tempfile.mkdtemp(prefix="fleet-faults-"))
    is_good = True
    print("| fault | rounds | equal | undecided | wrong |", "|---|---|---|---|---|", sep="\n")
    try:
        with bed(home, program, images) as held:
            for name, fault in FAULTS.items():
                if only and not any(text in name for text in only):
                    continue
                endings = Counter[str]()
                started = time.monotonic()
                for number in range(times):
                    held.proxy.reset()
                    folder = home / "round"
                    folder.mkdir()
                    try:
                        endings[fault(held, random.Random(f"{name} {number}"), folder)] += 1
                    except Exception:
                        endings["wrong"] += 1
                        is_good = False
                        print(f"{name}, round {number}:", file=sys.stderr)
                        traceback.print_exc()
                    finally:
                        shutil.rmtree(folder)
                counts = [endings[key] for key in ("equal", "undecided", "wrong")]
                print(f"| {name} | {times} | {' | '.join(map(str, counts))} |", flush=True)
                if results is not None:
                    seconds = round(time.monotonic() - started, 1)
                    made = {"fault": name, "images": images, "times": times}
                    line = {**made, **endings, "seconds": seconds}
                    with results.open("a") as file:
                        file.write(json.dumps(line) + "\n")
    finally:
        shutil.rmtree(home)
    return is_good


def main() -> int:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--images", type=int, default=12)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT")
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    return 0 if rounds(arguments.times, arguments.images, arguments.only, arguments.results) else 1


if __name__ == "__main__":
    sys.exit(main())
