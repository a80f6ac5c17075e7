"""Reading and writing of files that a user names: bounded, atomic, only if changed."""

from __future__ import annotations

import sys
from pathlib import Path

from buildmatrix.base.errors import UndecidedError
from buildmatrix.facts.inventory.archive import write_atomically
from buildmatrix.facts.trees.base import reason


def keep_out_of_git(folder: Path) -> None:
    """Create `folder` with a `.gitignore` for everything in it.

    An existing folder is left as it is, since a user may store its content. Raises `OSError`.
    """
    if not folder.is_dir():
        # Another thread may make it at the same time.
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")


def write_changed(path: Path, data: bytes) -> None:
    """Write `data` to `path`, unless the file has this content already.

    Creates missing folders. Raises `UndecidedError` if the file cannot be written.
    """
    try:
        if path.is_file() and path.read_bytes() == data:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        raise UndecidedError(f"{path} cannot be written: {reason(error)}.") from error


def begins_with(path: Path, text: str) -> bool:
    """Return True if a file begins with `text`, in ASCII. Raises `OSError`."""
    with path.open("rb") as file:
        return file.read(len(text)) == text.encode()


def read_at_most(path: str | Path, most: int) -> bytes:
    """Return up to `most` + 1 bytes of a file; the extra byte shows that it is too long.

    The path `-` is standard input. Raises `OSError`, and `ValueError` for an invalid path.
    """
    if path == "-":
        return sys.stdin.buffer.read(most + 1)
    with Path(path).open("rb") as file:
        return file.read(most + 1)
