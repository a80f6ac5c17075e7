"""Atomic file writes."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, data: bytes, *, is_private: bool = False) -> None:
    """Write `data` so that `path` never holds a part of it. Raises OSError.

    The file has the mode given by the user's umask, or is for this user alone.
    """
    with open_atomically(path, is_private=is_private) as file:
        file.write(data)


@contextmanager
def open_atomically(path: Path, *, is_private: bool = False) -> Iterator[BinaryIO]:
    """Open a file that becomes `path` at the end of the `with`, or nothing.

    See `write_atomically`.
    """
    # Not `mkstemp`: only the system applies the umask without reading it, which would mean setting
    # it for all threads.
    unfinished = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(unfinished, flags, 0o600 if is_private else 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
