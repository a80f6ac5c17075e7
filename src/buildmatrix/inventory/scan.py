"""The scanner as a program: `python3 scan.pyz ROOT OUTPUT.json` (see `inventory.archive`).

Exit codes: 0 the inventory was written, including a list of unreadable files; 2 wrong usage; 3 the
root cannot be read, or the output cannot be written.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from buildmatrix.inventory.codec import encode
from buildmatrix.inventory.collect import collect
from buildmatrix.inventory.writing import write_atomically
from buildmatrix.trees.base import reason
from buildmatrix.trees.directory import DirectoryTree


def main(arguments: Sequence[str]) -> int:
    """Scan the folder ROOT, write its inventory and return the exit code."""
    if len(arguments) != 2:
        print("usage: scan.pyz ROOT OUTPUT.json", file=sys.stderr)
        return 2
    root, output = map(Path, arguments)
    print(f"scanning {root}", file=sys.stderr, flush=True)
    try:
        with DirectoryTree(root) as tree:
            inventory = collect(tree)
    except OSError as error:
        print(f"{root} cannot be read: {reason(error)}", file=sys.stderr)
        return 3
    try:
        write_atomically(output, encode(inventory))
    except OSError as error:
        print(f"{output} cannot be written: {reason(error)}", file=sys.stderr)
        return 3
    stats = inventory.stats
    print(
        f"{stats.files} files, {stats.binaries} binaries, {len(inventory.distributions)}"
        f" distributions, {len(inventory.unread)} unread, {stats.seconds:.1f} s",
        file=sys.stderr,
    )
    return 0
