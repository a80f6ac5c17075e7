"""Requests to registries: addresses, authentication and errors."""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.net.addresses import (
    HttpAddress,
    Login,
    Patience,
    RequestError,
    Trust,
    iter_causes,
    only_for,
    parse,
)
from buildmatrix.net.machine_indexes import configured_trust
from buildmatrix.net.registry_credentials import FoundCredentials, RegistryCredentials
from buildmatrix.net.registry_mirrors import DOCKER_HUB, Reference
from buildmatrix.net.registry_tokens import (
    Challenge,
    Permissions,
    Tokens,
    error_for_response,
    parse_challenges,
)
from buildmatrix.net.requests import Body, HttpResponse, Requests, Traffic, drain

#: API host of Docker Hub.
_HUB = "registry-1.docker.io"
#: All responses to handle here; 304 confirms a known digest.
_HANDLED_STATUSES = frozenset({*range(200, 300), 304, *range(400, 600)})
#: As distribution spells it: https://distribution.github.io/distribution/spec/auth/scope/
_CATALOG = ("registry:catalog", "*")
#: OpenSSL's reason for a response that is not TLS.
_NO_TLS = "WRONG_VERSION_NUMBER"
_NEXT = re.compile(r'\s*<([^<>]{1,4096})>\s*;[^,]*\brel="?next"?')


class _Host(Struct):
    """State of one registry."""

    base: HttpAddress
    tokens: Tokens
    #: Its latest challenge.
    challenge: Challenge | None = None


class Session:
    """Authenticated requests to registries, for all threads; see `client.Registry`."""

    def __init__(
        self,
        patience: Patience,
        plain_http: Collection[str],
        environment: Mapping[str, str],
        *,
        offline: bool,
        authorities: Mapping[str, tuple[Path, ...]] | None = None,
    ) -> None:
        self._plain_http = frozenset(plain_http)
        self._credentials = RegistryCredentials(environment)
        trust = _load_trust(environment, {} if authorities is None else authorities)
        self._requests = Requests(patience, lambda _: None, trust, offline=offline)
        self._hosts: dict[str, _Host] = {}
        self._lock = threading.Lock()
        self.retry = self._requests.retry
        self.pause = self._requests.pause
        self.received = self._requests.traffic
        self.sent = Traffic()

    def close(self) -> None:
        """Close all connections and end all waiting."""
        self._requests.close()

    @contextmanager
    def ask(
        self,
        reference: Reference,
        method: str,
        where: str | HttpAddress,
        wanted: str,
        *,
        headers: Mapping[str, str] | None = None,
        accepted: Collection[int] = (200,),
        length: int = 0,
        body: Body | None = None,
        body_length: int = 0,
        changes: bool = False,
        pull_from: str = "",
        lost: Collection[int] = (),
    ) -> Iterator[HttpResponse]:
        """Send one request and yield the response, its status one of `accepted`.

        Raises RequestError, in a sentence that begins with the name of the repository.

        Args:
            reference: repository to request from; without a name, the registry itself.
            method: HTTP method.
            where: path below `/v2/NAME/`, or the address of a `Location`.
            wanted: `the manifest 1.0`, for messages.
            headers: headers of this request.
            accepted: status codes to yield.
            length: expected bytes of the response.
            body: content to send.
            body_length: its length in bytes.
            changes: True for a write, which needs permission to push.
            pull_from: another repository to read from.
            lost: status codes to retry after.
        """
        try:
            host = self._get_host(reference)
        except RequestError as error:
            raise _with_repository(error, reference) from error.__cause__
        if isinstance(where, str):
            where = host.base.join("/".join(filter(None, ("/v2", reference.repository, where))))
        resource = f"repository:{reference.repository}" if reference.repository else ""
        permissions = {(resource, "pull") if resource else _CATALOG}
        if changes:
            permissions.add((resource, "push"))
        if pull_from:
            permissions.add((f"repository:{pull_from}", "pull"))
        sent = dict(headers or {})
        if method not in ("GET", "HEAD"):
            sent["Content-Length"] = str(body_length)
        authorization: Login | None = None
        try:
            for is_last in (False, True):
                authorization = self._authorization(
                    reference, host, frozenset(permissions), authorization
                )
                with self._requests.send(
                    where,
                    sent,
                    method=method,
                    length=length + body_length,
                    accepted=_HANDLED_STATUSES,
                    logins=only_for(host.base.origin, authorization),
                    body=body,
                    direct=where.is_loopback,
                ) as response:
                    # The target of a redirect may not send challenges.
                    is_own = response.address.origin == host.base.origin
                    if (
                        response.status == 401
                        and is_own
                        and not is_last
                        and _record_challenge(host, response)
                    ):
                        drain(response)
                        continue
                    if response.status in accepted:
                        yield response
                        return
                    is_about_login = authorization is not None or response.status in (401, 403)
                    credentials = (
                        self._credentials.find(reference) if is_about_login else FoundCredentials()
                    )
                    failure = error_for_response(
                        response,
                        _describe_server(reference, response),
                        reference.host,
                        wanted=wanted,
                        login=credentials.login if authorization and is_own else None,
                        secrets=authorization.header.split(" ")[1:] if authorization else (),
                        troubles=credentials.troubles,
                        changes=changes,
                    )
                    failure.is_temporary |= response.status in lost
                    raise failure
        except RequestError as error:
            raise _with_repository(error, reference) from error.__cause__

    def _get_host(self, reference: Reference) -> _Host:
        name = reference.host
        if name not in self._hosts:
            base = self._find_base(reference)
            with self._lock:
                self._hosts.setdefault(name, _Host(base, Tokens(self._requests, name, base)))
        return self._hosts[name]

    def _find_base(self, reference: Reference) -> HttpAddress:
        host = _HUB if reference.host == DOCKER_HUB else reference.host
        try:
            secure, plain = parse(f"https://{host}/v2/"), parse(f"http://{host}/v2/")
        except UndecidedError as error:
            raise RequestError(f"{reference.name}: {error.message}") from None
        if host in self._plain_http or secure.host in self._plain_http:
            return plain
        if not secure.is_loopback:
            return secure
        # As in Docker, TLS is optional on loopback. A TLS server answers a plain request with 400
        # or hangs up.
        try:
            return secure if self._ask_status(plain) == 400 else plain
        except RequestError as error:
            import httpcore

            if isinstance(error.__cause__, httpcore.ConnectError | httpcore.TimeoutException):
                raise
            # A registry that is starting also hangs up.
            if not self._speaks_tls(secure):
                raise
            return secure

    def _speaks_tls(self, address: HttpAddress) -> bool:
        """Return True if a server speaks TLS, even with an untrusted certificate."""
        try:
            self._ask_status(address)
        except RequestError as error:
            problems = [cause for cause in iter_causes(error) if isinstance(cause, ssl.SSLError)]
            return any(problem.reason != _NO_TLS for problem in problems)
        return True

    def _ask_status(self, address: HttpAddress) -> int:
        sending = self._requests.send(address, {}, accepted=_HANDLED_STATUSES, direct=True)
        with sending as response:
            drain(response)
            return response.status

    def _authorization(
        self, reference: Reference, host: _Host, permissions: Permissions, stale: Login | None
    ) -> Login | None:
        challenge = host.challenge
        if challenge is None:
            return None
        login = self._credentials.find(reference).login
        if challenge.scheme == "bearer":
            return host.tokens.get_token(challenge, permissions, login, stale)
        if login is None or not (login.user or login.password):
            return None
        return Login.basic(login.user, login.password, login.source)


