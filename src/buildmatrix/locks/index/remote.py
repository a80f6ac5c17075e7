"""A file on a server, read in parts (RFC 9110, 14: range requests).

Opening requests the last 64 KiB. The answer has the size, and usually a wheel's central directory
and its metadata, so they cost this one request. `read` requests missing bytes, at least 16 KiB at
a time. `load` requests many parts at once, in parallel; neighbors become one request. `stream` goes
forward in requests that grow from 64 KiB to 8 MiB, and holds one chunk.

Each answer must be of the same version of the file as the first one: size, ETag and Last-Modified.
"""

from __future__ import annotations

import bisect
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor

from buildmatrix.locks.index.budget import GAP
from buildmatrix.locks.index.ranges import SPOOLED, Ranges
from buildmatrix.net.http.addresses import HttpAddress
from buildmatrix.net.http.failures import RequestError
from buildmatrix.net.http.requests import Requests

# Parts in memory


class Windows:
    """Disjoint parts of one file, `limit` bytes together; the least recently used are dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._starts: list[int] = []
        #: By start, the least recently used first.
        self._parts: dict[int, bytes] = {}
        #: Bytes that are held.
        self.bytes = 0

    def at(self, offset: int, end: int) -> bytes:
        """Return the held bytes from `offset` on, up to `end`; empty if there are none."""
        index = bisect.bisect_right(self._starts, offset) - 1
        if index < 0:
            return b""
        start = self._starts[index]
        part = self._parts[start][offset - start : end - start]
        if part:
            self._parts[start] = self._parts.pop(start)
        return part

    def next(self, offset: int, end: int) -> int:
        """Return the start of the first part between `offset` and `end`, else `end`."""
        index = bisect.bisect_right(self._starts, offset)
        return min(end, self._starts[index]) if index < len(self._starts) else end

    def add(self, start: int, data: bytes) -> None:
        """Hold `data`, the bytes from `start` on, unless it exceeds half of the limit."""
        if len(data) > self._limit // 2:
            return
        end = start + len(data)
        first = bisect.bisect_left(self._starts, start)
        for inner in self._starts[first : bisect.bisect_left(self._starts, end)]:
            if inner + len(self._parts[inner]) <= end:
                self._drop(inner)
        # Other parts may overlap its ends.
        while held := len(self.at(start, end)):
            start, data = start + held, data[held:]
        data = data[: self.next(start, end) - start]
        if not data:
            return
        while self.bytes + len(data) > self._limit:
            self._drop(next(iter(self._parts)))
        bisect.insort(self._starts, start)
        self._parts[start] = data
        self.bytes += len(data)

    def _drop(self, start: int) -> None:
        del self._starts[bisect.bisect_left(self._starts, start)]
        self.bytes -= len(self._parts.pop(start))


#: Minimum bytes of a request.
LEAST = 16 << 10
#: Bytes of one file in memory; the least recently used are dropped.
HELD = 2 * SPOOLED
#: Bytes of one read: lengths come from files that may lie.
LARGEST_READ = 32 << 20
#: Requests of a stream.
FIRST_STRIDE = 64 << 10
LAST_STRIDE = 8 << 20
#: Concurrent requests of `load` for one file.
PARALLEL = 6


class RemoteFile(Ranges):
    """One file on a server, with its last parts in memory. Made by `Client.open`.

    For one thread at a time. All methods raise `UndecidedError` for invalid answers.
    """

    def __init__(self, requests: Requests, address: HttpAddress, expected: int | None) -> None:
        super().__init__(requests, address, expected)
        self._windows = Windows(HELD)
        self._windows.add(self.start, self.data)

    @property
    def whole(self) -> bytes | None:
        """All bytes, if the first request returned them."""
        return self.data if self.start == 0 and len(self.data) == self.size else None

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return self._windows.bytes

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on, or fewer where the file ends."""
        offset, end = max(0, offset), min(offset + length, self.size)
        if end - offset > LARGEST_READ:
            raise RequestError(
                f"{self._address}: it claims a part of {end - offset} bytes, and at "
                f"most {LARGEST_READ} are read at once"
            )
        parts: list[bytes] = []
        while offset < end:
            part = self._windows.at(offset, end)
            if not part:
                stop = max(end, offset + LEAST)
                part = self._fetch(offset, self._windows.next(offset, min(stop, self.size)))
                self._windows.add(offset, part)
                part = part[: end - offset]
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def load(self, parts: Sequence[tuple[int, int]]) -> None:
        """Fetch the (offset, length) `parts`, so that reading them needs no request.

        At most half of `HELD` bytes are fetched; the rest is left for `read`.
        """
        requested = self._missing(parts)
        if len(requested) < 2:
            fetched = [self._fetch(*part) for part in requested]
        else:
            with ThreadPoolExecutor(min(PARALLEL, len(requested)), "range") as pool:
                fetched = list(pool.map(lambda part: self._fetch(*part), requested))
        for (start, _), data in zip(requested, fetched, strict=True):
            self._windows.add(start, data)

    def _missing(self, parts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return missing ranges as (start, stop), sorted, neighbors joined."""
        joined: list[tuple[int, int]] = []
        for offset, length in sorted(parts):
            start, stop = max(0, offset), min(offset + length, self.size)
            while start < stop:
                if held := self._windows.at(start, stop):
                    start += len(held)
                    continue
                end = self._windows.next(start, stop)
                if joined and start <= joined[-1][1] + GAP:
                    first, last = joined.pop()
                    joined.append((first, max(end, last)))
                else:
                    joined.append((start, end))
                start = end
        requested: list[tuple[int, int]] = []
        room = HELD // 2
        for start, stop in joined:
            stop = min(stop, start + room)
            room -= stop - start
            if start < stop:
                requested.append((start, stop))
        return requested

    def stream(self, offset: int = 0) -> Generator[bytes, None, None]:
        """Yield everything from `offset` on, in chunks as they arrive.

        A broken connection is resumed if the server supports ranges.
        """
        if not self.ranges:
            at = 0
            for chunk in self.everything():
                at += len(chunk)
                if at > offset:
                    yield chunk[-(at - offset) :]
            return
        stride = FIRST_STRIDE
        attempt = 0
        while offset < self.size:
            held = self._windows.at(offset, self.size)
            if held:
                offset += len(held)
                yield held
                continue
            stop = self._windows.next(offset, min(offset + stride, self.size))
            try:
                for chunk in self.part(offset, stop):
                    offset += len(chunk)
                    yield chunk
            except RequestError as error:
                attempt += 1
                self._requests.pause(error, attempt)
            else:
                # Not at each chunk: a server could break off after every byte, forever.
                attempt = 0
                stride = min(2 * stride, LAST_STRIDE)

    def _fetch(self, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop`, which lie in the file."""
        if not self.ranges:
            raise RequestError(
                f"{self._address} has {self.size} bytes, and its server does not support ranges "
                "(it ignores Range); use an index that does, or download the file"
            )
        return self._requests.retry(lambda: b"".join(self.part(start, stop)))
