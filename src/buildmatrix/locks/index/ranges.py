"""Range requests for one file on a server, and checks of their answers (RFC 9110, 14).

Opening requests the last 64 KiB. The answer has the size, and usually a wheel's central directory
and its metadata, so they cost this one request. `read` requests missing bytes, at least 16 KiB at
a time. `load` requests many parts at once, in parallel; neighbors become one request. `stream` goes
forward in requests that grow from 64 KiB to 8 MiB, and holds one chunk.

Each answer must be of the same version of the file as the first one: size, ETag and Last-Modified.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import astuple

from msgspec import Struct

from buildmatrix.locks.index.model import GAP, FileVersion
from buildmatrix.net.addresses import HttpAddress, RequestError
from buildmatrix.net.requests import HttpResponse, Requests, Traffic

#: Bytes of the first request.
TAIL = 64 << 10
#: Maximum size of a file that is read into memory from a server without ranges.
SPOOLED = 2 << 20

#: "first-last/complete" (14.4). 18 digits are an exabyte.
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII | re.IGNORECASE)
_UNSATISFIED = re.compile(r"bytes \*/(\d{1,18})", re.ASCII | re.IGNORECASE)
#: Status codes of servers with ranges but no suffix ranges, or with none at all.
_NO_SUFFIX = frozenset({400, 405, 416, 501})
#: Status codes of an expired redirect target.
_EXPIRED = frozenset({401, 403, 404, 410})


def _read_version(answer: HttpResponse, size: int) -> FileVersion:
    return FileVersion(size, answer.headers.get("etag"), answer.headers.get("last-modified"))


class _FileEnd(Struct, frozen=True):
    """Result of the first request."""

    version: FileVersion
    #: Bytes from `start` on; empty if the server has no ranges.
    start: int = 0
    data: bytes = b""
    ranges: bool = True


class Ranges:
    """Requests for parts of one file. `expected`: its announced size, if known.

    The first request is sent at once. All methods raise RequestError for invalid answers, and for
    answers about another version of the file.
    """

    def __init__(self, requests: Requests, address: HttpAddress, expected: int | None) -> None:
        self._requests = requests
        self._address = address
        # Address after redirects. It may stop working: signed addresses expire.
        self._place = address
        self.traffic = Traffic(requests.traffic)
        end = self._open(expected)
        #: Version in the first answer.
        self.version = end.version
        #: Bytes in all.
        self.size = end.version.size
        #: Bytes known from the first request: those from `start` on.
        self.start, self.data = end.start, end.data
        #: True if the server supports ranges.
        self.ranges = end.ranges

    @property
    def bytes_read(self) -> int:
        """Bytes received over the network."""
        return self.traffic.bytes

    def part(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes from `start` to `stop`, which are in the file, as they arrive."""
        headers = {"Range": f"bytes={start}-{stop - 1}"}
        with self._send(headers, stop - start, (200, 206, 416)) as answer:
            if answer.status == 416:
                raise RequestError(
                    f"{answer.address} has no bytes {start} to {stop - 1}: it changed while it was "
                    "read, or its server is wrong about its size"
                )
            if answer.status == 200:
                # Servers may answer a range of the whole file without a range.
                if stop - start == self.size:
                    yield from self._iter_all(answer)
                    return
                self._check_version(answer, answer.length())
                raise RequestError(
                    f"{answer.address} supported ranges at first, and now sends the whole file"
                )
            first, last, total = _parse_content_range(answer)
            self._check_version(answer, total)
            if (first, last) != (start, stop - 1):
                raise RequestError(
                    f"{answer.address} gives bytes {first} to {last}, and {start} to {stop - 1} "
                    "were asked for"
                )
            yield from _iter_exactly(answer, stop - start)

    def everything(self) -> Iterator[bytes]:
        """Yield the whole file as it arrives."""
        with self._send({}, self.size) as answer:
            yield from self._iter_all(answer)

    def _iter_all(self, answer: HttpResponse) -> Iterator[bytes]:
        self._check_version(answer, answer.length())
        yield from _iter_exactly(answer, self.size)

    def _check_version(self, answer: HttpResponse, size: int | None) -> None:
        """Raise RequestError if `answer`, of a file of `size` bytes, is of another version."""
        present = _read_version(answer, self.size if size is None else size)
        for then, now in zip(astuple(self.version), astuple(present), strict=True):
            if then is not None and now is not None and then != now:
                raise RequestError(f"{answer.address} changed while it was read; run this again")

    def _open(self, expected: int | None) -> _FileEnd:
        end = self._requests.retry(lambda: self._ask_end(expected))
        if isinstance(end, int):
            size = end
            end = self._requests.retry(lambda: self._ask_end(size))
        if isinstance(end, int):
            raise RequestError(f"{self._address}: its server does not report the size")
        return end

    def _ask_end(self, size: int | None) -> _FileEnd | int:
        """Request the end of a file of `size` bytes; return only the size without suffix ranges."""
        ranges = f"bytes={max(0, size - TAIL)}-{size - 1}" if size else f"bytes=-{TAIL}"
        accepted = {200, 206, 416} | (frozenset() if size else _NO_SUFFIX)
        with self._send({"Range": ranges}, SPOOLED, accepted) as answer:
            if answer.status == 206:
                return self._take_end(answer, size)
            if answer.status == 200:
                return self._take_whole(answer, size)
            total = _UNSATISFIED.fullmatch(answer.headers.get("content-range", ""))
            if total is not None:
                self._check_size(answer, size, int(total[1]))
                if int(total[1]) == 0:
                    return _FileEnd(_read_version(answer, 0))
                if size is None:
                    return int(total[1])
            if size:
                raise RequestError(f"{answer.address} refuses to give bytes {ranges[6:]}")
        return self._ask_size()

    def _take_end(self, answer: HttpResponse, size: int | None) -> _FileEnd | int:
        first, last, total = _parse_content_range(answer)
        if total is None:
            if not size:
                return self._ask_size()
            total = size
        self._check_size(answer, size, total)
        if (first, last) != (max(0, total - TAIL), total - 1):
            raise RequestError(
                f"{answer.address} gives bytes {first} to {last} of {total}, and the last "
                f"{TAIL} were asked for"
            )
        data = b"".join(_iter_exactly(answer, last - first + 1))
        return _FileEnd(_read_version(answer, total), first, data)

    def _take_whole(self, answer: HttpResponse, size: int | None) -> _FileEnd | int:
        length = answer.length()
        if length is not None:
            self._check_size(answer, size, length)
        if length is None and not size:
            data = _read_up_to(answer, SPOOLED)
            return _FileEnd(_read_version(answer, len(data)), 0, data)
        length = length or size or 0
        version = _read_version(answer, length)
        if length <= SPOOLED:
            return _FileEnd(version, 0, b"".join(_iter_exactly(answer, length)))
        # A server that was asked for a suffix may still know other ranges.
        return _FileEnd(version, ranges=False) if size else length

    def _ask_size(self) -> int:
        with self._send({}, 0, method="HEAD") as answer:
            length = answer.length()
            if not length:
                raise RequestError(f"{answer.address}: its server does not report the size")
            return length

    def _check_size(self, answer: HttpResponse, expected: int | None, size: int) -> None:
        if expected and size != expected:
            raise RequestError(
                f"{answer.address} has {size} bytes, but {expected} were announced: it is not the "
                "file in the lock or on the index page"
            )

    @contextmanager
    def _send(
        self,
        headers: Mapping[str, str],
        length: int,
        accepted: Collection[int] = (200,),
        method: str = "GET",
    ) -> Iterator[HttpResponse]:
        headers = {"Accept-Encoding": "identity", **headers}

        def enter(address: HttpAddress) -> HttpResponse:
            return stack.enter_context(
                self._requests.send(
                    address,
                    headers,
                    method=method,
                    length=length,
                    accepted=accepted,
                    traffic=self.traffic,
                )
            )

        with ExitStack() as stack:
            try:
                answer = enter(self._place)
            except RequestError as error:
                if error.status not in _EXPIRED or self._place == self._address:
                    raise
                answer = enter(self._address)
            self._place = answer.address
            yield answer


