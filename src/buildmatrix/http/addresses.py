"""http and https URLs, taken apart so that no credential can slip into a message."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from buildmatrix.errors import UndecidedError

#: Characters of a URL; the longest that servers commonly take.
LONGEST = 8192
_PORTS = {"http": 80, "https": 443}
#: What may stand in a path or query as it is (RFC 3986, 3.3 and 3.4); `%` is taken as an escape.
_SAFE = "/%:@!$&'()*+,;=-._~"
#: A path that means itself: nothing in it is quoted, and no part of it leads up.
_PLAIN = re.compile(r"(?:/(?!\.)[A-Za-z0-9._~:@-]{1,255}){1,30}")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f]")

Origin = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """One http or https URL."""

    scheme: str
    #: In ASCII, lower case; an IPv6 address without brackets.
    host: str
    port: int
    #: Path and query as they are sent.
    target: str
    #: User name and password that stood in the URL, unquoted; never shown.
    userinfo: tuple[str, str] | None = field(default=None, repr=False)

    @property
    def origin(self) -> Origin:
        """What credentials belong to: scheme, host and port (RFC 6454)."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """Host and port, as the `Host` header and messages have them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.explicit_port else host

    @property
    def explicit_port(self) -> int | None:
        """The port, where it is not the usual one of the scheme."""
        return None if self.port == _PORTS[self.scheme] else self.port

    @property
    def url(self) -> str:
        """The URL without user name and password."""
        return f"{self.scheme}://{self.authority}{self.target}"

    def __str__(self) -> str:
        """For messages: without credentials, and without the query, which may be a signature."""
        return self.url.partition("?")[0]

    @property
    def is_loopback(self) -> bool:
        """Whether it can be nowhere but on this machine (RFC 6761, 6.3)."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def bare(self) -> HttpAddress:
        """The same without user name and password."""
        return replace(self, userinfo=None)

    def join(self, reference: str) -> HttpAddress:
        """What `reference` means in a document or a redirect of this address. Raises as `parse`."""
        reference = reference.strip()
        if _PLAIN.fullmatch(reference):
            return HttpAddress(self.scheme, self.host, self.port, reference)
        try:
            joined = urljoin(self.url, reference)
        except ValueError:  # `http://[::1/`, of which `parse` says more.
            joined = reference
        return parse(joined)


def parse(url: str) -> HttpAddress:
    """`url` taken apart. Raises UndecidedError for what is no http or https URL."""
    try:
        if len(url) > LONGEST:
            raise ValueError(f"it has more than {LONGEST} characters")
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
        port = _port(parts)
    except ValueError as error:
        # What is no URL has no user name either; it may hold a password all the same.
        shown = url.rpartition("@")[2].partition("?")[0][:200]
        raise UndecidedError(f"{shown!r} cannot be asked for: {error}") from None
    path = quote(parts.path or "/", safe=_SAFE)
    query = f"?{quote(parts.query, safe=_SAFE + '?')}" if parts.query else ""
    userinfo = None
    if parts.username is not None or parts.password is not None:
        userinfo = unquote(parts.username or ""), unquote(parts.password or "")
    return HttpAddress(parts.scheme, host, port, path + query, userinfo)


def _port(parts: SplitResult) -> int:
    try:
        return parts.port if parts.port is not None else _PORTS[parts.scheme]
    except ValueError:
        # The text of the standard library shows what it took for a port: maybe a password.
        raise ValueError("its port is no number from 0 to 65535") from None
