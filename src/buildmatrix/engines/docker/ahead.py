"""Read-ahead, to export and decompress an image concurrently."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from queue import Empty, Full, Queue

from buildmatrix.errors import Interrupted

#: Maximum chunks in memory.
HELD = 8
#: Seconds between checks for cancellation.
_INTERVAL = 0.2


def read_ahead(
    chunks: Iterable[bytes], cancelled: Callable[[], bool]
) -> Generator[bytes, None, None]:
    """Yield `chunks`, and read up to `HELD` of them ahead in a thread.

    Raises errors of `chunks`, and `Interrupted` soon after `cancelled` returns True, even during a
    slow read. The caller must also close the source of `chunks`, which ends the thread.
    """
    queue: Queue[bytes | Exception | None] = Queue(HELD)
    closed = threading.Event()

    def put(item: bytes | Exception | None) -> None:
        while not closed.is_set():
            try:
                return queue.put(item, timeout=_INTERVAL)
            except Full:
                continue

    def fill() -> None:
        try:
            for chunk in chunks:
                put(chunk)
                if closed.is_set():
                    return
            put(None)
        except Exception as error:
            put(error)

    threading.Thread(target=fill, name="ahead", daemon=True).start()
    try:
        while True:
            if cancelled():
                raise Interrupted("interrupted while an image was read")
            try:
                item = queue.get(timeout=_INTERVAL)
            except Empty:
                continue
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        closed.set()
