"""Authentication with registries: challenges, tokens, and errors of registries.

Protocol: https://distribution.github.io/distribution/spec/auth/token/ (GET, with a password or
anonymous) and .../spec/auth/oauth/ (POST, with an identity token). The realm of a registry is the
only other server that receives the registry's credentials.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.text import printable, shown
from buildmatrix.net.addresses import (
    TEMPORARY_STATUSES,
    HttpAddress,
    Login,
    RequestError,
    only_for,
    parse,
    retry_after,
)
from buildmatrix.net.registry_credentials import RegistryLogin
from buildmatrix.net.requests import HttpResponse, Requests

# Challenges: the header `WWW-Authenticate` (RFC 9110, 11.6.1), which names the token server


#: Characters of the header.
_MAX_LENGTH = 16 << 10
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_SCHEME = re.compile(rf"[\s,]*({_WORD})(?=\s|,|$)")
_PARAMETER = re.compile(rf'[\s,]*({_WORD})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|({_WORD}))', re.DOTALL)


class Challenge(Struct, frozen=True):
    """An authentication scheme and its parameters."""

    #: In lower case: `basic`, `bearer`.
    scheme: str
    #: Names in lower case.
    parameters: Mapping[str, str]


def parse_challenges(header: str) -> Iterator[Challenge]:
    """Yield the challenges of a header, up to the first syntax error."""
    header = header[:_MAX_LENGTH]
    place = 0
    while match := _SCHEME.match(header, place):
        place = match.end()
        parameters: dict[str, str] = {}
        while parameter := _PARAMETER.match(header, place):
            place = parameter.end()
            quoted = re.sub(r"\\(.)", r"\1", parameter[2] or "")
            parameters.setdefault(parameter[1].lower(), parameter[3] or quoted)
        yield Challenge(match[1].lower(), parameters)


# Errors, each with one sentence for the user


#: Maximum bytes of an error response, and characters of its message.
_MAX_ERROR = 64 << 10
_MAX_MESSAGE = 300


def error_for_response(
    response: HttpResponse,
    who: str,
    host: str,
    *,
    wanted: str = "",
    login: RegistryLogin | None = None,
    secrets: Sequence[str] = (),
    troubles: tuple[str, ...] = (),
    changes: bool = False,
) -> RequestError:
    """Return the error for an unexpected response.

    Args:
        response: of the registry or its token server; its body is read.
        who: subject of the sentence.
        host: registry, as for `docker login`.
        wanted: requested content: `the manifest 1.0`.
        login: credentials sent.
        secrets: further secrets to remove from the message.
        troubles: reasons why credentials may be missing.
        changes: True for a write.
    """
    status = response.status
    why = _registry_message(response, (*(login.secrets if login else ()), *secrets))
    to = f" to {wanted}" if wanted else ""
    if status in TEMPORARY_STATUSES:
        wait = retry_after(response.headers.get("retry-after"), datetime.now(UTC))
        busy = " (too many requests)" if status == 429 else ""
        advice = "; try again later" if wait is None else f"; retry after {math.ceil(wait)} s"
        text = f"{who} answers {status}{busy}{to}{advice}{why}"
        return RequestError(text, is_temporary=True, wait=wait, status=status)
    meaning = _explain_status(response, host, wanted, login, changes)
    also = "".join(f"; {trouble}" for trouble in troubles) if status in (401, 403) else ""
    return RequestError(f"{who} {meaning}{why}{also}", status=status)


def _explain_status(
    response: HttpResponse, host: str, wanted: str, login: RegistryLogin | None, changes: bool
) -> str:
    status = response.status
    if status in (401, 403) and login is not None:
        if status == 401:
            return f"does not take the credentials from {login.source} (401)"
        right = "write" if changes else "read"
        return f"does not let the credentials from {login.source} {right} here (403)"
    if status in (401, 403):
        return f"wants credentials ({status}); log in with `docker login {host}`"
    if status in (404, 410):
        return f"does not have {wanted or 'it'} ({status})"
    if status == 413:
        return f"does not take so large a body ({status})"
    if status == 416:
        return f"does not have these bytes of {wanted or 'it'} (416)"
    return f"answers {status}" + (f" to {wanted}" if wanted else "")


def _registry_message(response: HttpResponse, secrets: tuple[str, ...]) -> str:
    """Return the registry's own message (distribution specification, "Error Codes")."""
    try:
        document = response.json_object(_MAX_ERROR)
    except RequestError:
        return ""
    errors = document.get("errors") if document else None
    first = errors[0] if isinstance(errors, list) and errors else None
    if not isinstance(first, dict):
        return ""
    texts = (first.get("code"), first.get("message"))
    text = ": ".join(text for text in texts if isinstance(text, str) and text)
    for secret in secrets:
        text = text.replace(secret, "***")
    text = printable(shown(text))[:_MAX_MESSAGE].strip().rstrip(".")
    return f': it says "{text}"' if text else ""


# Tokens, cached until shortly before they expire


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
        self._cache: dict[tuple[str, Permissions], tuple[Login, float]] = {}

    def get_token(
        self,
        challenge: Challenge,
        permissions: Permissions,
        login: RegistryLogin | None,
        stale: Login | None = None,
    ) -> Login:
        """Return a token that allows `permissions`, other than the rejected one `stale`.

        Raises RequestError.
        """
        if login is not None and login.registry_token:
            return _bearer(login.registry_token, login.source)
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
            bearer = _bearer(text, source)
            end = now + _usable_seconds(response.get("expires_in"))
            self._cache[source, permissions] = bearer, end
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
            body = partial(iter, (data,))
        else:
            if login is not None:
                authorization = Login.basic(login.user, login.password, login.source)
                fields.append(("account", login.user))
            joint = "&" if "?" in realm.target else "?"
            realm = parse(f"{realm.url}{joint if fields else ''}{urlencode(fields)}")
        with self._requests.send(
            realm,
            headers,
            method="POST" if body else "GET",
            length=_MAX_RESPONSE,
            accepted=_HANDLED_STATUSES,
            logins=only_for(realm.origin, authorization),
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
            if (document := response.json_object(_MAX_RESPONSE)) is None:
                raise RequestError(f"the token server of {self._host} returned no JSON object")
            return document

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


def _bearer(token: str, source: str) -> Login:
    """Return the credentials with a token (RFC 6750)."""
    return Login(f"Bearer {token}", source)


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
