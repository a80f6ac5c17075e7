"""HTTP requests with redirects and retries."""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.strict import parse_json
from buildmatrix.net.addresses import (
    READING_METHODS,
    HttpAddress,
    Logins,
    Patience,
    RequestError,
    Trust,
    error_for_status,
)

if TYPE_CHECKING:
    from buildmatrix.net.transport import Transport

_logger = logging.getLogger(__name__)
#: Maximum redirects per request; package indexes need one or two.
MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CHUNK = 64 << 10

T = TypeVar("T")
#: Returns the body of a request from its start, for each attempt.
Body = Callable[[], Iterator[bytes]]


class Traffic:
    """Counts of bytes and requests; a counter may also add to a larger one."""

    def __init__(self, whole: Traffic | None = None) -> None:
        self._whole = whole
        self._lock = threading.Lock()
        self.bytes = 0
        self.requests = 0

    def add(self, count: int, requests: int = 0) -> None:
        """Add `count` bytes of a body, and `requests`."""
        with self._lock:
            self.bytes += count
            self.requests += requests
        if self._whole is not None:
            self._whole.add(count, requests)


class HttpResponse(Struct, frozen=True):
    """A response. Its body is read as it arrives, once."""

    status: int
    #: Names in lower case.
    headers: Mapping[str, str]
    body: Iterator[bytes]
    #: Address of the response, after all redirects.
    address: HttpAddress

    def length(self) -> int | None:
        """Return the length of the body, if the server states it (h11 only accepts digits)."""
        length = self.headers.get("content-length")
        return None if length is None or len(length) > 18 else int(length)

    def read(self, limit: int) -> bytes:
        """Return the whole body, at most `limit` bytes decompressed. Raises RequestError."""
        data = bytearray()
        for chunk in _iter_decoded(self):
            data += chunk
            if len(data) > limit:
                raise RequestError(
                    f"{self.address}: response exceeds the limit of {limit >> 20} MiB"
                )
        return bytes(data)

    def json_object(self, limit: int) -> dict[str, Any] | None:
        """Return the body as a JSON object, None if it is something else. Raises RequestError."""
        try:
            document = parse_json(self.read(limit))
        except JSONDecodeError:
            return None
        return document if isinstance(document, dict) else None


def _iter_decoded(response: HttpResponse) -> Iterator[bytes]:
    coding = response.headers.get("content-encoding", "identity").lower()
    if coding == "identity":
        yield from response.body
        return
    if coding != "gzip":
        raise RequestError(
            f"{response.address} has the content encoding {coding!r}, which was not requested"
        )
    decoder = zlib.decompressobj(wbits=31)
    try:
        for chunk in response.body:
            while chunk:
                yield decoder.decompress(chunk, _CHUNK)
                chunk = decoder.unconsumed_tail
            if decoder.eof:
                break
    except zlib.error as error:
        raise RequestError(f"{response.address} is damaged: {error}", is_temporary=True) from None
    if not decoder.eof:
        raise RequestError(f"{response.address} ends too early", is_temporary=True)


class _Reachability:
    """Reachable hosts. One thread retries a silent host while the others wait for it."""

    def __init__(self, patience: Patience, clock: Callable[[], float]) -> None:
        self._patience = patience
        self._clock = clock
        self._changed = threading.Condition()
        self._answered: set[str] = set()
        #: Host → thread that retries it.
        self._trying: dict[str, int] = {}
        #: Host → time of the next attempt, and the error until then.
        self._given_up: dict[str, tuple[float, RequestError]] = {}
        self._closed = False

    def check(self, host: str) -> None:
        """Raise the error of a host that was given up, until its next attempt is due."""
        end, error = self._given_up.get(host, (0.0, None))
        if error is not None and self._clock() < end:
            raise _host_error(error)

    def has_answered(self, host: str) -> bool:
        """Return True if the host has responded to some request."""
        return host in self._answered

    def note_answer(self, host: str) -> None:
        """Record a response of a host, and wake the threads that wait for it."""
        if host in self._answered and not self._trying and not self._given_up:
            return
        with self._changed:
            self._answered.add(host)
            self._given_up.pop(host, None)
            self._trying.pop(host, None)
            self._changed.notify_all()

    def give_up(self, error: RequestError) -> None:
        """Fail all requests to a host with `error` for a while."""
        with self._changed:
            self._given_up[error.host] = self._clock() + self._patience.rest, error
            self._trying.pop(error.host, None)
            self._changed.notify_all()

    def stop_retrying(self, host: str) -> None:
        """Stop retrying in this thread, so that another one may go on."""
        if self._trying.get(host) == threading.get_ident():
            with self._changed:
                self._trying.pop(host, None)
                self._changed.notify_all()

    def is_tried_by_another(self, host: str) -> bool:
        """Wait for the thread that retries a host; return False if this thread should do it.

        Raises the error of a host that was given up.
        """
        this = threading.get_ident()
        self.check(host)
        with self._changed:
            other = self._trying.setdefault(host, this)
            if other == this:
                return False
            # Replaces a thread that stopped retrying without telling.
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


def _host_error(error: RequestError) -> RequestError:
    """Return the final error of a host: neither retried nor given up again."""
    last = RequestError(error.host_message, is_unconnected=True)
    last.host = error.host
    return last


