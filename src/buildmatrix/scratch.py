"""Folders for a while: readable by nobody else, and gone afterwards, also when a run was killed.

What lies in them may hold passwords: the inputs of a user, as an installer has to read them. A run
that is killed outright cannot clean up, so each folder is locked for as long as its owner lives,
and a later run removes those that nobody holds.
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
#: Seconds for which a folder that nobody holds may be just about to be locked by its maker.
_FRESH = 60


@contextmanager
def scratch(purpose: str, folder: Path | None = None) -> Iterator[Path]:
    """A new folder (mode 0700), removed at the end; `purpose` is a word in its name.

    It lies in `folder`, or where this machine has its temporary files. Raises OSError.
    """
    _sweep_once(tempfile.gettempdir() if folder is None else str(folder))
    with tempfile.TemporaryDirectory(
        prefix=f"{_PREFIX}{purpose}.", dir=folder, ignore_cleanup_errors=True
    ) as name:
        held = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Some network file systems have no locks: what is left there stays.
            with suppress(OSError):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield Path(name)
        finally:
            os.close(held)


def sweep(folder: Path) -> None:
    """Remove what runs of this user left in `folder` when they were killed."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with suppress(OSError):
                    _remove_if_left(entry.path)


@cache
def _sweep_once(folder: str) -> None:
    sweep(Path(folder))


def _remove_if_left(path: str) -> None:
    """Remove the folder `path` if it is ours, was not made just now, and nobody holds it."""
    held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(held)
        is_ours = status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077
        if is_ours and abs(time.time() - status.st_ctime) > _FRESH:
            # Whoever works in it holds this; the system lets go of it when a process ends.
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The files of an image have its rights; what is opened is listed after it.
            for place, folders, _ in os.walk(path):
                for name in folders:
                    inner = Path(place, name)
                    if not inner.is_symlink():
                        inner.chmod(0o700)
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(held)
