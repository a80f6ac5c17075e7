"""Last use of cached files, by their modification time, and removal of unused ones."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

#: Seconds for which a used file counts as just used.
_USED: Final = 3600.0


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
