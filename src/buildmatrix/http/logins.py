"""What a request says of who sends it."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Protocol

from buildmatrix.http.addresses import HttpAddress


class Logins(Protocol):
    """Who knows which server gets which credentials."""

    def of(self, address: HttpAddress) -> Login | None:
        """What to send to the server of `address`, which may be where a redirect leads."""


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
