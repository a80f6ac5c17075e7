"""What is written is whole, and is what it is said to be; what broke goes on where it was."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
from hasty import HASTY, end_silence
from loopback import Misdeed, Request, Response, Serve, answering, with_headers
from registry import (
    MANIFEST,
    RegistryServer,
    breaking_after,
    digest_of,
    error,
    losing_the_answer,
)

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.images import documents
from buildmatrix.images.documents import Descriptor
from buildmatrix.net import registry_blobs
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Reference

BLOB = random.Random(2).randbytes(300_000)
UPLOADS = "/v2/team/app/blobs/uploads/"
FIRST = f"{UPLOADS}1"


def descriptor_of(data: bytes) -> Descriptor:
    return Descriptor(media_type=documents.LAYER, digest=digest_of(data), size=len(data))


WANTED = descriptor_of(BLOB)


def opened(data: bytes = BLOB) -> Callable[[], BinaryIO]:
    return lambda: io.BytesIO(data)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 bytes each."""
    monkeypatch.setattr(registry_blobs, "CHUNK", 100_000)
    monkeypatch.setattr(registry_blobs, "_READ", 30_000)


def pushed(registry: Registry, server: RegistryServer, app: Reference) -> None:
    assert registry.push_blob(app, WANTED, opened())
    assert server.repositories["team/app"].blobs == {WANTED.digest: BLOB}


def refused(registry: Registry, server: RegistryServer, app: Reference) -> str:
    with pytest.raises(UndecidedError) as failure:
        registry.push_blob(app, WANTED, opened())
    assert server.repositories["team/app"].blobs == {}
    assert failure.value.message.startswith(f"{app.name}: ")
    return failure.value.message


# Blobs


def test_a_small_blob_goes_in_one_piece(
    registry: Registry, server: RegistryServer, app: Reference
) -> None:
    pushed(registry, server, app)
    assert [seen.method for seen in server.requests[-3:]] == ["HEAD", "POST", "PUT"]
    assert registry.bytes_sent == len(BLOB)


def test_an_empty_blob_goes_as_well(
    registry: Registry, server: RegistryServer, app: Reference
) -> None:
    assert registry.push_blob(app, descriptor_of(b""), opened(b""))
    assert server.repositories["team/app"].blobs == {digest_of(b""): b""}


def test_a_blob_that_is_there_is_not_sent(
    registry: Registry, server: RegistryServer, app: Reference
) -> None:
    server.put("team/app", BLOB)
    assert not registry.push_blob(app, WANTED, opened())
    assert registry.bytes_sent == 0


@pytest.mark.usefixtures("pieces")
def test_a_large_blob_goes_in_pieces(
    registry: Registry, server: RegistryServer, app: Reference
) -> None:
    pushed(registry, server, app)
    sent = [
        (seen.method, seen.headers.get("content-range"), seen.headers["content-length"])
        for seen in server.requests
        if seen.path.startswith(FIRST)
    ]
    assert sent == [
        ("PATCH", "0-99999", "100000"),
        ("PATCH", "100000-199999", "100000"),
        ("PATCH", "200000-299999", "100000"),
        ("PUT", None, "0"),
    ]


@pytest.mark.usefixtures("pieces")
def test_a_registry_may_want_larger_pieces(
    registry: Registry, server: RegistryServer, app: Reference
) -> None:
    server.misbehave(f"POST {UPLOADS}", with_headers(oci_chunk_min_length="200000"))
    pushed(registry, server, app)
    assert server.asked("PATCH", FIRST) == 2


@pytest.mark.usefixtures("pieces")
def test_a_registry_without_pieces_gets_the_whole(server: RegistryServer) -> None:
    with RegistryServer(pieces=False) as server, Registry(patience=HASTY) as registry:
        app = Reference.parse(f"{server.host}/team/app")
        pushed(registry, server, app)
        assert server.requests[-1].headers["content-length"] == "300000"


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("count", [0, 1, 40_000, 99_999])
def test_a_piece_that_broke_goes_on_where_it_was(
    registry: Registry, server: RegistryServer, app: Reference, count: int
) -> None:
    server.misbehave(f"PATCH {FIRST}", breaking_after(count), after=1, times=1)
    pushed(registry, server, app)
    starts = [
        seen.headers["content-range"].partition("-")[0]
        for seen in server.requests
        if seen.method == "PATCH"
    ]
    assert starts[:3] == ["0", "100000", str(100_000 + count)]


