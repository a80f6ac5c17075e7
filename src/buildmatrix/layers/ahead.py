"""Chunks that another thread makes, some ahead of who takes them.

Fetching, inflating and hashing let other threads run meanwhile; what a file is, is found out in
Python. So a layer is read on two processors.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Empty, Full, Queue

#: Chunks that are ready at once, of 1 MiB at most.
_READY = 8
#: Seconds after which a thread that waits looks whether it is still needed.
_PATIENCE = 0.1


class Ahead:
    """An iterator over `chunks`, which only the other thread touches until `close` returns."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._ready: Queue[bytes | Exception | None] = Queue(_READY)
        self._is_closed = threading.Event()
        self._is_done = False
        self._thread = threading.Thread(target=self._work, name="layer", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        while not self._is_done:
            try:
                # Ctrl-C ends no wait without a limit.
                chunk = self._ready.get(timeout=_PATIENCE)
            except Empty:
                continue
            if isinstance(chunk, bytes):
                return chunk
            self._is_done = True
            if chunk is not None:
                raise chunk
        raise StopIteration

    def close(self) -> None:
        """Make no more chunks; the thread has ended then."""
        self._is_closed.set()
        self._thread.join()

    def _work(self) -> None:
        end: Exception | None = None
        try:
            for chunk in self._chunks:
                if not self._put(chunk):
                    return
        except Exception as error:
            end = error
        self._put(end)

    def _put(self, chunk: bytes | Exception | None) -> bool:
        while not self._is_closed.is_set():
            try:
                self._ready.put(chunk, timeout=_PATIENCE)
            except Full:
                continue
            return True
        return False
