"""Progress lines on stderr, each with the seconds since the command began."""

from __future__ import annotations

import sys
import time

_BEGAN = time.monotonic()


def say(message: str) -> None:
    """Print one progress line; stdout stays free for `env` and `status`."""
    print(f"[{time.monotonic() - _BEGAN:6.1f}s] {message}", file=sys.stderr, flush=True)
