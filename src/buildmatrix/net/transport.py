"""HTTP connections: shared and time-limited, with this machine's proxies and certificates.

Uses httpcore rather than httpx: redirects, credentials and decoding need special care here, and
only httpcore allows a deadline for everything that is read from a connection, headers included.
Import this module late: it costs 80 ms.
"""

from __future__ import annotations

import math
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import certifi
import httpcore

from buildmatrix.base.errors import UndecidedError
from buildmatrix.net.addresses import (
    READING_METHODS,
    HttpAddress,
    Patience,
    Trust,
    error_for_connection,
)

#: More than the threads that read at once, so that no thread waits for another one's stream.
MAX_CONNECTIONS = 64
MAX_IDLE_CONNECTIONS = 32
#: Seconds; servers close idle connections after 5 to 75.
IDLE_SECONDS = 30.0

Headers = list[tuple[str, str]]
_HTTPCORE_ERRORS = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.TimeoutException,
)


class Transport:
    """Connections to any number of hosts, shared by all threads."""

    def __init__(self, patience: Patience, trust: Trust) -> None:
        self._patience = patience
        self._trust = trust
        self._clock = _Clock()
        self._proxies = getproxies()
        self._pools: dict[
            tuple[str, str | None, bool, tuple[Path, ...]], httpcore.ConnectionPool
        ] = {}
        #: Scheme and authority → proxy. Cached, as a lookup reads the whole environment.
        self._proxy_of: dict[tuple[str, str], str | None] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for pool in self._pools.values():
                pool.close()
            self._pools.clear()

    @contextmanager
    def send(
        self,
        method: str,
        address: HttpAddress,
        headers: Headers,
        seconds: float,
        content: Callable[[], Iterator[bytes]] | None = None,
        *,
        direct: bool = False,
    ) -> Iterator[tuple[int, Mapping[str, str], Iterator[bytes]]]:
        """Send one request: yield the status, headers (lower-case names) and body as it arrives.

        `seconds` limits the time to the last byte of the body. Follows no redirects and retries
        nothing; `direct` bypasses proxies. Raises RequestError, also from the body.
        """
        patience = self._patience
        end = self._clock.now() + seconds
        timeouts = {
            "connect": min(patience.connect, seconds),
            "read": min(
                patience.silence if method in READING_METHODS else patience.storing, seconds
            ),
            "write": min(patience.silence, seconds),
            "pool": seconds,
        }
        url = httpcore.URL(
            scheme=address.scheme,
            host=address.host,
            port=address.nondefault_port,
            target=address.target,
        )
        proxy = None if direct else self._proxy(address)
        try:
            self._clock.end = end
            with self._pool(address, proxy).stream(
                method,
                url,
                headers=[("Host", address.authority), *headers],
                content=content() if content else None,
                extensions={"timeout": timeouts},
            ) as response:
                body = self._body(response, end)
                if method == "HEAD":
                    # There is no body, but a connection is only reused after its end was read.
                    for _ in body:
                        pass
                yield response.status, _merge_headers(response.headers), body
        except _HTTPCORE_ERRORS as error:
            raise error_for_connection(error, address, proxy) from error

    def _body(self, response: httpcore.Response, end: float) -> Iterator[bytes]:
        chunks = iter(response.iter_stream())
        while True:
            # The thread may have sent another request between two chunks.
            self._clock.end = end
            chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk

    def _proxy(self, address: HttpAddress) -> str | None:
        key = address.scheme, address.authority
        if key not in self._proxy_of:
            proxy = self._proxies.get(address.scheme) or self._proxies.get("all")
            if not proxy or proxy_bypass(address.authority):
                proxy = None
            elif "://" not in proxy:
                proxy = f"http://{proxy}"
            self._proxy_of[key] = proxy
        return self._proxy_of[key]

    def _pool(self, address: HttpAddress, proxy: str | None) -> httpcore.ConnectionPool:
        is_checked = self._trust.is_checked(address)
        own = self._trust.own(address) if address.scheme == "https" and is_checked else ()
        with self._lock:
            key = address.scheme, proxy, is_checked, own
            if key not in self._pools:
                self._pools[key] = httpcore.ConnectionPool(
                    # Loading the certificates takes 50 to 100 ms.
                    ssl_context=_tls_context(self._trust, is_checked, own)
                    if address.scheme == "https"
                    else None,
                    proxy=_parse_proxy(proxy) if proxy else None,
                    max_connections=MAX_CONNECTIONS,
                    max_keepalive_connections=MAX_IDLE_CONNECTIONS,
                    keepalive_expiry=IDLE_SECONDS,
                    network_backend=_TimedNetwork(self._clock),
                )
            return self._pools[key]


