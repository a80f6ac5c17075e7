"""Tokens of registries: asked for where the registry says, kept until shortly before they expire.

Protocol: https://distribution.github.io/distribution/spec/auth/token/ (GET, with a password or
anonymous) and .../spec/auth/oauth/ (POST, with an identity token). The realm that a registry names
is the only other server that is shown the registry's credentials.
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
from buildmatrix.registry.failures import refusal
from buildmatrix.strict_json import parse_json

#: Bytes of an answer; tokens have some thousand.
_LARGEST_ANSWER = 1 << 20
#: What may stand in a header.
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")
#: Seconds that a token holds where nobody says so, and those before its end that are not used.
_USUAL_LIFE = 60.0
_MARGIN = 10.0
_LONGEST_LIFE = 3600.0
_CLIENT = "buildmatrix"
_ANSWERS = frozenset({*range(200, 300), *range(400, 600)})

#: A resource and what is done there: `("repository:team/app", "pull")`.
Permission = tuple[str, str]
Permissions = frozenset[Permission]


class Tokens:
    """The tokens of one registry, for all threads."""

    clock = staticmethod(time.monotonic)

    def __init__(self, requests: Requests, host: str, base: HttpAddress) -> None:
        self._requests = requests
        self._host = host
        #: Where the registry answers.
        self._base = base
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, Permissions], tuple[Bearer, float]] = {}

    def token(
        self,
        challenge: Challenge,
        permissions: Permissions,
        login: RegistryLogin | None,
        stale: Authorization | None = None,
    ) -> Bearer:
        """A token that allows `permissions`, and is not `stale`, which the registry refused.

        Raises RequestError.
        """
        if login is not None and login.registry_token:
            return Bearer(login.registry_token, login.source)
        source = login.source if login else ""
        with self._lock:  # One token for sixteen threads that come together.
            now = self.clock()
            for (owner, allowed), (token, end) in list(self._kept.items()):
                if token == stale or end <= now:
                    del self._kept[owner, allowed]
                elif owner == source and permissions <= allowed:
                    return token
            answer = self._ask(challenge, permissions, login)
            text = answer.get("token") or answer.get("access_token")
            if not isinstance(text, str) or not _TOKEN.fullmatch(text):
                raise RequestError(f"the token server of {self._host} gives no token")
            bearer = Bearer(text, source)
            self._kept[source, permissions] = bearer, now + _life(answer.get("expires_in"))
            return bearer

    def _ask(
        self, challenge: Challenge, permissions: Permissions, login: RegistryLogin | None
    ) -> Mapping[str, Any]:
        realm = self._realm(challenge)
        fields = [("scope", scope) for scope in _scopes(permissions)]
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
            # OAuth 2 has one field of all scopes.
            scopes = " ".join(value for key, value in fields if key == "scope")
            single = {**dict(fields), **({"scope": scopes} if scopes else {})}
            data = urlencode(single).encode("ascii")
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            headers["Content-Length"] = str(len(data))
            body = _body(data)
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
            length=_LARGEST_ANSWER,
            accepted=_ANSWERS,
            logins=SingleOriginLogins(realm.origin, authorization),
            body=body,
            direct=self._is_local(realm),
        ) as answer:
            if answer.status >= 400:
                raise refusal(
                    answer,
                    f"{realm.authority}, the token server of {self._host},",
                    self._host,
                    login=login,
                )
            return self._document(answer)

    def _realm(self, challenge: Challenge) -> HttpAddress:
        try:
            realm = parse(challenge.parameters.get("realm", "")).bare()
        except UndecidedError:
            raise RequestError(f"{self._host} names no server that gives tokens") from None
        # Whoever may read on the way to a registry with TLS must not get its password.
        is_same = self._base.scheme == "http" and self._base.host == realm.host
        if realm.scheme == "http" and not is_same and not self._is_local(realm):
            raise RequestError(
                f"{self._host} wants tokens from {realm.authority} over plain HTTP, where anybody "
                "could read the password; credentials are sent over https only"
            )
        return realm

    def _is_local(self, realm: HttpAddress) -> bool:
        return self._base.is_loopback and realm.is_loopback

    def _document(self, answer: HttpResponse) -> Mapping[str, Any]:
        try:
            document = parse_json(answer.read(_LARGEST_ANSWER))
        except JSONDecodeError:
            document = None
        if not isinstance(document, dict):
            raise RequestError(f"the token server of {self._host} answers with no JSON object")
        return document


def _scopes(permissions: Permissions) -> Iterator[str]:
    """`repository:team/app:pull,push`; the same permissions give the same words."""
    for resource in sorted({name for name, _ in permissions}):
        actions = sorted(action for name, action in permissions if name == resource)
        yield f"{resource}:{','.join(actions)}"


def _life(seconds: Any) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        seconds = _USUAL_LIFE
    life = min(float(seconds), _LONGEST_LIFE)
    return life - min(_MARGIN, life / 2)


def _body(data: bytes) -> Body:
    return lambda: iter((data,))
