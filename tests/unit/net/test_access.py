"""Who a registry is shown what: tokens, passwords, certificates, and nothing to anybody else."""

from __future__ import annotations

import base64
import io
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import make_certificate
from loopback import LoopbackServer, Misdeed, Request, Response, answering, filled, redirecting
from registry import RegistryServer, basic, digest_of, error

from buildmatrix.base.errors import UndecidedError
from buildmatrix.images import documents
from buildmatrix.images.documents import Descriptor
from buildmatrix.net import registry_tokens
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Reference

ANN = ("ann", "hunter2")
BLOB = b"blob"
WANTED = Descriptor(media_type=documents.LAYER, digest=digest_of(BLOB), size=len(BLOB))


@pytest.fixture
def log_in(home: Path) -> Callable[..., None]:
    """Write Docker's configuration."""

    def write(
        server: RegistryServer, user: str = ANN[0], password: str = ANN[1], **more: Any
    ) -> None:
        auth = base64.b64encode(f"{user}:{password}".encode()).decode()
        entry = more or {"auth": auth}
        path = home / ".docker" / "config.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"auths": {server.host: entry}}))

    return write


@pytest.fixture
def guarded() -> Iterator[RegistryServer]:
    """A registry with tokens for ann."""
    with RegistryServer(auth="bearer", login=ANN) as server:
        server.put("team/app", BLOB)
        yield server


def app_of(server: RegistryServer, name: str = "team/app") -> Reference:
    return Reference.parse(f"{server.host}/{name}")


def read(registry: Registry, reference: Reference) -> bytes:
    with registry.blob(reference, WANTED) as chunks:
        return b"".join(chunks)


def shown_to(server: LoopbackServer) -> list[str]:
    return [
        seen.headers["authorization"] for seen in server.requests if "authorization" in seen.headers
    ]


def scopes(server: RegistryServer) -> list[str]:
    return [seen.path for seen in server.requests if seen.path.startswith("/token")]


# Tokens


def test_anybody_may_get_a_token(registry: Registry) -> None:
    with RegistryServer(auth="bearer") as server:
        server.put("team/app", BLOB)
        assert read(registry, app_of(server)) == BLOB
        assert read(registry, app_of(server)) == BLOB
        assert scopes(server) == [
            "/token?service=registry.test&scope=repository%3Ateam%2Fapp%3Apull"
        ]


def test_a_password_is_for_the_token_server_alone(
    registry: Registry, guarded: RegistryServer, log_in: Callable[..., None]
) -> None:
    log_in(guarded)
    assert read(registry, app_of(guarded)) == BLOB
    for seen in guarded.requests:
        sent = seen.headers.get("authorization", "")
        assert sent == basic(*ANN) if seen.path.startswith("/token") else sent[:6] != "Basic "


def test_a_token_allows_what_is_done_and_no_more(
    registry: Registry, guarded: RegistryServer, log_in: Callable[..., None]
) -> None:
    log_in(guarded)
    app = app_of(guarded)
    guarded.put("team/base", b"base")
    base = Descriptor(media_type=documents.LAYER, digest=digest_of(b"base"), size=4)
    assert read(registry, app) == BLOB
    assert registry.push_blob(
        app,
        Descriptor(media_type=documents.LAYER, digest=digest_of(b"new"), size=3),
        lambda: io.BytesIO(b"new"),
    )
    assert not registry.push_blob(app, base, lambda: io.BytesIO(b"base"), ["team/base"])
    read(registry, app)
    named = [scope.partition("&scope=")[2].partition("&account")[0] for scope in scopes(guarded)]
    assert named == [
        "repository%3Ateam%2Fapp%3Apull",
        "repository%3Ateam%2Fapp%3Apull%2Cpush",
        "repository%3Ateam%2Fapp%3Apull%2Cpush&scope=repository%3Ateam%2Fbase%3Apull",
    ]


def test_an_identity_token_is_exchanged(registry: Registry, log_in: Callable[..., None]) -> None:
    with RegistryServer(auth="bearer", identity_token="refresh/me=") as server:
        server.put("team/app", BLOB)
        log_in(server, identitytoken="refresh/me=")
        assert read(registry, app_of(server)) == BLOB
        assert server.asked("POST", "/token") == 1
        assert not any("refresh" in seen.path for seen in server.requests)


def test_a_registry_token_is_used_as_it_is(
    registry: Registry, guarded: RegistryServer, log_in: Callable[..., None]
) -> None:
    log_in(guarded, registrytoken="0|repository:team/app:pull")
    assert read(registry, app_of(guarded)) == BLOB
    assert scopes(guarded) == []


