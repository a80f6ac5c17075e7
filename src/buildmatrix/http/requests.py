"""Requests as this project makes them: redirects followed, failures tried again."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from buildmatrix.errors import UndecidedError
from buildmatrix.http.addresses import HttpAddress
from buildmatrix.http.failures import RequestError, refused
from buildmatrix.http.logins import Logins
from buildmatrix.http.patience import READING, Patience
from buildmatrix.http.trust import Trust

if TYPE_CHECKING:
    from buildmatrix.http.transport import Transport

#: Hops of one request; package indexes need one or two.
MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CHUNK = 64 << 10

T = TypeVar("T")
#: Gives what is sent, piece by piece, and from the start again for each request.
Body = Callable[[], Iterator[bytes]]


class Traffic:
    """Counts what went over the network; one counter may be a part of another."""

    def __init__(self, whole: Traffic | None = None) -> None:
        self._whole = whole
        self._lock = threading.Lock()
        self.bytes = 0
        self.requests = 0

    def add(self, count: int, requests: int = 0) -> None:
        """Count `count` bytes of a body, and `requests`."""
        with self._lock:
            self.bytes += count
            self.requests += requests
        if self._whole is not None:
            self._whole.add(count, requests)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What a server said. The body comes as it arrives, and only once."""

    status: int
    #: Names in lower case.
    headers: Mapping[str, str]
    body: Iterator[bytes]
    #: Who answered, after all redirects.
    address: HttpAddress

    def length(self) -> int | None:
        """Bytes of the body, where the server says so (h11 lets nothing but digits pass)."""
        length = self.headers.get("content-length")
        return None if length is None or len(length) > 18 else int(length)

    def read(self, limit: int) -> bytes:
        """The whole body, at most `limit` bytes after decompression. Raises RequestError."""
        data = bytearray()
        for chunk in _plain(self):
            data += chunk
            if len(data) > limit:
                raise RequestError(
                    f"{self.address} is larger than {limit >> 20} MiB, which no honest page is"
                )
        return bytes(data)


def _plain(answer: HttpAnswer) -> Iterator[bytes]:
    coding = answer.headers.get("content-encoding", "identity").lower()
    if coding == "identity":
        yield from answer.body
        return
    if coding != "gzip":
        raise RequestError(
            f"{answer.address} is compressed with {coding!r}, which was not asked for"
        )
    decoder = zlib.decompressobj(wbits=31)
    try:
        for chunk in answer.body:
            while chunk:
                yield decoder.decompress(chunk, _CHUNK)
                chunk = decoder.unconsumed_tail
            if decoder.eof:
                break
    except zlib.error as error:
        raise RequestError(f"{answer.address} is damaged: {error}", again=True) from None
    if not decoder.eof:
        raise RequestError(f"{answer.address} ends too early", again=True)


class _Reachability:
    """Reachable hosts. One thread retries a silent host while the others wait for it."""

    def __init__(self, patience: Patience, clock: Callable[[], float]) -> None:
        self._patience = patience
        self._clock = clock
        self._changed = threading.Condition()
        self._answered: set[str] = set()
        #: Host → the thread that tries it again.
        self._trying: dict[str, int] = {}
        #: Host → when it may be asked again, and the failure that it was given up for.
        self._given_up: dict[str, tuple[float, RequestError]] = {}
        self._closed = False

    def check(self, host: str) -> None:
        """Raise the failure that a host was given up for, as long as it is."""
        end, error = self._given_up.get(host, (0.0, None))
        if error is not None and self._clock() < end:
            raise _about_host(error)

    def is_silent(self, error: RequestError) -> bool:
        """Return True if the host failed, and not one of its files."""
        return bool(error.of_host) and (error.unconnected or error.host not in self._answered)

    def is_lost(self, error: RequestError) -> bool:
        """Return True if a retry cannot help: TCP has retried already."""
        return error.connect_timed_out and error.host not in self._answered

    def note_answer(self, host: str) -> None:
        """Note that a host answered, and wake those who wait for it."""
        if host in self._answered and not self._trying and not self._given_up:
            return
        with self._changed:
            self._answered.add(host)
            self._given_up.pop(host, None)
            self._trying.pop(host, None)
            self._changed.notify_all()

    def give_up(self, error: RequestError) -> None:
        """Answer all questions to a host with `error` for a while."""
        with self._changed:
            self._given_up[error.host] = self._clock() + self._patience.rest, error
            self._trying.pop(error.host, None)
            self._changed.notify_all()

    def leave(self, host: str) -> None:
        """End the tries of this thread, so that another one may go on."""
        if self._trying.get(host) == threading.get_ident():
            with self._changed:
                self._trying.pop(host, None)
                self._changed.notify_all()

    def is_tried_by_another(self, host: str) -> bool:
        """Wait for the thread that tries a host again; False where this thread is to do it.

        Raises the failure that the host was given up for.
        """
        this = threading.get_ident()
        self.check(host)
        with self._changed:
            other = self._trying.setdefault(host, this)
            if other == this:
                return False
            # Whoever stops trying without a word is replaced.
            if not self._changed.wait_for(
                lambda: self._closed or self._trying.get(host) != other, self._patience.request
            ):
                self._trying[host] = this
                return False
        self.check(host)
        return True

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _about_host(error: RequestError) -> RequestError:
    """The last word about a host: no reason to try again, nor to give it up once more."""
    last = RequestError(error.of_host)
    last.host = error.host
    return last


