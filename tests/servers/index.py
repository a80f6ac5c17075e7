"""A package index on loopback, which can misbehave on demand.

    with IndexServer(folder, pages="json", metadata=True) as server:
        server.misbehave(server.path_of("x-1-py3-none-any.whl"), answering(503), times=2)
        client.project(server.url, "x")
        assert server.count("/simple/x/") == 1

`folder` holds wheels and source distributions side by side. Pages are at `/simple/<name>/`, files
at `/files/<filename>`. Every request is kept in `server.requests`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import ssl
import struct
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal, Self

JSON = "application/vnd.pypi.simple.v1+json"
_CHUNK = 64 << 10
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


@dataclass(frozen=True)
class Request:
    """What a client asked for. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]


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


def redirecting(location: str, status: int = 302) -> Misdeed:
    """To `location`."""
    return answering(status, location=location)


def ignoring_ranges(*, length: bool = True) -> Misdeed:
    """The whole file; without its length, if so wanted."""

    def misdeed(request: Request, serve: Serve) -> Response:
        headers = {name: value for name, value in request.headers.items() if name != "range"}
        response = serve(replace(request, headers=headers))
        body = response.body
        assert isinstance(body, bytes)
        kept = {name: value for name, value in response.headers.items() if name != "accept-ranges"}
        return replace(response, headers=kept, body=body if length else iter([body]))

    return misdeed


def with_headers(**headers: str) -> Misdeed:
    """The right answer under these headers."""
    return lambda request, serve: serve(request).having(**headers)


def cut_after(count: int, *, reset: bool = False) -> Misdeed:
    """The connection ends after `count` bytes of the body."""
    return lambda request, serve: replace(serve(request), cut=count, reset=reset)


def dripping(seconds: float, count: int = 1) -> Misdeed:
    """`count` bytes every `seconds`."""
    return lambda request, serve: replace(serve(request), drip=(seconds, count))


