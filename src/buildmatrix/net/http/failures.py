"""Failed requests: when to retry, and errors with one sentence for the user."""

from __future__ import annotations

import math
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.text import shown
from buildmatrix.net.http.addresses import HttpAddress

# Retries


#: Methods that change nothing on the server.
READING_METHODS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Patience:
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
