"""Durable files: none has its final name before its content is on disk.

A file system may write a rename to disk before the content of the file. After a power cut, the file
is then empty or full of zeros, under a name that promises more.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO, Final

#: Errors of file systems that cannot sync folders.
_CANNOT: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES})


def rename_written(file: BinaryIO, unfinished: Path, path: Path) -> None:
    """Move `file` from `unfinished` to `path` once its content is on disk.

    Raises OSError: write errors show here at the latest.
    """
    file.flush()
    os.fsync(file.fileno())
    unfinished.replace(path)


def sync_folder(folder: Path) -> None:
    """Sync the names in `folder` to disk, if its file system can. Raises OSError."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
