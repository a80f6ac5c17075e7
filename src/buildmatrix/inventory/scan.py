"""The scanner as a program: `python3 scan.pyz ROOT OUTPUT.json` (see `inventory.archive`).

Exit codes: 0 the inventory was written, with what could not be read listed in it; 2 wrong usage;
3 the root cannot be read, or the output cannot be written.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from buildmatrix.inventory.codec import encode
from buildmatrix.inventory.collect import collect
from buildmatrix.trees.base import reason
from buildmatrix.trees.directory import DirectoryTree


def main(arguments: Sequence[str]) -> int:
    """Scan the folder ROOT and write its inventory; returns the exit code."""
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


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` so that `path` never holds a part of it. Raises OSError."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            # mkstemp makes files private; an output has the mode that the user's umask gives.
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(descriptor, 0o666 & ~mask)
            file.write(data)
        os.replace(name, path)  # noqa: PTH105 (mkstemp names files by string)
    except BaseException:
        os.unlink(name)  # noqa: PTH108
        raise
