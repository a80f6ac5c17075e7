"""Progress lines on stderr, each with the seconds since the command began."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

_BEGAN = time.monotonic()
#: Seconds between two lines of one step.
EVERY = 5.0


def say(message: str) -> None:
    """Print one progress line; stdout stays free for `env` and `status`."""
    print(f"[{time.monotonic() - _BEGAN:6.1f}s] {message}", file=sys.stderr, flush=True)


def counted(step: str, items: Iterable[Item], total: int) -> Iterator[Item]:
    """Yield `items`, and say every `EVERY` seconds how many are done."""
    spoke = time.monotonic()
    for done, item in enumerate(items):
        if time.monotonic() - spoke > EVERY:
            spoke = time.monotonic()
            say(f"{step}: {done} of {total}")
        yield item
