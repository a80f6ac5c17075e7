"""Registry tokens, cached until shortly before they expire.

Protocol: https://distribution.github.io/distribution/spec/auth/token/ (GET, with a password or
anonymous) and .../spec/auth/oauth/ (POST, with an identity token). The realm of a registry is
the only other server that receives the registry's credentials.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping
from json import JSONDecodeError
from typing import Any
from urllib.parse import urlencode

from buildmatrix.errors import UndecidedError
from buildmatrix.http.addresses import HttpAddress, parse
from buildmatrix.http.failures import RequestError
from buildmatrix.http.logins import Authorization, Bearer, Login, SingleOriginLogins
from buildmatrix.http.requests import Body, HttpResponse, Requests
from buildmatrix.registry.challenges import Challenge
from buildmatrix.registry.credentials import RegistryLogin
from buildmatrix.registry.failures import error_for_response
from buildmatrix.strict_json import parse_json

#: Bytes of a response; tokens have some thousand.
_MAX_RESPONSE = 1 << 20
#: Characters allowed in a header.
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")
#: Default lifetime in seconds, and the safety margin before its end.
_DEFAULT_SECONDS = 60.0
_MARGIN = 10.0
_MAX_SECONDS = 3600.0
_CLIENT = "buildmatrix"
_HANDLED_STATUSES = frozenset({*range(200, 300), *range(400, 600)})

#: A resource and an action: `("repository:team/app", "pull")`.
Permission = tuple[str, str]
Permissions = frozenset[Permission]


class Tokens:
    """Tokens of one registry, for all threads."""

    clock = staticmethod(time.monotonic)

    def __init__(self, requests: Requests, host: str, base: HttpAddress) -> None:
        self._requests = requests
        self._host = host
        #: API address of the registry.
        self._base = base
        self._lock = threading.Lock()
        self._cache: dict[tuple[str, Permissions], tuple[Bearer, float]] = {}

    def get_token(
        self,
        challenge: Challenge,
        permissions: Permissions,
        login: RegistryLogin | None,
        stale: Authorization | None = None,
    ) -> Bearer:
        """Return a token that allows `permissions`, other than the rejected one `stale`.

        Raises RequestError.
        """
        if login is not None and login.registry_token:
            return Bearer(login.registry_token, login.source)
        source = login.source if login else ""
        with self._lock:  # Concurrent threads share one token.
            now = self.clock()
            for (owner, allowed), (token, end) in list(self._cache.items()):
                if token == stale or end <= now:
                    del self._cache[owner, allowed]
                elif owner == source and permissions <= allowed:
                    return token
            response = self._request_token(challenge, permissions, login)
            text = response.get("token") or response.get("access_token")
            if not isinstance(text, str) or not _TOKEN.fullmatch(text):
                raise RequestError(f"the token server of {self._host} returned no token")
            bearer = Bearer(text, source)
            self._cache[source, permissions] = (
                bearer,
                now + _usable_seconds(response.get("expires_in")),
            )
            return bearer

    def _request_token(
        self, challenge: Challenge, permissions: Permissions, login: RegistryLogin | None
    ) -> Mapping[str, Any]:
        realm = self._realm_address(challenge)
        fields = [("scope", scope) for scope in _format_scopes(permissions)]
        if service := challenge.parameters.get("service"):
            fields.insert(0, ("service", service))
        headers = {"Accept": "application/json"}
        authorization, body = None, None
        if login is not None and login.identity_token:
            fields += [
                ("grant_type", "refresh_token"),
                ("client_id", _CLIENT),
                ("refresh_token", login.identity_token),
            ]
            # OAuth 2 has a single field for all scopes.
            scopes = " ".join(value for key, value in fields if key == "scope")
            single = {**dict(fields), **({"scope": scopes} if scopes else {})}
            data = urlencode(single).encode("ascii")
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            headers["Content-Length"] = str(len(data))
            body = _single_chunk(data)
        else:
            if login is not None:
                authorization = Login(login.user, login.password, login.source)
                fields.append(("account", login.user))
            joint = "&" if "?" in realm.target else "?"
            realm = parse(f"{realm.url}{joint if fields else ''}{urlencode(fields)}")
        with self._requests.send(
            realm,
            headers,
            method="POST" if body else "GET",
            length=_MAX_RESPONSE,
            accepted=_HANDLED_STATUSES,
            logins=SingleOriginLogins(realm.origin, authorization),
            body=body,
            direct=self._is_local(realm),
        ) as response:
            if response.status >= 400:
                raise error_for_response(
                    response,
                    f"{realm.authority}, the token server of {self._host},",
                    self._host,
                    login=login,
                )
            return self._read_document(response)

    def _realm_address(self, challenge: Challenge) -> HttpAddress:
        try:
            realm = parse(challenge.parameters.get("realm", "")).bare()
        except UndecidedError:
            raise RequestError(f"{self._host} names no valid token server") from None
        # Never send a TLS registry's password in the clear.
        is_same = self._base.scheme == "http" and self._base.host == realm.host
        if realm.scheme == "http" and not is_same and not self._is_local(realm):
            raise RequestError(
                f"{self._host} requests tokens from {realm.authority} over plain HTTP, which would "
                "reveal the password; credentials are sent over https only"
            )
        return realm

    def _is_local(self, realm: HttpAddress) -> bool:
        return self._base.is_loopback and realm.is_loopback

    def _read_document(self, response: HttpResponse) -> Mapping[str, Any]:
        try:
            document = parse_json(response.read(_MAX_RESPONSE))
        except JSONDecodeError:
            document = None
        if not isinstance(document, dict):
            raise RequestError(f"the token server of {self._host} returned no JSON object")
        return document


def _format_scopes(permissions: Permissions) -> Iterator[str]:
    """Yield `repository:team/app:pull,push`, sorted."""
    for resource in sorted({name for name, _ in permissions}):
        actions = sorted(action for name, action in permissions if name == resource)
        yield f"{resource}:{','.join(actions)}"


def _usable_seconds(seconds: Any) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        seconds = _DEFAULT_SECONDS
    life = min(float(seconds), _MAX_SECONDS)
    return life - min(_MARGIN, life / 2)


def _single_chunk(data: bytes) -> Body:
    return lambda: iter((data,))