def _parse_content_range(answer: HttpResponse) -> tuple[int, int, int | None]:
    """Return first and last byte, and the size if it is given. Raises RequestError."""
    if answer.headers.get("content-type", "").lower().startswith("multipart/"):
        raise RequestError(
            f"{answer.address} answers one range with several (multipart/byteranges)"
        )
    content_range = answer.headers.get("content-range", "")
    match = _CONTENT_RANGE.fullmatch(content_range)
    if match is None:
        raise RequestError(
            f"{answer.address} answers a range with Content-Range {content_range[:60]!r}"
        )
    first, last = int(match[1]), int(match[2])
    total = None if match[3] == "*" else int(match[3])
    if last < first or (total is not None and last >= total):
        raise RequestError(f"{answer.address} sends an impossible range: {content_range!r}")
    return first, last, total


def _iter_identity(answer: HttpResponse) -> Iterator[bytes]:
    """Yield the unencoded body. Raises RequestError if it was compressed on the way."""
    coding = answer.headers.get("content-encoding", "identity").lower()
    if coding != "identity":
        raise RequestError(
            f"{answer.address} was compressed with {coding[:20]!r} on the way, although "
            "the request refused that"
        )
    return answer.body


def _iter_exactly(answer: HttpResponse, length: int) -> Iterator[bytes]:
    """Yield the body, which must have `length` bytes. Raises RequestError."""
    at = 0
    for chunk in _iter_identity(answer):
        at += len(chunk)
        if at > length:
            raise RequestError(f"{answer.address} sends more bytes than announced")
        yield chunk
    if at < length:
        raise RequestError(
            f"{answer.address}: the range was cut short after {at} of {length} bytes",
            is_temporary=True,
        )


def _read_up_to(answer: HttpResponse, most: int) -> bytes:
    """Read the body of an answer without a length. Raises RequestError."""
    data = bytearray()
    for chunk in _iter_identity(answer):
        data += chunk
        if len(data) > most:
            raise RequestError(
                f"{answer.address}: its server supports neither ranges nor `Content-Length`"
            )
    return bytes(data)


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
        requested = self._find_missing(parts)
        if len(requested) < 2:
            fetched = [self._fetch(*part) for part in requested]
        else:
            with ThreadPoolExecutor(min(PARALLEL, len(requested)), "range") as pool:
                fetched = list(pool.map(lambda part: self._fetch(*part), requested))
        for (start, _), data in zip(requested, fetched, strict=True):
            self._windows.add(start, data)

    def _find_missing(self, parts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
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
