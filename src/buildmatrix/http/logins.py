"""Credentials of requests."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Protocol

from buildmatrix.http.addresses import HttpAddress, Origin


class Authorization(Protocol):
    """Credentials for one server."""

    @property
    def source(self) -> str:
        """Place where the credentials were found, for messages."""

    def header(self) -> str:
        """Return the value of the `Authorization` header."""


class Logins(Protocol):
    """Credentials by server."""

    def of(self, address: HttpAddress) -> Authorization | None:
        """Return the credentials for the server of `address`, which may be a redirect's target."""


@dataclass(frozen=True, slots=True)
class SingleOriginLogins:
    """Credentials for one origin, never sent to the targets of its redirects."""

    origin: Origin
    authorization: Authorization | None

    def of(self, address: HttpAddress) -> Authorization | None:
        """See `Logins`."""
        return self.authorization if address.origin == self.origin else None


@dataclass(frozen=True, slots=True)
class Bearer:
    """A token from a token server."""

    token: str
    source: str

    def header(self) -> str:
        """Return the value of the `Authorization` header (RFC 6750)."""
        return f"Bearer {self.token}"

    def __repr__(self) -> str:
        return f"Bearer(source={self.source!r})"


@dataclass(frozen=True, slots=True)
class Login:
    """A user name and a password."""

    user: str
    password: str
    #: Place where they were found, for messages.
    source: str

    def header(self) -> str:
        """Return the value of the `Authorization` header (RFC 7617)."""
        token = base64.b64encode(f"{self.user}:{self.password}".encode())
        return f"Basic {token.decode('ascii')}"

    def __repr__(self) -> str:
        return f"Login(source={self.source!r})"
