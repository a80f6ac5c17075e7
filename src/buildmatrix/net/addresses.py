"""Addresses of servers, and what belongs to each: credentials and certificates."""

from __future__ import annotations

import base64
import math
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

import msgspec
from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.text import shown

#: Maximum length of a URL in characters; servers rarely accept more.
MAX_URL_LENGTH = 8192
_PORTS = {"http": 80, "https": 443}
#: Characters of a path or query that need no escape (RFC 3986, 3.3 and 3.4); `%` starts an escape.
_SAFE = "/%:@!$&'()*+,;=-._~"
#: A path that needs neither quoting nor normalization.
_PLAIN_PATH = re.compile(r"(?:/(?!\.)[A-Za-z0-9._~:@-]{1,255}){1,30}")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f]")

Origin = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """One http or https URL."""

    scheme: str
    #: ASCII, lower case; an IPv6 address without brackets.
    host: str
    port: int
    #: Path and query as sent.
    target: str
    #: Unquoted user name and password of the URL; never shown.
    userinfo: tuple[str, str] | None = field(default=None, repr=False)

    @property
    def origin(self) -> Origin:
        """Scope of credentials: scheme, host and port (RFC 6454)."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """Host and port, as in the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.nondefault_port else host

    @property
    def nondefault_port(self) -> int | None:
        """The port, if it is not the default of the scheme."""
        return None if self.port == _PORTS[self.scheme] else self.port

    @property
    def url(self) -> str:
        """URL without user name and password."""
        return f"{self.scheme}://{self.authority}{self.target}"

    def __str__(self) -> str:
        """Format for messages: no credentials, and no query, which may be a signature."""
        return self.url.partition("?")[0]

    @property
    def is_loopback(self) -> bool:
        """True if the host can only be this machine (RFC 6761, 6.3)."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def bare(self) -> HttpAddress:
        """Return the address without user name and password."""
        return replace(self, userinfo=None)

    def join(self, reference: str) -> HttpAddress:
        """Resolve a link in a document or a redirect of this address. Raises as `parse`."""
        reference = reference.strip()
        if _PLAIN_PATH.fullmatch(reference):
            return HttpAddress(self.scheme, self.host, self.port, reference)
        try:
            joined = urljoin(self.url, reference)
        except ValueError:  # `http://[::1/`: `parse` has the better message.
            joined = reference
        return parse(joined)


def parse(url: str) -> HttpAddress:
    """Parse an http or https URL. Raises UndecidedError if it is not one."""
    try:
        if len(url) > MAX_URL_LENGTH:
            raise ValueError(f"it has more than {MAX_URL_LENGTH} characters")
        if _FORBIDDEN.search(url):
            raise ValueError("it holds a space or a control character")
        parts = urlsplit(url)
        if parts.scheme not in _PORTS:
            raise ValueError("it is neither http nor https")
        if not parts.hostname:
            raise ValueError("it names no host")
        host = parts.hostname
        if not host.isascii():
            host = host.encode("idna").decode("ascii")
        port = _port_number(parts)
    except ValueError as error:
        # An invalid URL has no user name, but may still contain a password.
        shown = url.rpartition("@")[2].partition("?")[0][:200]
        raise UndecidedError(f"{shown!r} cannot be requested: {error}") from None
    path = quote(parts.path or "/", safe=_SAFE)
    query = f"?{quote(parts.query, safe=_SAFE + '?')}" if parts.query else ""
    userinfo = None
    if parts.username is not None or parts.password is not None:
        userinfo = unquote(parts.username or ""), unquote(parts.password or "")
    return HttpAddress(parts.scheme, host, port, path + query, userinfo)


def _port_number(parts: SplitResult) -> int:
    try:
        return parts.port if parts.port is not None else _PORTS[parts.scheme]
    except ValueError:
        # The standard library's message quotes the port, which may be a password.
        raise ValueError("its port is not a number from 0 to 65535") from None


# Credentials


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials for one server."""

    #: Value of the `Authorization` header.
    header: str = field(repr=False)
    #: Place where they were found, for messages.
    source: str

    @classmethod
    def basic(cls, user: str, password: str, source: str) -> Login:
        """Make credentials of a user name and a password (RFC 7617)."""
        token = base64.b64encode(f"{user}:{password}".encode())
        return cls(f"Basic {token.decode('ascii')}", source)


#: Returns the credentials for the server of an address, which may be a redirect's target.
Logins = Callable[[HttpAddress], Login | None]


