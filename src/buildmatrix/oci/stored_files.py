"""Files of layouts and caches: durable names, last use, and removal of unused ones.

A file system may write a rename to disk before the content of the file. After a power cut, the file
is then empty or full of zeros, under a name that promises more. So no file here has its final name
before its content is on disk. The last use of a file is its modification time.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

#: Errors of file systems that cannot sync folders.
_CANNOT: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES})
#: Seconds for which a used file counts as just used.
_USED: Final = 3600.0


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


def note_use(path: Path, status: os.stat_result) -> None:
    """Mark the file at `path`, whose status is `status`, as used."""
    if time.time() - status.st_mtime > _USED:
        with suppress(OSError):  # a read-only file is still usable
            os.utime(path)


def make_room(files: Iterable[tuple[float, int, str]], limit: int, age: float) -> int:
    """Remove files, least recently used first; return the bytes freed. Raises OSError.

    Args:
        files: time of last use, bytes and path of each.
        limit: bytes that may stay.
        age: seconds after which an unused file is removed in any case.

    Files used within the last two hours stay, since a run may be using them.
    """
    now = time.time()
    by_use = sorted(files)
    excess = sum(size for _, size, _ in by_use) - limit
    freed = 0
    for used, size, path in by_use:
        if now - used <= 2 * _USED or (excess <= 0 and now - used <= age):
            break
        Path(path).unlink(missing_ok=True)
        excess -= size
        freed += size
    return freed