@pytest.mark.parametrize("count", [0, 40_000, 299_999, 300_000])
def test_a_single_piece_that_broke_goes_on_as_well(
    registry: Registry, server: RegistryServer, app: Reference, count: int
) -> None:
    server.misbehave(f"PUT {FIRST}", breaking_after(count), times=1)
    pushed(registry, server, app)
    assert server.asked("POST", UPLOADS) == 1


@pytest.mark.parametrize(
    ("method", "path"), [("POST", UPLOADS), ("PATCH", FIRST), ("PUT", FIRST), ("HEAD", None)]
)
@pytest.mark.usefixtures("pieces")
def test_an_answer_that_is_lost_costs_nothing(
    registry: Registry, server: RegistryServer, app: Reference, method: str, path: str | None
) -> None:
    path = path or server.path_of("team/app", WANTED.digest)
    server.misbehave(f"{method} {path}", losing_the_answer(), times=1)
    pushed(registry, server, app)
    assert registry.bytes_sent == len(BLOB)


def test_a_reader_that_cannot_seek_is_read_again(
    registry: Registry, server: RegistryServer, app: Reference
) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: object) -> int:
            raise io.UnsupportedOperation

    server.misbehave(f"PUT {FIRST}", breaking_after(40_000), times=1)
    assert registry.push_blob(app, WANTED, lambda: Pipe(BLOB))
    assert server.repositories["team/app"].blobs == {WANTED.digest: BLOB}


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("status", [429, 500, 503, 404, 416])
def test_what_may_pass_is_tried_again(
    registry: Registry, server: RegistryServer, app: Reference, status: int
) -> None:
    server.misbehave(f"PATCH {FIRST}", answering(status, retry_after="0"), after=1, times=1)
    pushed(registry, server, app)


@pytest.mark.usefixtures("pieces")
def test_an_upload_that_is_forgotten_begins_again(
    registry: Registry, server: RegistryServer, app: Reference
) -> None:
    def forgetting(request: Request, serve: Serve) -> Response:
        server.repositories["team/app"].uploads.clear()
        return serve(request)

    server.misbehave(f"PATCH {FIRST}", forgetting, after=1, times=1)
    pushed(registry, server, app)
    assert server.asked("POST", UPLOADS) == 2


@pytest.mark.usefixtures("pieces")
def test_an_upload_that_is_always_forgotten_is_given_up(
    monkeypatch: pytest.MonkeyPatch, registry: Registry, server: RegistryServer, app: Reference
) -> None:
    """Coming as far as before is no progress."""
    monkeypatch.setattr(registry_blobs, "MIN_PROGRESS", 50_000)

    def forgetting(request: Request, serve: Serve) -> Response:
        server.repositories["team/app"].uploads.clear()
        return Response(416)

    for number in range(1, 20):
        server.misbehave(f"PATCH {UPLOADS}{number}", forgetting, after=1)
    assert "(416)" in refused(registry, server, app)
    assert server.asked("POST", UPLOADS) == HASTY.tries


@pytest.mark.parametrize(
    ("method", "misdeed", "why"),
    [
        ("POST", answering(401), "the registry wants credentials (401)"),
        ("POST", answering(403), "the registry wants credentials (403)"),
        ("POST", answering(404), "does not have the blob"),
        ("POST", answering(500), "answers 500 to the blob"),
        ("POST", answering(202), "no upload location"),
        ("POST", answering(202, location="ftp://x/"), "an invalid upload location"),
        ("POST", answering(202, location="http://[::1/"), "an invalid upload location"),
        ("POST", answering(302, location="/elsewhere"), "answers 302"),
        ("PUT", answering(413), "does not take so large a body (413)"),
        ("PUT", answering(429, retry_after="99"), "retry after 99 s"),
        ("PUT", answering(500), "answers 500 to the blob"),
        ("PUT", lambda r, s: error(400, "DIGEST_INVALID", "no"), 'it says "DIGEST_INVALID: no"'),
        ("PUT", answering(201, docker_content_digest=f"sha256:{'0' * 64}"), "another digest"),
    ],
)
def test_each_failure_has_its_sentence(
    registry: Registry,
    server: RegistryServer,
    app: Reference,
    method: str,
    misdeed: Misdeed,
    why: str,
) -> None:
    for path in [UPLOADS] if method == "POST" else [f"{UPLOADS}{n}" for n in range(1, 9)]:
        server.misbehave(f"{method} {path}", misdeed)
    server.repositories.clear()
    with pytest.raises(UndecidedError) as failure:
        registry.push_blob(app, WANTED, opened())
    assert why in failure.value.message and failure.value.message.startswith(f"{app.name}: ")
    assert not any(repository.blobs for repository in server.repositories.values())