def only_for(origin: Origin, login: Login | None) -> Logins:
    """Return credentials for one origin, never sent to the targets of its redirects."""
    return lambda address: login if address.origin == origin else None


# Certificates


class Trust(Struct, frozen=True):
    """Certificate settings of this machine."""

    #: `HOST` or `HOST:PORT` of servers whose certificates are not verified; `*` for all.
    unchecked: frozenset[str] = frozenset()
    #: Name of a further setting with a certificate file, and that file.
    certificates: tuple[str, str | None] = ("", None)

    #: Folders with one subfolder of certificates per server, named `HOST[:PORT]`.
    folders: tuple[Path, ...] = ()
    #: Certificate authorities for one server, by `HOST[:PORT]`; may grow.
    authorities: Mapping[str, tuple[Path, ...]] = msgspec.field(default_factory=dict)

    def own(self, address: HttpAddress) -> tuple[Path, ...]:
        """Return the certificate files of this server, or else its folder."""
        if files := self.authorities.get(address.authority):
            return files
        folders = (folder / address.authority for folder in self.folders)
        return tuple([folder for folder in folders if folder.is_dir()][:1])

    def is_checked(self, address: HttpAddress) -> bool:
        """True if the certificate of this server must be valid."""
        names = {"*", address.host, f"{address.host}:{address.port}"}
        return names.isdisjoint(self.unchecked)


# Retries


#: Methods that change nothing on the server.
READING_METHODS = frozenset({"GET", "HEAD"})


class Patience(Struct, frozen=True):
    """Timeouts and retries of requests, in seconds."""

    #: Total attempts per request.
    tries: int = 4
    #: Pause before the second attempt; doubles each time.
    pause: float = 0.3
    #: A longer `Retry-After` ends the retries.
    longest_pause: float = 30.0
    #: Time to connect; TCP sends three SYN packets in it.
    connect: float = 4.0
    #: Time without requests to a host that did not respond in any attempt.
    rest: float = 60.0
    #: Time without any byte received.
    silence: float = 20.0
    #: Time without any byte of the response to an upload: the server may store it first.
    storing: float = 300.0
    #: Total time of a request with a small body ...
    request: float = 30.0
    #: ... and the minimum speed of a larger one, in bytes per second.
    slowest: int = 32 << 10

    def seconds(self, length: int) -> float:
        """Return the time limit of a request for `length` bytes."""
        return self.request + length / self.slowest


# Errors


#: Status codes of a server that is temporarily busy or broken.
TEMPORARY_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
#: OpenSSL's codes for a certificate of an unknown authority (x509_vfy.h).
_UNKNOWN_ISSUER = frozenset({18, 19, 20, 21})
#: OpenSSL's reasons for a server that does not speak TLS, or only versions that we do not. Other
#: failed handshakes are retried, as in pip and uv: busy proxies send alerts.
_NO_TLS = frozenset(
    {
        "HTTP_REQUEST",
        "RECORD_LAYER_FAILURE",
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "UNSUPPORTED_PROTOCOL",
        "WRONG_VERSION_NUMBER",
    }
)


class RequestError(UndecidedError):
    """A failed request."""

    def __init__(
        self,
        message: str,
        *,
        is_temporary: bool = False,
        wait: float | None = None,
        status: int | None = None,
        host_message: str = "",
        is_unconnected: bool = False,
        connect_timed_out: bool = False,
    ) -> None:
        super().__init__(message)
        #: True if the same request may succeed soon.
        self.is_temporary = is_temporary
        #: Seconds until the server wants the next request.
        self.wait = wait
        #: Status code of the response, if there was one.
        self.status = status
        #: The failure as a sentence about the host alone; empty if the host responded.
        self.host_message = host_message
        #: True if no connection could be made.
        self.is_unconnected = is_unconnected
        self.connect_timed_out = connect_timed_out
        #: Host and port of the last request; set by `Requests.send`.
        self.host = ""

    @property
    def has_no_answer(self) -> bool:
        """True if the server sent nothing of a file, or was not asked; False for a bad answer."""
        return self.status is not None or self.is_temporary or self.is_unconnected