def next_page(reference: Reference, wanted: str, response: HttpResponse) -> HttpAddress | None:
    """Return the address of a list's next page, from the header `Link` (RFC 8288).

    Raises RequestError.
    """
    link = _NEXT.match(response.headers.get("link", ""))
    if link is None:
        return None
    try:
        following = response.address.join(link[1])
    except UndecidedError as error:
        raise error_about(reference, wanted, f"says: {error.message}") from None
    # Credentials stay with the registry.
    if following.host != response.address.host:
        raise error_about(reference, wanted, "has the next page on another server")
    # A registry behind a proxy may not know its own scheme and port.
    return replace(response.address, target=following.target)


def error_about(reference: Reference, wanted: str, what: str) -> RequestError:
    """Return an error of a registry that was asked for something, and did `what`."""
    return RequestError(f"{reference.name}: the registry, asked for {wanted}, {what}")


def _record_challenge(host: _Host, response: HttpResponse) -> bool:
    """Record a registry's challenge; return False if it has none of a known scheme."""
    offered = {
        challenge.scheme: challenge
        for challenge in parse_challenges(response.headers.get("www-authenticate", ""))
    }
    host.challenge = offered.get("bearer") or offered.get("basic")
    return host.challenge is not None


def _describe_server(reference: Reference, response: HttpResponse) -> str:
    """Return the responding server for a message: blobs may come from another host."""
    host = response.address.authority
    is_own = host == reference.host or reference.host == DOCKER_HUB
    return f"{reference.name}: " + ("the registry" if is_own else host)


def _with_repository(error: RequestError, reference: Reference) -> RequestError:
    if error.message.startswith(reference.name):
        return error
    message = f"{reference.name}: {error.message}"
    return RequestError(
        message, is_temporary=error.is_temporary, wait=error.wait, status=error.status
    )


def _load_trust(
    environment: Mapping[str, str], authorities: Mapping[str, tuple[Path, ...]]
) -> Trust:
    """Return the certificates for package indexes, plus those of Docker and podman by registry.

    Hosts that pip or uv trust without a certificate are not included.
    """
    home = Path(environment.get("HOME") or "/")
    return Trust(
        certificates=configured_trust().certificates,
        folders=(
            home / ".config/containers/certs.d",
            Path("/etc/containers/certs.d"),
            home / ".docker/certs.d",
            Path("/etc/docker/certs.d"),
        ),
        authorities=authorities,
    )