def test_a_connection_that_always_breaks_is_given_up(
    registry: Registry, server: RegistryServer, app: Reference
) -> None:
    server.misbehave(f"PUT {FIRST}", breaking_after(0))
    # Of its end a client sees one thing or another.
    with pytest.raises(UndecidedError, match=r"(breaks off|broke)"):
        registry.push_blob(app, WANTED, opened())
    assert server.asked("PUT", FIRST) + server.asked("PATCH", FIRST) == HASTY.tries


def test_a_registry_that_hangs_is_given_up(
    new_registry: Callable[..., Registry],
    server: RegistryServer,
    app: Reference,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = new_registry(patience=replace(HASTY, tries=2, storing=200.0))
    ended = end_silence(monkeypatch, server)
    server.misbehave(f"POST {UPLOADS}", server.hanging())
    with pytest.raises(UndecidedError, match="does not answer in time"):
        registry.push_blob(app, WANTED, opened())
    assert ended and 100 < max(ended) <= 200


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("said", ["0-300000", "0-99", "0-999999999999"])
def test_a_registry_that_has_more_or_less_than_it_got_is_refused(
    registry: Registry, server: RegistryServer, app: Reference, said: str
) -> None:
    server.misbehave(f"PATCH {FIRST}", with_headers(range=said), after=1, times=1)
    assert "bytes of it, and was sent 200000" in refused(registry, server, app)


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (BLOB[:-1] + b"?", "is not what its digest says"),
        (BLOB[:-1], "has 299999 bytes, and its descriptor states 300000"),
        (BLOB + b"?", "has more than the 300000 bytes"),
        (b"", "has 0 bytes"),
    ],
)
def test_other_bytes_are_never_completed(
    registry: Registry, server: RegistryServer, app: Reference, data: bytes, why: str
) -> None:
    with pytest.raises(UndecidedError) as failure:
        registry.push_blob(app, WANTED, opened(data))
    assert why in failure.value.message and app.name in failure.value.message
    assert server.repositories["team/app"].blobs == {}
    assert server.asked("PUT", FIRST) == 0


def test_a_file_that_cannot_be_read_is_said(
    registry: Registry, server: RegistryServer, app: Reference, tmp_path: Path
) -> None:
    with pytest.raises(UndecidedError, match=r"reading it failed.*no such file"):
        registry.push_blob(app, WANTED, (tmp_path / "nothing").open)


def test_a_registry_behind_a_proxy_with_tls_is_asked_over_tls(tmp_path: Path) -> None:
    from certificates import make_certificate

    certificate = make_certificate(tmp_path)
    with pytest.MonkeyPatch.context() as patch, RegistryServer(certificate=certificate) as server:
        patch.setenv("SSL_CERT_FILE", str(certificate[0]))
        plain = f"http://{server.host}{UPLOADS}"

        def unaware(request: Request, serve: Serve) -> Response:
            response = serve(request)
            return response.having(
                location=f"{plain}{response.headers['location'][len(UPLOADS) :]}"
            )

        server.misbehave(f"POST {UPLOADS}", unaware)
        with Registry(patience=HASTY) as registry:
            pushed(registry, server, Reference.parse(f"{server.host}/team/app"))
            server.misbehave(f"POST {UPLOADS}", answering(202, location="http://example.org/"))
        server.misbehave(f"POST {'/v2/x/blobs/uploads/'}", answering(202, location="http://a.b/"))
        with (
            Registry(patience=HASTY) as registry,
            pytest.raises(UndecidedError, match="plain HTTP, which is not allowed"),
        ):
            registry.push_blob(Reference.parse(f"{server.host}/x"), WANTED, opened())


# Mounts


