"""Files that a user names: written only where they change, never in part; read within a bound."""

from __future__ import annotations

import sys
from pathlib import Path

from buildmatrix.errors import UndecidedError
from buildmatrix.inventory.writing import write_atomically
from buildmatrix.trees.base import reason


def keep_out_of_git(folder: Path) -> None:
    """Make `folder`, with a `.gitignore` for all that will be in it.

    A folder that is there already is left as it is: somebody may keep what is in it. Raises
    `OSError`.
    """
    if not folder.is_dir():
        # Another thread may make it at the same time.
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")


def write_changed(path: Path, data: bytes) -> None:
    """Give `path` the content `data`; a file that has it already is left untouched.

    Missing folders are made. Raises `UndecidedError` when the file cannot be written.
    """
    try:
        if path.is_file() and path.read_bytes() == data:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        raise UndecidedError(f"{path} cannot be written: {reason(error)}.") from error


def read_at_most(path: str | Path, most: int) -> bytes:
    """A file, of which at most one byte more than `most` is read, so that too long a one shows.

    The text `-` stands for standard input. Raises OSError, and ValueError for what is no path.
    """
    if path == "-":
        return sys.stdin.buffer.read(most + 1)
    with Path(path).open("rb") as file:
        return file.read(most + 1)
