"""Requests to registries: who answers for a host, what it is shown, and what its answers mean."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from buildmatrix.errors import UndecidedError
from buildmatrix.http.addresses import HttpAddress, parse
from buildmatrix.http.failures import RequestError, iter_causes
from buildmatrix.http.logins import Authorization, Login, SingleOriginLogins
from buildmatrix.http.patience import Patience
from buildmatrix.http.requests import Body, HttpResponse, Requests, Traffic, drain
from buildmatrix.http.trust import Trust
from buildmatrix.locks.machine_indexes import configured_trust
from buildmatrix.registry.challenges import Challenge, challenges
from buildmatrix.registry.credentials import Access, RegistryCredentials
from buildmatrix.registry.failures import refusal
from buildmatrix.registry.reference import DOCKER_HUB, Reference
from buildmatrix.registry.tokens import Permissions, Tokens

#: Where Docker Hub answers.
_HUB = "registry-1.docker.io"
#: Beside them, that something is still what one has of it (304).
_ANSWERS = frozenset({*range(200, 300), 304, *range(400, 600)})
#: As distribution spells it: https://distribution.github.io/distribution/spec/auth/scope/
_CATALOG = ("registry:catalog", "*")
#: What OpenSSL calls an answer that is none of TLS.
_NO_TLS = "WRONG_VERSION_NUMBER"
_NOBODY = SingleOriginLogins(("", "", 0), None)


@dataclass(slots=True)
class _Host:
    """What is known of one registry."""

    name: str
    base: HttpAddress
    tokens: Tokens
    #: What it wanted to see last.
    challenge: Challenge | None = None


class Session:
    """Asks registries for all threads; see `client.Registry`."""

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
        trust = _trust(environment, {} if authorities is None else authorities)
        self._requests = Requests(
            patience,
            _NOBODY,
            trust,
            offline=offline,
        )
        self._hosts: dict[str, _Host] = {}
        self._lock = threading.Lock()
        self.retry = self._requests.retry
        self.pause = self._requests.pause
        self.received = self._requests.traffic
        self.sent = Traffic()

    def close(self) -> None:
        """Close all connections, and end all waiting."""
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
        """One try: the answer of the registry, its status one of `accepted`.

        Raises RequestError, in a sentence that begins with the name of the repository.

        Args:
            reference: the repository, in its registry; without one, the list of repositories.
            method: of HTTP.
            where: behind `/v2/NAME/`, or what a `Location` said.
            wanted: `the manifest 1.0`, for messages.
            headers: those of this request.
            accepted: statuses that the caller knows.
            length: bytes that the answer may have.
            body: what is sent.
            body_length: its bytes.
            changes: whether something is written, which credentials have to allow.
            pull_from: another repository that is read.
            lost: statuses that may pass after another request.
        """
        try:
            host = self._host(reference)
        except RequestError as error:
            raise _about(error, reference) from error.__cause__
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
        authorization: Authorization | None = None
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
                    accepted=_ANSWERS,
                    logins=SingleOriginLogins(host.base.origin, authorization),
                    body=body,
                    direct=where.is_loopback,
                ) as answer:
                    # Whoever a redirect leads to is not asked what it wants to see.
                    is_own = answer.address.origin == host.base.origin
                    if answer.status == 401 and is_own and not is_last and _note(host, answer):
                        drain(answer)
                        continue
                    if answer.status in accepted:
                        yield answer
                        return
                    is_about_login = authorization is not None or answer.status in (401, 403)
                    credentials = self._credentials.of(reference) if is_about_login else Access()
                    failure = refusal(
                        answer,
                        _subject(reference, answer),
                        reference.host,
                        wanted=wanted,
                        login=credentials.login if authorization and is_own else None,
                        secrets=_secrets(authorization),
                        troubles=credentials.troubles,
                        changes=changes,
                    )
                    failure.is_temporary |= answer.status in lost
                    raise failure
        except RequestError as error:
            raise _about(error, reference) from error.__cause__

    def _host(self, reference: Reference) -> _Host:
        name = reference.host
        if name not in self._hosts:
            base = self._find(reference)
            host = _Host(name, base, Tokens(self._requests, name, base))
            with self._lock:
                self._hosts.setdefault(name, host)
        return self._hosts[name]

    def _find(self, reference: Reference) -> HttpAddress:
        host = _HUB if reference.host == DOCKER_HUB else reference.host
        try:
            secure, plain = parse(f"https://{host}/v2/"), parse(f"http://{host}/v2/")
        except UndecidedError as error:
            raise RequestError(f"{reference.name}: {error.message}") from None
        if host in self._plain_http or secure.host in self._plain_http:
            return plain
        if not secure.is_loopback:
            return secure
        # As Docker has it, loopback needs no TLS, and may have it. A server that expects TLS
        # answers a plain request with 400 or hangs up.
        try:
            with self._requests.send(plain, {}, accepted=_ANSWERS, direct=True) as answer:
                drain(answer)
                return secure if answer.status == 400 else plain
        except RequestError as error:
            import httpcore

            if isinstance(error.__cause__, httpcore.ConnectError | httpcore.TimeoutException):
                raise
            # What hangs up may also be a registry that is just being started again.
            if not self._speaks_tls(secure):
                raise
            return secure

    def _speaks_tls(self, address: HttpAddress) -> bool:
        """Whether a server answers behind TLS, or has a certificate that is not trusted."""
        try:
            with self._requests.send(address, {}, accepted=_ANSWERS, direct=True) as answer:
                drain(answer)
        except RequestError as error:
            problems = [cause for cause in iter_causes(error) if isinstance(cause, ssl.SSLError)]
            return any(problem.reason != _NO_TLS for problem in problems)
        return True

    def _authorization(
        self,
        reference: Reference,
        host: _Host,
        permissions: Permissions,
        stale: Authorization | None,
    ) -> Authorization | None:
        challenge = host.challenge
        if challenge is None:
            return None
        login = self._credentials.of(reference).login
        if challenge.scheme == "bearer":
            return host.tokens.token(challenge, permissions, login, stale)
        if login is None or not (login.user or login.password):
            return None
        return Login(login.user, login.password, login.source)


def _note(host: _Host, answer: HttpResponse) -> bool:
    """Whether a registry says how to be let in, in one of the two ways that are known."""
    offered = {
        challenge.scheme: challenge
        for challenge in challenges(answer.headers.get("www-authenticate", ""))
    }
    host.challenge = offered.get("bearer") or offered.get("basic")
    return host.challenge is not None


def _secrets(authorization: Authorization | None) -> tuple[str, ...]:
    return (authorization.header().partition(" ")[2],) if authorization else ()


def _subject(reference: Reference, answer: HttpResponse) -> str:
    """Who answered: registries send for blobs to another host."""
    host = answer.address.authority
    is_own = host == reference.host or reference.host == DOCKER_HUB
    return f"{reference.name}: " + ("the registry" if is_own else host)


def _about(error: RequestError, reference: Reference) -> RequestError:
    if error.message.startswith(reference.name):
        return error
    message = f"{reference.name}: {error.message}"
    return RequestError(
        message, is_temporary=error.is_temporary, wait=error.wait, status=error.status
    )


def _trust(environment: Mapping[str, str], authorities: Mapping[str, tuple[Path, ...]]) -> Trust:
    """As for package indexes, and what Docker and podman have for a registry alone.

    Not taken: the hosts that pip or uv trust without a certificate.
    """
    home = Path(environment.get("HOME") or "/")
    folders: Sequence[Path] = (
        home / ".config" / "containers" / "certs.d",
        Path("/etc/containers/certs.d"),
        home / ".docker" / "certs.d",
        Path("/etc/docker/certs.d"),
    )
    return Trust(
        certificates=configured_trust().certificates,
        folders=tuple(folders),
        authorities=authorities,
    )
