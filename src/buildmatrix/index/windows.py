"""The parts of a file that are in memory."""

from __future__ import annotations

import bisect


class Windows:
    """Parts of one file that do not overlap, `limit` bytes together; the least used go first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._starts: list[int] = []
        self._parts: dict[int, bytes] = {}
        #: Starts, the least recently used first.
        self._order: dict[int, None] = {}
        #: Bytes that are held.
        self.bytes = 0

    def at(self, offset: int, end: int) -> bytes:
        """What is held from `offset` on, up to `end`; empty where nothing is."""
        index = bisect.bisect_right(self._starts, offset) - 1
        if index < 0:
            return b""
        start = self._starts[index]
        part = self._parts[start][offset - start : end - start]
        if part:
            self._order[start] = self._order.pop(start)
        return part

    def next(self, offset: int, end: int) -> int:
        """Where the first part begins that lies between `offset` and `end`, else `end`."""
        index = bisect.bisect_right(self._starts, offset)
        return min(end, self._starts[index]) if index < len(self._starts) else end

    def add(self, start: int, data: bytes) -> None:
        """Hold `data`, the bytes from `start` on; more than half of the limit is not held."""
        if len(data) > self._limit // 2:
            return
        end = start + len(data)
        first = bisect.bisect_left(self._starts, start)
        for inner in self._starts[first : bisect.bisect_left(self._starts, end)]:
            if inner + len(self._parts[inner]) <= end:
                self._drop(inner)
        # Others may still reach into it at either end.
        while held := len(self.at(start, end)):
            start, data = start + held, data[held:]
        data = data[: self.next(start, end) - start]
        if not data:
            return
        while self.bytes + len(data) > self._limit:
            self._drop(next(iter(self._order)))
        bisect.insort(self._starts, start)
        self._parts[start] = data
        self._order[start] = None
        self.bytes += len(data)

    def _drop(self, start: int) -> None:
        del self._starts[bisect.bisect_left(self._starts, start)]
        del self._order[start]
        self.bytes -= len(self._parts.pop(start))