def error_for_status(
    status: int, headers: Mapping[str, str], address: HttpAddress, sent: str | None
) -> RequestError:
    """Return the error for a response of 400 or more; `sent`: the source of the credentials."""
    if status in TEMPORARY_STATUSES:
        wait = retry_after(headers.get("retry-after"), datetime.now(UTC))
        return RequestError(
            f"{address} answers {status}{_retry_hint(status, wait)}",
            is_temporary=True,
            wait=wait,
            status=status,
        )
    return RequestError(f"{address} {_explain_status(status, sent)}", status=status)


def _retry_hint(status: int, wait: float | None) -> str:
    busy = " (too many requests)" if status == 429 else ""
    if wait is not None:
        return f"{busy}; retry after {math.ceil(wait)} s"
    return f"{busy}; try again later{', or with fewer --jobs' if busy else ''}"


def _explain_status(status: int, sent: str | None) -> str:
    if status in (401, 403, 407) and sent is not None:
        return f"answers {status}: it does not take the credentials from {sent}"
    if status in (401, 407):
        return (
            f"answers {status}: it wants credentials; put them into ~/.netrc, or set "
            "UV_INDEX_<NAME>_USERNAME and UV_INDEX_<NAME>_PASSWORD for that index"
        )
    if status == 403:
        return "answers 403: it does not have this, or wants credentials (~/.netrc) for it"
    if status in (404, 410):
        return f"answers {status}: there is no such file; lock again if it was deleted"
    return f"answers {status}: unexpected response"


def retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds in a `Retry-After` header: a number, or a date (RFC 9110, 10.2.3)."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        from email.utils import parsedate_to_datetime

        when = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - now).total_seconds())


def error_for_connection(error: Exception, address: HttpAddress, proxy: str | None) -> RequestError:
    """Return the error for a connection that failed or broke; `error` is httpcore's."""
    import httpcore

    where = address.authority
    through = f" (through the proxy {shown(proxy).rstrip('/')})" if proxy else ""
    if explanation := _explain_unconnected(error, where, through):
        text, again = explanation
        return RequestError(
            text,
            is_temporary=again,
            host_message=text,
            is_unconnected=True,
            connect_timed_out=isinstance(error, httpcore.ConnectTimeout),
        )
    if isinstance(error, httpcore.PoolTimeout):
        return RequestError(f"all connections to {where} are busy{through}")
    if isinstance(error, httpcore.TimeoutException):
        said = f"does not answer in time{through}"
    elif isinstance(error, httpcore.ProtocolError):
        text = str(error).rstrip(".") or type(error).__name__
        said = f"breaks off, or does not speak HTTP{through}: {text}"
        # A bad response concerns one file; a connection without a response concerns the host.
        if not text.startswith("Server disconnected"):
            return RequestError(f"{address} {said}", is_temporary=True)
    else:
        text = f"the connection to {where} broke{through}: {_innermost_text(error)}"
        return RequestError(text, is_temporary=True, host_message=text)
    return RequestError(f"{address} {said}", is_temporary=True, host_message=f"{where} {said}")


def _explain_unconnected(error: Exception, where: str, through: str) -> tuple[str, bool] | None:
    """Return the reason for a missing connection, and whether a retry may help; else None."""
    import ssl

    import httpcore

    for cause in iter_causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            advice = (
                "; set SSL_CERT_FILE to the file that holds your certificate authority"
                if cause.verify_code in _UNKNOWN_ISSUER
                else ""
            )
            text = f"the certificate of {where} is not trusted{through}: {cause.verify_message}"
            return text + advice, False
        if isinstance(cause, ssl.SSLError) and isinstance(error, httpcore.ConnectError):
            reason = cause.reason or "no reason was given"
            return f"no TLS connection to {where}{through}: {reason}", reason not in _NO_TLS
        if isinstance(cause, socket.gaierror):
            return (
                f"the host name of {where} cannot be resolved{through}: {cause.strerror}; check "
                "the name, the network, and HTTPS_PROXY",
                True,
            )
        if isinstance(cause, ConnectionRefusedError):
            return f"{where} refuses connections{through}", True
    if isinstance(error, httpcore.ProxyError):
        return f"no connection to {where}{through}: {error}", False
    if isinstance(error, httpcore.ConnectTimeout):
        return f"connecting to {where} timed out{through}", True
    if isinstance(error, httpcore.ConnectError):
        return f"the connection to {where} broke{through}: {_innermost_text(error)}", True
    return None


def _innermost_text(error: Exception) -> str:
    every = tuple(iter_causes(error))
    return next((str(cause) for cause in reversed(every) if str(cause)), type(error).__name__)


def iter_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, outermost first."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
