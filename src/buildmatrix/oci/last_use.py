"""When a file was last used, by the time of its change: what goes first where room is short."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

#: Seconds for which a file that was used counts as just used.
_USED: Final = 3600.0


def note_use(path: Path, status: os.stat_result) -> None:
    """Count the file at `path`, which has that `status`, as used."""
    if time.time() - status.st_mtime > _USED:
        with suppress(OSError):  # what is read-only still serves
            os.utime(path)


def make_room(files: Iterable[tuple[float, int, str]], limit: int, age: float) -> int:
    """Remove files, the longest unused first; the bytes that were freed. Raises OSError.

    Args:
        files: of each the time of its last use, its bytes and its path.
        limit: bytes that may stay.
        age: seconds after which an unused file goes in any case.

    What was used within the last two hours stays, since a run may be at work with it.
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
