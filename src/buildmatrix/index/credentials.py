"""Whose user name and password go to which server.

Sources, the first that knows the server wins: the URL itself; an index URL of this machine's
configuration that holds them (files of that index are on the same server); uv's
UV_INDEX_<NAME>_USERNAME and _PASSWORD for the index of that name; a URL in what is audited
(`urls`); netrc, as
curl and pip read it, without its `default` entry, which would send the password to every server
that a page links to.
"""

from __future__ import annotations

import netrc
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from buildmatrix.errors import UndecidedError
from buildmatrix.http.addresses import HttpAddress, Origin, parse
from buildmatrix.http.logins import Login
from buildmatrix.locks.machine_indexes import Index
from buildmatrix.urls import remembered


class Credentials:
    """The credentials of this machine, by server."""

    def __init__(self, indexes: Iterable[Index], environment: Mapping[str, str]) -> None:
        self._logins: dict[Origin, Login] = {}
        self._configured: set[Origin] = set()
        for index in indexes:
            try:
                address = parse(index.url)
            except UndecidedError:
                continue  # a folder, or not a URL
            self._configured.add(address.origin)
            login = _login_in_url(address) or _login_in_environment(index.name, environment)
            if login is not None:
                self._logins.setdefault(address.origin, login)
        self._netrc = _read_netrc(environment)
        self._urls_taken = 0

    def remember(self, address: HttpAddress) -> None:
        """Keep the credentials of a URL that the user gave, for its server."""
        login = _login_in_url(address)
        if login is not None:
            self._logins.setdefault(address.origin, login)

    def of(self, address: HttpAddress) -> Login | None:
        """What to send to the server of `address`."""
        self._take_remembered()
        login = _login_in_url(address) or self._logins.get(address.origin)
        if login is not None:
            return login
        # Any page may link to http://, and the password would be readable on the way.
        if address.scheme == "http" and address.origin not in self._configured:
            return None
        return self._netrc.get(address.host)

    def _take_remembered(self) -> None:
        urls = remembered()
        for url in urls[self._urls_taken :]:
            with suppress(UndecidedError):
                self.remember(parse(url))
        self._urls_taken = len(urls)


def _login_in_url(address: HttpAddress) -> Login | None:
    return Login(*address.userinfo, "its URL") if address.userinfo else None


def _login_in_environment(name: str | None, environment: Mapping[str, str]) -> Login | None:
    if name is None:
        return None
    prefix = "UV_INDEX_" + re.sub(r"[^A-Z0-9]", "_", name.upper())
    user = environment.get(f"{prefix}_USERNAME")
    password = environment.get(f"{prefix}_PASSWORD")
    if user is None and password is None:
        return None
    return Login(user or "", password or "", f"{prefix}_USERNAME and {prefix}_PASSWORD")


def _read_netrc(environment: Mapping[str, str]) -> Mapping[str, Login]:
    named = environment.get("NETRC")
    try:
        path = Path(named) if named else Path.home() / ".netrc"
        hosts = netrc.netrc(path).hosts
    # A broken netrc must not fail a run that needs none; a server that wants it will say so.
    except (OSError, RuntimeError, UnicodeDecodeError, netrc.NetrcParseError):
        return {}
    return {
        host.lower(): Login(user, password or "", str(path))
        for host, (user, _, password) in hosts.items()
        if host != "default"
    }