def huge(size: int, content_type: str = "text/html") -> Misdeed:
    """A page of `size` bytes; its length is not told."""
    piece = b'<a href="/files/x-1.tar.gz">x-1.tar.gz</a>\n' * 1500

    def pieces() -> Iterator[bytes]:
        for _ in range(size // len(piece) + 1):
            yield piece

    return lambda request, serve: Response(200, pieces(), {"content-type": content_type})


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


class IndexServer:
    """The server; starts with `with`.

    `pages`: as HTML whatever is asked for, or as JSON to those who accept it. `metadata`: the
    METADATA of each wheel lies beside it. `ranges`: which range requests are understood: all, all
    but suffix ranges (answered by 416), or none. `etags`: files carry an ETag. `login`: wanted for
    everything. `certificate`: PEM files of a certificate and its key, for https.
    """

    def __init__(
        self,
        folder: Path,
        *,
        pages: Literal["html", "json"] = "html",
        metadata: bool = False,
        ranges: Literal["all", "explicit", "none"] = "all",
        etags: bool = True,
        login: tuple[str, str] | None = None,
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        self._folder = folder
        self._pages = pages
        self._metadata = metadata
        self._ranges = ranges
        self._etags = etags
        self._login = login
        self._planned: dict[str, list[_Planned]] = {}
        self._announced: dict[str, dict[str, object]] = {}
        self._lock = threading.Lock()
        #: All requests, the first one first.
        self.requests: list[Seen] = []
        #: TCP connections that were accepted.
        self.connections = 0
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
        self._server.shutdown()
        self._server.server_close()

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """The address of the index."""
        return f"{self.origin}/simple/"

    @staticmethod
    def path_of(filename: str) -> str:
        """Where a file is served."""
        return f"/files/{filename}"

    def file_url(self, filename: str) -> str:
        """The whole address of a file."""
        return self.origin + self.path_of(filename)

    def misbehave(
        self, path: str, misdeed: Misdeed, *, after: int = 0, times: int | None = None
    ) -> None:
        """Answer requests for `path` so: the first `after` ones rightly, then `times` ones wrongly.

        Several misdeeds for one path take turns in the order in which they were asked for.
        """
        with self._lock:
            self._planned.setdefault(path, []).append(_Planned(misdeed, after, times))

    def announce(self, filename: str, **said: object) -> None:
        """What the pages say of a file instead of the truth: sha256, size, metadata_sha256, url."""
        self._announced.setdefault(filename, {}).update(said)

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
            misdeed = self._next_misdeed(request.path)
        if misdeed is None:
            return self._serve(request)
        return misdeed(request, self._serve)

    def _next_misdeed(self, path: str) -> Misdeed | None:
        planned = self._planned.get(path, [])
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

    def _serve(self, request: Request) -> Response:
        if self._login is not None:
            token = base64.b64encode(":".join(self._login).encode()).decode()
            if request.headers.get("authorization") != f"Basic {token}":
                return Response(401, headers={"www-authenticate": 'Basic realm="index"'})
        path = request.path.partition("?")[0]
        if match := re.fullmatch(r"/simple/([a-z0-9-]+)/", path):
            return self._page(match[1], request)
        if match := re.fullmatch(r"/files/([^/]+?)(\.metadata)?", path):
            file = self._folder / match[1]
            if file.is_file() and match[2] and self._metadata:
                return self._data(_metadata(file), request)
            if file.is_file() and not match[2]:
                return self._data(file.read_bytes(), request)
        return Response(404)

    def _page(self, project: str, request: Request) -> Response:
        files = [
            self._told(file)
            for file in sorted(self._folder.iterdir())
            if re.sub(r"[-_.]+", "-", file.name.partition("-")[0]).lower() == project
        ]
        if not files:
            return Response(404)
        if self._pages == "json" and JSON in request.headers.get("accept", ""):
            return Response(200, _json(project, files), {"content-type": JSON})
        return Response(200, _html(files), {"content-type": "text/html; charset=utf-8"})

    def _told(self, file: Path) -> dict[str, object]:
        data = file.read_bytes()
        told: dict[str, object] = {
            "filename": file.name,
            "url": f"../..{self.path_of(file.name)}",
            "sha256": hashlib.sha256(data).hexdigest(),
            "size": len(data),
        }
        if self._metadata and file.suffix == ".whl":
            told["metadata_sha256"] = hashlib.sha256(_metadata(file)).hexdigest()
        return told | self._announced.get(file.name, {})

    def _data(self, data: bytes, request: Request) -> Response:
        headers = {"content-type": "application/octet-stream"}
        if self._etags:
            headers["etag"] = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        if self._ranges == "none":
            return Response(200, data, headers)
        headers["accept-ranges"] = "bytes"
        match = _RANGE.fullmatch(request.headers.get("range", ""))
        if match is None:
            return Response(200, data, headers)
        if match[1]:
            start, stop = int(match[1]), min(int(match[2] or len(data)) + 1, len(data))
        elif self._ranges == "all":
            start, stop = max(0, len(data) - int(match[2])), len(data)
        else:
            start, stop = len(data), 0
        if start >= stop:
            headers["content-range"] = f"bytes */{len(data)}"
            return Response(416, b"", headers)
        headers["content-range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        return Response(206, data[start:stop], headers)


def _metadata(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (
            name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)
        )
        return archive.read(name)


def _json(project: str, files: list[dict[str, object]]) -> bytes:
    entries = []
    for file in files:
        entry: dict[str, object] = {
            "filename": file["filename"],
            "url": file["url"],
            "hashes": {"sha256": file["sha256"]},
            "size": file["size"],
        }
        if "metadata_sha256" in file:
            entry["core-metadata"] = {"sha256": file["metadata_sha256"]}
        entries.append(entry)
    page = {"meta": {"api-version": "1.1"}, "name": project, "files": entries}
    return json.dumps(page).encode()


def _html(files: list[dict[str, object]]) -> bytes:
    lines = ["<!DOCTYPE html>", "<html><body>"]
    for file in files:
        metadata = file.get("metadata_sha256")
        attribute = f' data-core-metadata="sha256={metadata}"' if metadata else ""
        link = f"{file['url']}#sha256={file['sha256']}"
        lines.append(f'<a href="{link}"{attribute}>{file["filename"]}</a><br/>')
    return "\n".join([*lines, "</body></html>"]).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # The default of 5 makes connections of sixteen threads wait for a second.
    request_queue_size = 128
    context: ssl.SSLContext | None = None

    def __init__(self, index: IndexServer) -> None:
        self.index = index
        super().__init__(("127.0.0.1", 0), _Handler)

    def finish_request(self, request: socket.socket, client_address: object) -> None:
        # The handshake belongs to the thread of the connection: a client may refuse it.
        if self.context is not None:
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
        with self.server.index._lock:
            self.server.index.connections += 1

    def do_GET(self) -> None:
        index = self.server.index
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = Seen(self.command, self.path, headers)
        with index._lock:
            index.requests.append(seen)
        response = index.answer(Request(self.command, self.path, headers))
        seen.status = response.status
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

    do_HEAD = do_GET

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
            if response.drip is not None:
                time.sleep(response.drip[0])

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
