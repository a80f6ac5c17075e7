"""What a request says of who sends it."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Protocol

from buildmatrix.http.addresses import HttpAddress, Origin


class Authorization(Protocol):
    """What one server is shown."""

    @property
    def source(self) -> str:
        """Where it was found, for messages."""

    def header(self) -> str:
        """The value of `Authorization`."""


class Logins(Protocol):
    """Who knows which server gets which credentials."""

    def of(self, address: HttpAddress) -> Authorization | None:
        """What to send to the server of `address`, which may be where a redirect leads."""


@dataclass(frozen=True, slots=True)
class OneOrigin:
    """An authorization for one server, and none for whatever it redirects to."""

    origin: Origin
    authorization: Authorization | None

    def of(self, address: HttpAddress) -> Authorization | None:
        """See `Logins`."""
        return self.authorization if address.origin == self.origin else None


@dataclass(frozen=True, slots=True)
class Bearer:
    """A token that another server gave."""

    token: str
    source: str

    def header(self) -> str:
        """The value of `Authorization` (RFC 6750)."""
        return f"Bearer {self.token}"

    def __repr__(self) -> str:
        return f"Bearer(source={self.source!r})"


@dataclass(frozen=True, slots=True)
class Login:
    """A user name and a password."""

    user: str
    password: str
    #: Where they were found, for messages.
    source: str

    def header(self) -> str:
        """The value of `Authorization` (RFC 7617)."""
        token = base64.b64encode(f"{self.user}:{self.password}".encode())
        return f"Basic {token.decode('ascii')}"

    def __repr__(self) -> str:
        return f"Login(source={self.source!r})"
