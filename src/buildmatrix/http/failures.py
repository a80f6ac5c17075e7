"""What went wrong between here and a server, in one sentence each."""

from __future__ import annotations

import math
import socket
import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from buildmatrix.errors import UndecidedError
from buildmatrix.http.addresses import HttpAddress
from buildmatrix.text import shown

#: Answers of a server that is busy or broken for the moment.
PASSING = frozenset({408, 429, 500, 502, 503, 504})
#: OpenSSL's codes for a certificate that no known authority signed (x509_vfy.h): 18 to 21.
_UNKNOWN_ISSUER = frozenset({18, 19, 20, 21})
#: OpenSSL's reasons for a server that does not speak TLS, or no version of it that we do. Every
#: other failed handshake is tried again, as pip and uv do: proxies send alerts when they are busy.
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
    """One request that failed."""

    def __init__(
        self,
        message: str,
        *,
        again: bool = False,
        wait: float | None = None,
        status: int | None = None,
        of_host: str = "",
        unconnected: bool = False,
        connect_timed_out: bool = False,
    ) -> None:
        super().__init__(message)
        #: Whether the same request may succeed in a moment.
        self.again = again
        #: Seconds that the server wants to be left alone.
        self.wait = wait
        #: What the server answered, where it did.
        self.status = status
        #: The failure as a sentence about the host alone; empty where the host answered.
        self.of_host = of_host
        #: Whether there was no connection to ask anything on.
        self.unconnected = unconnected
        self.connect_timed_out = connect_timed_out
        #: Who was asked last: host and port. `Requests.send` fills it in.
        self.host = ""


def refused(
    status: int, headers: Mapping[str, str], address: HttpAddress, sent: str | None
) -> RequestError:
    """The error for an answer of 400 or more; `sent`: where the credentials came from."""
    if status in PASSING:
        wait = retry_after(headers.get("retry-after"), datetime.now(UTC))
        return RequestError(
            f"{address} answers {status}{_ask_again(status, wait)}",
            again=True,
            wait=wait,
            status=status,
        )
    return RequestError(f"{address} {_meaning(status, sent)}", status=status)


def _ask_again(status: int, wait: float | None) -> str:
    if wait is not None:
        return f" and asks to be left alone for {math.ceil(wait)} s; try again later"
    if status == 429:
        return " (too many requests); try again later, or with fewer --jobs"
    return "; try again later"


def _meaning(status: int, sent: str | None) -> str:
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
    return f"answers {status}, which is no answer to this request"


def retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds that a `Retry-After` header names: a number, or a date (RFC 9110, 10.2.3)."""
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


def unreached(error: Exception, address: HttpAddress, proxy: str | None) -> RequestError:
    """The error for a connection that could not be made, or broke; `error` is httpcore's."""
    import httpcore

    where = address.authority
    through = f" (through the proxy {shown(proxy).rstrip('/')})" if proxy else ""
    if unconnected := _unconnected(error, where, through):
        text, again = unconnected
        return RequestError(
            text,
            again=again,
            of_host=text,
            unconnected=True,
            connect_timed_out=isinstance(error, httpcore.ConnectTimeout),
        )
    if isinstance(error, httpcore.PoolTimeout):
        return RequestError(f"all connections to {where} are busy{through}")
    if isinstance(error, httpcore.TimeoutException):
        said = f"does not answer in time{through}"
    elif isinstance(error, httpcore.ProtocolError):
        text = str(error).rstrip(".") or type(error).__name__
        said = f"breaks off, or does not speak HTTP{through}: {text}"
        # A bad answer is one file's; a connection that ends without any is the host's.
        if not text.startswith("Server disconnected"):
            return RequestError(f"{address} {said}", again=True)
    else:
        text = f"the connection to {where} broke{through}: {_last_words(error)}"
        return RequestError(text, again=True, of_host=text)
    return RequestError(f"{address} {said}", again=True, of_host=f"{where} {said}")


def _unconnected(error: Exception, where: str, through: str) -> tuple[str, bool] | None:
    """Return the reason for a missing connection, and whether a retry may help; else None."""
    import httpcore

    for cause in causes(error):
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
        return f"{where} does not take a connection in time{through}", True
    if isinstance(error, httpcore.ConnectError):
        return f"the connection to {where} broke{through}: {_last_words(error)}", True
    return None


def _last_words(error: Exception) -> str:
    every = tuple(causes(error))
    return next((str(cause) for cause in reversed(every) if str(cause)), type(error).__name__)


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that it came from, the last one first."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