class Requests:
    """HTTP client for all threads. Connects on the first request.

    `clock` measures the time without requests to a silent host.
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
        #: Hosts and ports that did not respond in any attempt, but may later.
        self.away: set[str] = set()
        self._logins = logins
        self._trust = trust
        self._transport: Transport | None = None
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._reachability = _Reachability(patience, clock)

    def close(self) -> None:
        """Close all connections and end all waiting."""
        self._closed.set()
        self._reachability.close()
        with self._lock:
            if self._transport is not None:
                self._transport.close()

    def retry(self, work: Callable[[], T]) -> T:
        """Call `work`, again after temporary failures, and return its result.

        Raises RequestError: that of the last attempt, or one that is not temporary.
        """
        attempt = 0
        while True:
            try:
                return work()
            except RequestError as error:
                attempt += 1
                self.pause(error, attempt)

    def pause(self, error: RequestError, attempt: int) -> None:
        """Wait for the attempt after failure number `attempt`, or raise the error to give up.

        A host that did not respond in any attempt is given up: other requests to it fail at once.
        """
        patience, reachability = self.patience, self._reachability
        pause = patience.pause * 2 ** (attempt - 1)
        if error.wait is not None:
            pause = max(pause, error.wait)
        is_new = not reachability.has_answered(error.host)
        # The host failed, and not one of its files.
        is_silent = bool(error.host_message) and (error.is_unconnected or is_new)
        if (
            not error.is_temporary
            or attempt >= patience.tries
            or pause > patience.longest_pause
            or (error.connect_timed_out and is_new)  # TCP has retried already.
        ):
            if error.is_temporary:
                self.away.add(error.host)
            if is_silent:
                reachability.give_up(error)
                raise _host_error(error) from error
            reachability.stop_retrying(error.host)
            raise error
        if not is_silent:
            reachability.stop_retrying(error.host)
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
    ) -> Iterator[HttpResponse]:
        """Send one request and yield the first response that is not a redirect.

        Raises RequestError, also while the body is read. Follows redirects of reading methods only.

        Args:
            address: URL to request.
            headers: without `Authorization` and `User-Agent`.
            method: HTTP method.
            length: expected bytes of the request's and response's bodies; sets the time limit.
            accepted: status codes to yield; others raise.
            traffic: counter to use in place of the shared one.
            logins: credentials to use in place of the shared ones.
            body: content to send; has to return the same for each attempt.
            direct: bypass all proxies.
        """
        if self.offline:
            raise RequestError(f"{address} was not requested: --offline was given")
        transport = self._connect()
        traffic = traffic or self.traffic
        for _ in range(MAX_REDIRECTS + 1):
            login = (logins or self._logins)(address)
            sent = [("User-Agent", _user_agent()), *headers.items()]
            if login is not None:
                sent.append(("Authorization", login.header))
            self._reachability.check(address.authority)
            traffic.add(0, requests=1)
            seconds = self.patience.seconds(length)
            started, outcome = time.monotonic(), "failed"
            try:
                sending = transport.send(method, address, sent, seconds, body, direct=direct)
                with sending as (status, fields, data):
                    self._reachability.note_answer(address.authority)
                    outcome = str(status)
                    response = HttpResponse(status, fields, _count_traffic(data, traffic), address)
                    if status in accepted:
                        yield response
                        return
                    drain(response)
                    is_redirect = status in _REDIRECTS and method in READING_METHODS
                    if not is_redirect or "location" not in fields:
                        raise error_for_status(
                            status, fields, address, login.source if login else None
                        )
            except RequestError as error:
                error.host = address.authority
                raise
            finally:
                if _logger.isEnabledFor(logging.DEBUG):
                    elapsed = time.monotonic() - started
                    _logger.debug("%s %s: %s, %.2f s", method, address, outcome, elapsed)
            address = _redirect_target(address, fields["location"])
        raise RequestError(f"{address} redirects more than {MAX_REDIRECTS} times")

    def _connect(self) -> Transport:
        with self._lock:
            if self._closed.is_set():
                raise RequestError("all connections were closed")
            if self._transport is None:
                from buildmatrix.net.transport import Transport

                self._transport = Transport(self.patience, self._trust)
            return self._transport


def _redirect_target(address: HttpAddress, location: str) -> HttpAddress:
    try:
        target = address.join(location)
    except (UndecidedError, ValueError):
        raise RequestError(f"{address} redirects to an invalid or unsupported URL") from None
    if address.scheme == "https" and target.scheme != "https":
        raise RequestError(f"{address} redirects from https to http, which is not followed")
    # Credentials in a redirect are the server's, not the user's.
    return target.bare()


def drain(response: HttpResponse) -> None:
    """Read a short unused body: otherwise its connection cannot be reused."""
    length = response.length()
    if length is not None and length <= _CHUNK:
        for _ in response.body:
            pass


def _count_traffic(body: Iterator[bytes], traffic: Traffic) -> Iterator[bytes]:
    for chunk in body:
        traffic.add(len(chunk))
        yield chunk


def _user_agent() -> str:
    from buildmatrix import __version__

    return f"buildmatrix/{__version__}"
