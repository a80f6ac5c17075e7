"""Temporary folders: private, and removed afterwards, also those of killed runs.

They may hold passwords, since an installer has to read a user's inputs. A killed run cannot clean
up; so each folder is locked while its owner lives, and a later run removes unlocked ones.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

_PREFIX = "buildmatrix."
#: Seconds after its creation in which an unlocked folder may be about to be locked by its creator.
_FRESH = 60


@contextmanager
def scratch(purpose: str, folder: Path | None = None) -> Iterator[Path]:
    """Create a folder (mode 0700) and remove it at the end; `purpose` is a word in its name.

    Its parent is `folder`, or by default the system's folder for temporary files. Raises `OSError`.
    """
    _sweep_once(tempfile.gettempdir() if folder is None else str(folder))
    with tempfile.TemporaryDirectory(
        prefix=f"{_PREFIX}{purpose}.", dir=folder, ignore_cleanup_errors=True
    ) as name:
        held = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Some network file systems have no locks; what killed runs leave there stays.
            with suppress(OSError):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield Path(name)
        finally:
            os.close(held)


def sweep(folder: Path) -> None:
    """Remove what this user's killed runs left in `folder`."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with suppress(OSError):
                    _remove_if_left(entry.path)


@cache
def _sweep_once(folder: str) -> None:
    sweep(Path(folder))


def _remove_if_left(path: str) -> None:
    """Remove the folder `path` if this user owns it, it is not new, and it is unlocked."""
    held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(held)
        is_ours = status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077
        if is_ours and abs(time.time() - status.st_ctime) > _FRESH:
            # Its user holds this lock; the system releases it when the process ends.
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Unpacked folders have the image's permissions; `os.walk` lists a folder after this.
            for place, folders, _ in os.walk(path):
                for name in folders:
                    inner = Path(place, name)
                    if not inner.is_symlink():
                        inner.chmod(0o700)
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(held)
