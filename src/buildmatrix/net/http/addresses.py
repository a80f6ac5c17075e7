"""Addresses of servers, and what belongs to each: credentials and certificates."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from buildmatrix.base.errors import UndecidedError

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


@dataclass(frozen=True, slots=True)
class Trust:
    """Certificate settings of this machine."""

    #: `HOST` or `HOST:PORT` of servers whose certificates are not verified; `*` for all.
    unchecked: frozenset[str] = frozenset()
    #: Name of a further setting with a certificate file, and that file.
    certificates: tuple[str, str | None] = ("", None)

    #: Folders with one subfolder of certificates per server, named `HOST[:PORT]`.
    folders: tuple[Path, ...] = ()
    #: Certificate authorities for one server, by `HOST[:PORT]`; may grow.
    authorities: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)

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
