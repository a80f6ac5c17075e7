"""A server on loopback, which can misbehave on demand; see `index` and `registry`.

Every request is kept in `server.requests`.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from buildmatrix.base.data import replace

_CHUNK = 64 << 10


@dataclass(frozen=True)
class Request:
    """What a client asked for. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    #: Reads so many bytes of its body, or as many as there are.
    read: Callable[[int], bytes] = lambda count: b""


@dataclass(frozen=True)
class Response:
    """What it gets."""

    status: int
    body: bytes | Iterable[bytes] = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Close the connection after this many bytes of the body.
    cut: int | None = None
    #: Close it the rude way, with RST.
    reset: bool = False
    #: Close it without an answer.
    dropped: bool = False
    #: Seconds between two pieces of the body, and bytes of one piece.
    drip: tuple[float, int] | None = None

    def having(self, **headers: str) -> Response:
        """The same with other headers: `content_range="..."`."""
        changed = {name.replace("_", "-"): value for name, value in headers.items()}
        return replace(self, headers={**self.headers, **changed})


Serve = Callable[[Request], Response]
#: Answers a request; `serve` is how the server would have answered.
Misdeed = Callable[[Request, Serve], Response]


def answering(status: int, body: bytes = b"", **headers: str) -> Misdeed:
    """This status, whatever was asked for."""
    return lambda request, serve: Response(status, body).having(**headers)


def filled(size: int) -> Misdeed:
    """200 and as many spaces, made when they are asked for."""
    return lambda request, serve: Response(200, b" " * size)


def redirecting(location: str, status: int = 302) -> Misdeed:
    """To `location`."""
    return answering(status, location=location)


def with_headers(**headers: str) -> Misdeed:
    """The right answer under these headers."""
    return lambda request, serve: serve(request).having(**headers)


def cut_after(count: int, *, reset: bool = False) -> Misdeed:
    """The connection ends after `count` bytes of the body."""
    return lambda request, serve: replace(serve(request), cut=count, reset=reset)


def dripping(seconds: float, count: int = 1) -> Misdeed:
    """`count` bytes every `seconds`."""
    return lambda request, serve: replace(serve(request), drip=(seconds, count))


@dataclass
class _Planned:
    misdeed: Misdeed
    after: int
    times: int | None


@dataclass
class Seen:
    """One request and what became of it."""

    method: str
    path: str
    headers: Mapping[str, str]
    status: int = 0
    #: Bytes of the body that were sent, or were about to be when the client hung up.
    sent: int = 0


