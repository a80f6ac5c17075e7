"""Names that survive a power cut: no file stands under its final name before its bytes are on disk.

A file system may write a rename to disk before the bytes of the file. After a power cut the file
is empty then, or of the right size and full of zeros, and stands under a name that promises more.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO, Final

#: What file systems say that have no such call for folders.
_CANNOT: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES})


def rename_written(file: BinaryIO, unfinished: Path, path: Path) -> None:
    """Give `file`, which was written at `unfinished`, the name `path`, once it is on disk.

    Raises OSError: what a disk could not take shows here at the latest.
    """
    file.flush()
    os.fsync(file.fileno())
    unfinished.replace(path)


def sync_folder(folder: Path) -> None:
    """Have the names in `folder` on disk, where its file system can. Raises OSError."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
