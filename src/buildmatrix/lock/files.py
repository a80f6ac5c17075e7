"""Writing a file so that nobody ever sees half of it."""

from __future__ import annotations

import os
from pathlib import Path

from buildmatrix.errors import UndecidedError


def write_atomically(path: Path, data: bytes) -> None:
    """Give `path` the content `data`; a file that has it already is left untouched.

    Raises `UndecidedError` when the file cannot be written.
    """
    passing = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.is_file() and path.read_bytes() == data:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        passing.write_bytes(data)
        passing.replace(path)
    except OSError as error:
        passing.unlink(missing_ok=True)
        raise UndecidedError(
            f"{path} cannot be written: {(error.strerror or str(error)).lower()}."
        ) from error