class LoopbackServer(ABC):
    """The server; starts with `with`.

    `certificate`: PEM files of a certificate and its key, for https.
    """

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        self._planned: dict[str, list[_Planned]] = {}
        self._lock = threading.Lock()
        #: All requests, the first one first.
        self.requests: list[Seen] = []
        #: TCP connections that were accepted.
        self.connections = 0
        #: Those that have not ended.
        self.open: set[socket.socket] = set()
        #: TLS handshakes that fail with an alert before one succeeds.
        self.alerts = 0
        #: Ends what hangs.
        self.closing = threading.Event()
        self._server = _Server(self)
        self._scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.context = context
            self._scheme = "https"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        # Neither these threads nor those of clients who were left waiting outlive the server.
        with self._lock:
            for connection in self.open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def misbehave(
        self, path: str, misdeed: Misdeed, *, after: int = 0, times: int | None = None
    ) -> None:
        """Answer requests for `path` so: the first `after` ones rightly, then `times` ones wrongly.

        `path` may have a method before it (`PUT /v2/...`), and stands for all queries.
        Several misdeeds for one path take turns in the order in which they were asked for.
        """
        with self._lock:
            self._planned.setdefault(path, []).append(_Planned(misdeed, after, times))

    def count(self, path: str, method: str | None = None) -> int:
        """Requests for `path`."""
        with self._lock:
            return sum(
                seen.path == path and method in (None, seen.method) for seen in self.requests
            )

    def sent(self, path: str) -> int:
        """Bytes of bodies that were sent for `path`."""
        with self._lock:
            return sum(seen.sent for seen in self.requests if seen.path == path)

    # Answers

    def answer(self, request: Request) -> Response:
        """The answer to `request`, misdeeds included."""
        with self._lock:
            misdeed = self._next_misdeed(request)
        if misdeed is None:
            return self._serve(request)
        return misdeed(request, self._serve)

    @abstractmethod
    def _serve(self, request: Request) -> Response:
        """The right answer."""

    def _next_misdeed(self, request: Request) -> Misdeed | None:
        path = request.path.partition("?")[0]
        planned = (
            self._planned.get(f"{request.method} {path}")
            or self._planned.get(request.path)
            or self._planned.get(path)
            or []
        )
        while planned:
            first = planned[0]
            if first.after > 0:
                first.after -= 1
                return None
            if first.times is None:
                return first.misdeed
            if first.times > 0:
                first.times -= 1
                return first.misdeed
            planned.pop(0)
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # The default of 5 makes connections of sixteen threads wait for a second.
    request_queue_size = 128
    context: ssl.SSLContext | None = None

    def __init__(self, owner: LoopbackServer) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", 0), _Handler)

    def finish_request(self, request: socket.socket, client_address: object) -> None:
        # The handshake belongs to the thread of the connection: a client may refuse it.
        if self.context is not None:
            if self.owner.alerts:
                self.owner.alerts -= 1
                request.recv(65536)
                # A fatal alert (RFC 8446, 6): decode_error.
                request.sendall(b"\x15\x03\x03\x00\x02\x02\x32")
                return
            request = self.context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up, or do not trust the certificate, are what tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    # Headers and body are two writes: without it, the second waits for an acknowledgement.
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        with self.server.owner._lock:
            self.server.owner.connections += 1
            self.server.owner.open.add(self.connection)
            if self.server.owner.closing.is_set():
                self.connection.shutdown(socket.SHUT_RDWR)

    def finish(self) -> None:
        with self.server.owner._lock:
            self.server.owner.open.discard(self.connection)
        super().finish()

    def do_GET(self) -> None:
        owner = self.server.owner
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = Seen(self.command, self.path, headers)
        with owner._lock:
            owner.requests.append(seen)
        self._left = int(headers.get("content-length", 0))
        response = owner.answer(Request(self.command, self.path, headers, self._read))
        seen.status = response.status
        if response.dropped:
            self._hang_up(response.reset)
            return
        while self._left and self._read(_CHUNK):
            """What was not wanted would be taken for the next request."""
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        told = {name.lower() for name in response.headers}
        if isinstance(response.body, bytes):
            if "content-length" not in told:
                self.send_header("content-length", str(len(response.body)))
        else:
            self.send_header("connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.command != "HEAD":
            self._send(response, seen)

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _read(self, count: int) -> bytes:
        data = self.rfile.read(min(count, self._left))
        self._left -= len(data)
        return data

    def _send(self, response: Response, seen: Seen) -> None:
        left = response.cut
        for piece in _pieces(response):
            part = piece if left is None else piece[:left]
            # Counted first: a client may be done before this thread goes on.
            seen.sent += len(part)
            self.wfile.write(part)
            if left is not None:
                left -= len(part)
                if left == 0:
                    self._hang_up(response.reset)
                    return
            if response.drip is not None and self.server.owner.closing.wait(response.drip[0]):
                self.close_connection = True
                return

    def _hang_up(self, reset: bool) -> None:
        self.close_connection = True
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # The files hold the socket open; shutdown(2) would send FIN instead.
            self.rfile.close()
            self.connection.close()

    def log_message(self, format: str, *arguments: object) -> None:
        """Silent: tests look into `requests`."""


def _pieces(response: Response) -> Iterator[bytes]:
    if not isinstance(response.body, bytes):
        yield from response.body
        return
    size = response.drip[1] if response.drip else _CHUNK
    for start in range(0, len(response.body), size):
        yield response.body[start : start + size]