class Requests:
    """Sends requests for all threads. Opens nothing before the first one.

    `clock` says how long a host that gave no answer has been left alone.
    """

    def __init__(
        self,
        patience: Patience,
        logins: Logins,
        trust: Trust,
        *,
        offline: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.patience = patience
        self.offline = offline
        self.traffic = Traffic()
        #: Who gave no answer in all tries, and may later: host and port.
        self.away: set[str] = set()
        self._logins = logins
        self._trust = trust
        self._transport: Transport | None = None
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._reachability = _Reachability(patience, clock)

    def close(self) -> None:
        """Close all connections, and end all waiting."""
        self._closed.set()
        self._reachability.close()
        with self._lock:
            if self._transport is not None:
                self._transport.close()

    def again(self, work: Callable[[], T]) -> T:
        """What `work` returns; it is called again after a failure that may pass.

        Raises RequestError: that of the last try, or one that cannot pass.
        """
        attempt = 0
        while True:
            try:
                return work()
            except RequestError as error:
                attempt += 1
                self.pause(error, attempt)

    def pause(self, error: RequestError, attempt: int) -> None:
        """Wait before one more try after the failure number `attempt`; raises it to give up.

        A host that gave no answer in all tries is given up: what others ask of it fails at once.
        """
        patience, reachability = self.patience, self._reachability
        pause = patience.pause * 2 ** (attempt - 1)
        if error.wait is not None:
            pause = max(pause, error.wait)
        is_silent = reachability.is_silent(error)
        if (
            not error.again
            or attempt >= patience.tries
            or pause > patience.longest_pause
            or reachability.is_lost(error)
        ):
            if error.again:
                self.away.add(error.host)
            if is_silent:
                reachability.give_up(error)
                raise _about_host(error) from error
            reachability.leave(error.host)
            raise error
        if not is_silent:
            reachability.leave(error.host)
        elif reachability.is_tried_by_another(error.host) and not self._closed.is_set():
            return
        if self._closed.wait(pause):
            raise error

    @contextmanager
    def send(
        self,
        address: HttpAddress,
        headers: Mapping[str, str],
        *,
        method: str = "GET",
        length: int = 0,
        accepted: Collection[int] = (200,),
        traffic: Traffic | None = None,
        logins: Logins | None = None,
        body: Body | None = None,
        direct: bool = False,
    ) -> Iterator[HttpAnswer]:
        """One try: the first answer that is no redirect, its status one of `accepted`.

        Raises RequestError, here or while the body is read. Redirects are followed for what only
        reads.

        Args:
            address: who is asked, and for what.
            headers: without those that say who asks.
            method: of HTTP.
            length: bytes that the bodies of request and answer may have, which decides how long
                they may take.
            accepted: statuses whose answers are handed out; others are raised.
            traffic: what is counted by, in place of the common counter.
            logins: in place of those that all requests share.
            body: what is sent; has to give the same again for each request.
            direct: past all proxies.
        """
        if self.offline:
            raise RequestError(f"{address} was not asked for: --offline was given")
        transport = self._connect()
        traffic = traffic or self.traffic
        for _ in range(MOST_REDIRECTS + 1):
            login = (logins or self._logins).of(address)
            sent = [("User-Agent", _user_agent()), *headers.items()]
            if login is not None:
                sent.append(("Authorization", login.header()))
            self._reachability.check(address.authority)
            traffic.add(0, requests=1)
            seconds = self.patience.seconds(length)
            try:
                sending = transport.send(method, address, sent, seconds, body, direct=direct)
                with sending as (status, fields, data):
                    self._reachability.note_answer(address.authority)
                    answer = HttpAnswer(status, fields, _counted(data, traffic), address)
                    if status in accepted:
                        yield answer
                        return
                    drain(answer)
                    is_redirect = status in _REDIRECTS and method in READING
                    if not is_redirect or "location" not in fields:
                        raise refused(status, fields, address, login.source if login else None)
            except RequestError as error:
                error.host = address.authority
                raise
            address = _redirected(address, fields["location"])
        raise RequestError(f"{address} redirects more than {MOST_REDIRECTS} times")

    def _connect(self) -> Transport:
        with self._lock:
            if self._closed.is_set():
                raise RequestError("all connections were closed")
            if self._transport is None:
                from buildmatrix.http.transport import Transport

                self._transport = Transport(self.patience, self._trust)
            return self._transport


def _redirected(address: HttpAddress, location: str) -> HttpAddress:
    try:
        target = address.join(location)
    except (UndecidedError, ValueError):
        raise RequestError(f"{address} redirects to what is no http or https URL") from None
    if address.scheme == "https" and target.scheme != "https":
        raise RequestError(f"{address} redirects from https to http, which is not followed")
    # What a server writes into a redirect is no credential of the user's.
    return target.bare()


def drain(answer: HttpAnswer) -> None:
    """Read a short body that nobody wants: else its connection cannot be used again."""
    length = answer.length()
    if length is not None and length <= _CHUNK:
        for _ in answer.body:
            pass


def _counted(body: Iterator[bytes], traffic: Traffic) -> Iterator[bytes]:
    for chunk in body:
        traffic.add(len(chunk))
        yield chunk


def _user_agent() -> str:
    from buildmatrix import __version__

    return f"buildmatrix/{__version__}"