def _merge_headers(headers: Iterable[tuple[bytes, bytes]]) -> Mapping[str, str]:
    """Return headers by lower-case name; repeated ones are joined (RFC 9110, 5.3)."""
    named: dict[str, str] = {}
    for name, value in headers:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        named[key] = f"{named[key]}, {text}" if key in named else text
    return named


def _parse_proxy(proxy: str) -> httpcore.Proxy:
    try:
        parts = urlsplit(proxy)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    # The error's text may contain a part of the password.
    except ValueError:
        usable = False
    if not usable:
        shown = proxy.rpartition("@")[2]
        raise UndecidedError(
            f"the proxy {shown} of the environment cannot be used; set HTTPS_PROXY to "
            "http://HOST:PORT"
        )
    auth = None
    if parts.username is not None:
        auth = unquote(parts.username), unquote(parts.password or "")
    url = httpcore.URL(scheme=parts.scheme, host=parts.hostname or "", port=port, target="/")
    return httpcore.Proxy(url, auth=auth)


def _tls_context(trust: Trust, is_checked: bool, own: tuple[Path, ...]) -> ssl.SSLContext:
    """Return the TLS settings for a server; `is_checked` is False if the user disabled checks.

    `own`: certificates of this server, from `Trust.own`.
    """
    if is_checked:
        context = _load_certificates(*trust.certificates)
        for path in own:
            if path.is_dir():
                _load_server_folder(context, path)
            else:
                _load_authorities(context, "hosts.toml", str(path))
        return context
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _load_certificates(setting: str, place: str | None) -> ssl.SSLContext:
    """Load the certificates of the first source that is set.

    Sources are SSL_CERT_FILE and SSL_CERT_DIR, REQUESTS_CA_BUNDLE, `setting`, and else the system
    and certifi. Raises UndecidedError for a file without certificates.
    """
    files = [(name, os.environ.get(name)) for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")]
    files.append((setting, place))
    folders = [part for part in os.environ.get("SSL_CERT_DIR", "").split(os.pathsep) if part]
    named = next(((name, place) for name, place in files if place), None)
    if named is not None or folders:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for folder in folders:
            context.load_verify_locations(capath=folder)
        if named is not None:
            _load_authorities(context, *named)
        return context
    context = ssl.create_default_context()
    context.load_verify_locations(cafile=certifi.where())
    return context


def _load_server_folder(context: ssl.SSLContext, folder: Path) -> None:
    """Load a server's folder as Docker does: authorities, and pairs of certificate and key.

    https://docs.docker.com/engine/security/certificates/
    """
    for path in sorted(folder.glob("*.crt")):
        _load_authorities(context, str(folder), str(path))
    for path in sorted(folder.glob("*.cert")):
        try:
            context.load_cert_chain(path, path.with_suffix(".key"))
        except (OSError, ssl.SSLError) as error:
            raise UndecidedError(
                f"cannot load the client certificate {path} and its .key ({error})"
            ) from error


def _load_authorities(context: ssl.SSLContext, name: str, place: str) -> None:
    try:
        if Path(place).is_dir():
            context.load_verify_locations(capath=place)
        else:
            context.load_verify_locations(cafile=place)
    except (OSError, ssl.SSLError) as error:
        raise UndecidedError(
            f"{name} is {place}, which is not a readable certificate file ({error}); use a file "
            "in PEM format"
        ) from error


class _Clock(threading.local):
    """Deadline of the request that this thread reads."""

    end = math.inf
    now = staticmethod(time.monotonic)

    def left(self, timeout: float | None) -> float:
        left = self.end - self.now()
        if left <= 0:
            raise httpcore.ReadTimeout("the deadline of the request has passed")
        return left if timeout is None else min(left, timeout)


class _TimedNetwork(httpcore.SyncBackend):
    """Sockets whose every operation keeps the deadline of its thread."""

    def __init__(self, clock: _Clock) -> None:
        self._clock = clock

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        timeout = self._clock.left(timeout)
        stream = super().connect_tcp(host, port, timeout, local_address, socket_options)
        return _TimedStream(stream, self._clock)


class _TimedStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, clock: _Clock) -> None:
        self._stream = stream
        self._clock = clock

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._clock.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._clock.left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        timeout = self._clock.left(timeout)
        stream = self._stream.start_tls(ssl_context, server_hostname, timeout)
        return _TimedStream(stream, self._clock)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