def test_a_blob_is_taken_over_from_another_repository(
    registry: Registry, server: RegistryServer, app: Reference
) -> None:
    server.put("team/base", BLOB)
    assert not registry.push_blob(app, WANTED, opened(), ["team/app", "nothing", "team/base"])
    assert server.repositories["team/app"].blobs == {WANTED.digest: BLOB}
    assert registry.bytes_sent == 0


@pytest.mark.parametrize(
    "misdeed",
    [
        None,
        answering(401),
        answering(403),
        answering(404),
        answering(405),
        # It says that it has it.
        answering(201),
    ],
)
def test_what_is_not_taken_over_is_sent(
    registry: Registry, server: RegistryServer, app: Reference, misdeed: Misdeed | None
) -> None:
    if misdeed is not None:
        server.misbehave(f"POST {UPLOADS}", misdeed, times=1)
    assert registry.push_blob(app, WANTED, opened(), ["nothing"])
    assert server.repositories["team/app"].blobs == {WANTED.digest: BLOB}
    # An answer of 202 has begun the upload.
    assert server.asked("POST", UPLOADS) == (1 if misdeed is None else 2)


# Manifests

CONFIG = {"mediaType": documents.CONFIGURATION, "digest": digest_of(b"{}"), "size": 2}
IMAGE = json.dumps(
    {"schemaVersion": 2, "mediaType": MANIFEST, "config": CONFIG, "layers": []}
).encode()


@pytest.fixture
def with_config(server: RegistryServer) -> None:
    server.put("team/app", b"{}")


@pytest.mark.usefixtures("with_config")
def test_a_manifest_is_written_by_tag_or_digest(
    registry: Registry, server: RegistryServer, app: Reference
) -> None:
    written = registry.push_manifest(app, IMAGE, MANIFEST)
    assert written == Descriptor(media_type=MANIFEST, digest=digest_of(IMAGE), size=len(IMAGE))
    manifests = server.repositories["team/app"].manifests
    assert set(manifests) == {written.digest}, "it has no tag"
    registry.push_manifest(app.at(written.digest), IMAGE, MANIFEST)
    registry.push_manifest(app.with_tag("1.0"), IMAGE, MANIFEST)
    assert manifests["1.0"] == (IMAGE, MANIFEST)


def test_a_manifest_of_another_digest_is_not_sent(
    registry: Registry, server: RegistryServer, app: Reference
) -> None:
    with pytest.raises(UndecidedError, match="to write has the digest"):
        registry.push_manifest(app.at(digest_of(b"")), IMAGE, MANIFEST)
    assert server.connections == 0


def test_a_manifest_whose_blobs_are_missing_is_refused(
    registry: Registry, server: RegistryServer, app: Reference
) -> None:
    with pytest.raises(UndecidedError, match="MANIFEST_BLOB_UNKNOWN"):
        registry.push_manifest(app.with_tag("1"), IMAGE, MANIFEST)


@pytest.mark.usefixtures("with_config")
@pytest.mark.parametrize(
    ("misdeed", "why"),
    [
        (answering(201, docker_content_digest=digest_of(b"")), "took the manifest 1 as sha256:e3b"),
        (answering(403), "wants credentials (403)"),
        (answering(500), "answers 500 to the manifest 1"),
        (answering(404), "does not have the manifest 1"),
    ],
)
def test_a_manifest_that_is_not_taken_is_said(
    registry: Registry, server: RegistryServer, app: Reference, misdeed: Misdeed, why: str
) -> None:
    server.misbehave(f"PUT {server.path_of('team/app', '1', 'manifests')}", misdeed)
    with pytest.raises(UndecidedError) as failure:
        registry.push_manifest(app.with_tag("1"), IMAGE, MANIFEST)
    assert why in failure.value.message and failure.value.message.startswith(f"{app.name}: ")


@pytest.mark.usefixtures("with_config")
def test_a_lost_answer_to_a_manifest_is_asked_for_again(
    registry: Registry, server: RegistryServer, app: Reference
) -> None:
    path = server.path_of("team/app", "1", "manifests")
    server.misbehave(f"PUT {path}", losing_the_answer(), times=1)
    assert registry.push_manifest(app.with_tag("1"), IMAGE, MANIFEST).digest == digest_of(IMAGE)
