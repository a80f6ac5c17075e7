"""Chunks produced by another thread, ahead of their consumer.

Download, decompression and hashing release the interpreter lock, while facts are found in Python.
So a layer is read on two processors.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Empty, Full, Queue

#: Maximum chunks in the queue, up to 1 MiB each.
_READY = 8
#: Interval in seconds in which a waiting thread checks if it is still needed.
_PATIENCE = 0.1


class ReadAhead:
    """Iterator over `chunks`; only its thread touches them until `close` returns."""

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
                # Ctrl-C does not end a wait without a timeout.
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
        """Stop the thread and wait for it."""
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