def test_a_token_that_is_refused_is_asked_for_anew(
    registry: Registry, guarded: RegistryServer, log_in: Callable[..., None]
) -> None:
    log_in(guarded)
    read(registry, app_of(guarded))
    guarded.expired.add(shown_to(guarded)[-1].removeprefix("Bearer "))
    assert read(registry, app_of(guarded)) == BLOB
    assert len(scopes(guarded)) == 2


def test_a_token_is_not_used_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
    registry: Registry,
    guarded: RegistryServer,
    log_in: Callable[..., None],
) -> None:
    now = 0.0
    monkeypatch.setattr(registry_tokens.Tokens, "clock", staticmethod(lambda: now))
    log_in(guarded)
    read(registry, app_of(guarded))
    now = 289.0
    read(registry, app_of(guarded))
    assert len(scopes(guarded)) == 1
    now = 290.0
    read(registry, app_of(guarded))
    assert len(scopes(guarded)) == 2


@pytest.mark.parametrize(
    ("said", "life"),
    [
        (300, 290),
        (10, 5),
        (1, 0.5),
        (0, 50),
        (-1, 50),
        (None, 50),
        ("300", 50),
        (True, 50),
        (1e300, 3590),
        (float("nan"), 50),
    ],
)
def test_the_life_of_a_token(said: Any, life: float) -> None:
    assert registry_tokens._usable_seconds(said) == life


