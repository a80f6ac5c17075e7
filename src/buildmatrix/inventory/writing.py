"""Writes a file as a whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, data: bytes, *, is_private: bool = False) -> None:
    """Write `data` so that `path` never holds a part of it. Raises OSError.

    The file has the mode that the user's umask gives, or is for this user alone.
    """
    with atomically(path, is_private=is_private) as file:
        file.write(data)


@contextmanager
def atomically(path: Path, *, is_private: bool = False) -> Iterator[BinaryIO]:
    """A file that becomes `path` at the end of the `with`, or nothing. See `write_atomically`."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if not is_private:  # as mkstemp makes it
                mask = os.umask(0)
                os.umask(mask)
                os.fchmod(descriptor, 0o666 & ~mask)
            yield file
        os.replace(name, path)  # noqa: PTH105 (mkstemp names files by string)
    except BaseException:
        os.unlink(name)  # noqa: PTH108
        raise