def test_many_threads_ask_for_one_token(
    registry: Registry, guarded: RegistryServer, log_in: Callable[..., None]
) -> None:
    log_in(guarded)
    threads = [threading.Thread(target=read, args=(registry, app_of(guarded))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(scopes(guarded)) == 1


@pytest.mark.parametrize(
    ("misdeed", "why"),
    [
        (answering(401), "does not take the credentials from {file} (401)"),
        (answering(403), "does not let the credentials from {file} read here (403)"),
        (answering(404), "does not have it (404)"),
        (answering(500), "answers 500; try again later"),
        (answering(429, retry_after="77"), "retry after 77 s"),
        (answering(200, b"<html>"), "returned no JSON object"),
        (answering(200, b"[]"), "returned no JSON object"),
        (answering(200, b'{"token": 5}'), "returned no token"),
        (answering(200, b'{"token": "a\\r\\nX-Evil: 1"}'), "returned no token"),
        (answering(200, b"{}"), "returned no token"),
        (filled(2 << 20), "exceeds the limit of 1 MiB"),
        (answering(200, b'{"token": "good for nothing"}'), "returned no token"),
        (answering(200, b'{"token": "wrong"}'), "the registry does not take the credentials"),
    ],
)
def test_a_token_server_that_fails_has_its_sentence(
    registry: Registry,
    guarded: RegistryServer,
    log_in: Callable[..., None],
    home: Path,
    misdeed: Misdeed,
    why: str,
) -> None:
    log_in(guarded)
    guarded.misbehave("/token", misdeed)
    with pytest.raises(UndecidedError) as failure:
        read(registry, app_of(guarded))
    message = failure.value.message
    assert why.format(file=home / ".docker" / "config.json") in message
    assert message.startswith(f"{guarded.host}/team/app: ")


def test_no_message_holds_a_credential(
    registry: Registry, guarded: RegistryServer, log_in: Callable[..., None]
) -> None:
    """Servers that repeat what they were sent."""
    log_in(guarded, "ann", "wrong-password")
    with pytest.raises(UndecidedError) as failure:
        read(registry, app_of(guarded))
    assert 'it says "UNAUTHORIZED: wrong: Basic ***"' in failure.value.message
    assert "wrong-password" not in str(failure.value.__dict__) + repr(failure.value)

    log_in(guarded)
    path = guarded.path_of("team/app", WANTED.digest)

    def repeating(request: Request, serve: object) -> Response:
        return error(418, "TEAPOT", f"{request.headers['authorization']} of {ANN[1]}")

    registry = Registry()
    guarded.misbehave(f"GET {path}", repeating, after=1)
    with pytest.raises(UndecidedError) as failure:
        read(registry, app_of(guarded))
    assert 'it says "TEAPOT: Bearer *** of ***"' in failure.value.message
    registry.close()


def test_a_token_server_may_be_elsewhere_over_tls_or_on_this_machine(
    registry: Registry, log_in: Callable[..., None]
) -> None:
    with (
        RegistryServer(login=ANN) as elsewhere,
        RegistryServer(auth="bearer", realm=f"{elsewhere.origin}/token?x=1") as server,
    ):
        server.put("team/app", BLOB)
        log_in(server)
        assert read(registry, app_of(server)) == BLOB
        assert shown_to(elsewhere) == [basic(*ANN)]
        assert elsewhere.requests[0].path.startswith("/token?x=1&service=")


@pytest.mark.parametrize("realm", ["http://tokens.example/token", "ftp://x/", "", "http://[::1/"])
def test_a_password_is_not_sent_where_anybody_reads_it(
    registry: Registry, log_in: Callable[..., None], realm: str
) -> None:
    with RegistryServer(auth="bearer", login=ANN) as server:
        server.misbehave(
            "/v2/team/app/blobs/" + WANTED.digest,
            answering(401, www_authenticate=f'Bearer realm="{realm}"'),
        )
        log_in(server)
        with pytest.raises(
            UndecidedError, match=r"over plain HTTP|no valid token server"
        ) as failure:
            read(registry, app_of(server))
        assert failure.value.message.startswith(f"{server.host}/team/app: ")
        assert shown_to(server) == []


# Passwords


def test_a_registry_may_want_the_password_itself(
    registry: Registry, log_in: Callable[..., None]
) -> None:
    with RegistryServer(auth="basic", login=ANN) as server:
        server.put("team/app", BLOB)
        log_in(server)
        assert read(registry, app_of(server)) == BLOB
        requests = len(server.requests)
        assert read(registry, app_of(server)) == BLOB
        assert len(server.requests) == requests + 1, "it is known by now what it wants"


@pytest.mark.parametrize("auth", ["basic", "bearer"])
def test_who_did_not_log_in_is_told_how(registry: Registry, auth: Any) -> None:
    with RegistryServer(auth=auth, login=ANN) as server:
        with pytest.raises(UndecidedError) as failure:
            read(registry, app_of(server))
        assert f"log in with `docker login {server.host}`" in failure.value.message
        assert "(401)" in failure.value.message


def test_a_wrong_password_is_named_by_its_place(
    registry: Registry, log_in: Callable[..., None], home: Path
) -> None:
    with RegistryServer(auth="basic", login=ANN) as server:
        log_in(server, "ann", "wrong")
        with pytest.raises(UndecidedError) as failure:
            read(registry, app_of(server))
        assert f"does not take the credentials from {home}/.docker/config.json (401)" in (
            failure.value.message
        )


def test_who_may_not_write_is_told_so(registry: Registry, log_in: Callable[..., None]) -> None:
    with RegistryServer(auth="basic", login=ANN) as server:
        log_in(server)
        server.misbehave("POST /v2/team/app/blobs/uploads/", answering(403))
        with pytest.raises(UndecidedError, match=r"does not let the credentials from .* write"):
            registry.push_blob(app_of(server), WANTED, lambda: io.BytesIO(BLOB))


def test_a_way_in_that_is_not_known_is_said(
    registry: Registry, log_in: Callable[..., None]
) -> None:
    with RegistryServer() as server:
        log_in(server)
        server.misbehave(
            server.path_of("team/app", WANTED.digest), answering(401, www_authenticate="Negotiate")
        )
        with pytest.raises(UndecidedError, match=r"wants credentials \(401\)"):
            read(registry, app_of(server))
        assert shown_to(server) == []


@pytest.mark.parametrize("auth", ["basic", "bearer"])
def test_credentials_stay_where_they_belong(
    registry: Registry, log_in: Callable[..., None], auth: Any
) -> None:
    """Neither where a blob is, nor where an upload goes, nor another registry."""
    with RegistryServer(auth=auth, login=ANN) as server, RegistryServer() as storage:
        server.put("team/app", BLOB)
        storage.put("bucket", BLOB)
        log_in(server)
        path = server.path_of("team/app", WANTED.digest)

        def redirect(request: Request, serve: Any) -> Response:
            response = serve(request)
            if response.status != 200:
                return response
            target = storage.origin + storage.path_of("bucket", WANTED.digest)
            return redirecting(target)(request, serve)

        server.misbehave(f"GET {path}", redirect)
        # Whoever a registry sends to may ask for its password.
        for challenge in ('Basic realm="x"', f'Bearer realm="{storage.origin}/token"'):
            storage.misbehave(
                f"GET {storage.path_of('bucket', WANTED.digest)}",
                answering(401, www_authenticate=challenge),
                times=1,
            )
            with pytest.raises(UndecidedError, match="wants credentials"):
                read(registry, app_of(server))
        assert read(registry, app_of(server)) == BLOB
        server.repositories["team/app"].blobs.clear()

        def elsewhere(request: Request, serve: Any) -> Response:
            response = serve(request)
            if response.status != 202:
                return response
            storage.repositories["bucket"].uploads["9"] = bytearray()
            return response.having(location=f"{storage.origin}/v2/bucket/blobs/uploads/9")

        storage.repositories["bucket"].blobs.clear()
        server.misbehave("POST /v2/team/app/blobs/uploads/", elsewhere)
        registry.push_blob(app_of(server), WANTED, lambda: io.BytesIO(BLOB))
        assert storage.repositories["bucket"].blobs == {WANTED.digest: BLOB}
        assert read(registry, app_of(storage, "bucket")) == BLOB
        assert shown_to(storage) == []
        assert shown_to(server) != []


# Connections


def test_a_certificate_of_an_own_authority(
    new_registry: Callable[..., Registry], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    certificate = make_certificate(tmp_path)
    with RegistryServer(certificate=certificate) as server:
        server.put("team/app", BLOB)
        with pytest.raises(UndecidedError, match=r"is not trusted.*set SSL_CERT_FILE"):
            read(new_registry(), app_of(server))
        # Which servers pip trusts without a certificate is nothing about images.
        monkeypatch.setenv("UV_INSECURE_HOST", "127.0.0.1")
        with pytest.raises(UndecidedError, match="is not trusted"):
            read(new_registry(), app_of(server))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        assert read(new_registry(), app_of(server)) == BLOB


@pytest.mark.parametrize("where", [".docker/certs.d", ".config/containers/certs.d"])
def test_a_certificate_for_one_registry_alone(
    new_registry: Callable[..., Registry], home: Path, tmp_path: Path, where: str
) -> None:
    certificate = make_certificate(tmp_path)
    with RegistryServer(certificate=certificate) as server:
        server.put("team/app", BLOB)
        folder = home / where / server.host
        folder.mkdir(parents=True)
        (folder / "ca.crt").write_bytes(certificate[0].read_bytes())
        assert read(new_registry(), app_of(server)) == BLOB
        with (
            RegistryServer(certificate=certificate) as other,
            pytest.raises(UndecidedError, match="is not trusted"),
        ):
            read(new_registry(), app_of(other))
        (folder / "ca.crt").write_text("no certificate")
        with pytest.raises(UndecidedError, match="not a readable certificate file"):
            read(new_registry(), app_of(server))
        (folder / "ca.crt").unlink()
        (folder / "client.cert").write_text("no certificate")
        with pytest.raises(UndecidedError, match=r"client\.cert and its \.key"):
            read(new_registry(), app_of(server))


def test_a_registry_on_this_machine_that_wants_tls_gets_it(
    registry: Registry, server: RegistryServer
) -> None:
    """Servers written in Go answer a plain request so."""
    server.put("team/app", BLOB)
    server.misbehave("GET /v2/", answering(400))
    with pytest.raises(UndecidedError, match="TLS"):
        read(registry, app_of(server))


class Proxy(LoopbackServer):
    """Answers whatever it is asked for, as the registry would."""

    def __init__(self, registry: RegistryServer) -> None:
        super().__init__()
        self.registry = registry

    def _serve(self, request: Request) -> Response:
        assert request.path.startswith("http://registry.example/")
        path = request.path.removeprefix("http://registry.example")
        return self.registry.answer(Request(request.method, path, request.headers, request.read))


def test_plain_http_is_for_whom_the_user_names(
    new_registry: Callable[..., Registry], monkeypatch: pytest.MonkeyPatch, server: RegistryServer
) -> None:
    server.put("team/app", BLOB)
    elsewhere = Reference.parse("registry.example/team/app")
    with Proxy(server) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.origin)
        monkeypatch.setenv("HTTPS_PROXY", proxy.origin)
        with pytest.raises(UndecidedError, match=r"no connection to registry\.example"):
            read(new_registry(), elsewhere)
        assert not any(seen.path.startswith("http://") for seen in proxy.requests)
        assert read(new_registry(plain_http=["registry.example"]), elsewhere) == BLOB
        page = (Path(__file__).parents[3] / "docs/registries.md").read_text()
        (hosts,) = re.findall(r'^\$ export BUILDMATRIX_PLAIN_HTTP="(.*)"$', page, re.MULTILINE)
        hosts = hosts.replace("other.lan", "registry.example")
        monkeypatch.setenv("BUILDMATRIX_PLAIN_HTTP", hosts)
        assert read(new_registry(), elsewhere) == BLOB
        # A registry on this machine is not behind a proxy.
        count = len(proxy.requests)
        assert read(new_registry(), app_of(server)) == BLOB
        assert len(proxy.requests) == count


@pytest.mark.parametrize("times", [1, 2])
def test_a_registry_that_hangs_up_at_first_is_not_taken_for_one_with_tls(
    registry: Registry, server: RegistryServer, times: int
) -> None:
    server.put("team/app", BLOB)
    server.misbehave(
        "/v2/", lambda request, serve: Response(0, dropped=True, reset=True), times=times
    )
    assert read(registry, app_of(server)) == BLOB
