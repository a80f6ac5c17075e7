"""What a registry gives is taken only when it is what its digest says."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable

import pytest
from hasty import HASTY, end_silence
from loopback import Misdeed, Response, answering, cut_after, filled, redirecting, with_headers
from registry import INDEX, MANIFEST, RegistryServer, digest_of

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.images import documents
from buildmatrix.images.documents import Descriptor
from buildmatrix.net import registry_blobs, registry_manifests
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Reference

BLOB = random.Random(1).randbytes(300_000)
CONFIG = {"mediaType": documents.CONFIGURATION, "digest": digest_of(b"{}"), "size": 2}
IMAGE = json.dumps(
    {"schemaVersion": 2, "mediaType": MANIFEST, "config": CONFIG, "layers": []}
).encode()
OTHER = IMAGE + b"\n"


def descriptor_of(data: bytes) -> Descriptor:
    return Descriptor(media_type=documents.LAYER, digest=digest_of(data), size=len(data))


@pytest.fixture
def blob(server: RegistryServer) -> Descriptor:
    server.put("team/app", BLOB)
    return descriptor_of(BLOB)


@pytest.fixture
def path(server: RegistryServer, blob: Descriptor) -> str:
    return f"GET {server.path_of('team/app', blob.digest)}"


def read(registry: Registry, reference: Reference, blob: Descriptor) -> bytes:
    with registry.blob(reference, blob) as chunks:
        return b"".join(chunks)


def refused(registry: Registry, reference: Reference, blob: Descriptor, data: bytes = BLOB) -> str:
    """Why a blob is not had; whatever came before is the beginning of it."""
    got = bytearray()
    with pytest.raises(UndecidedError) as error, registry.blob(reference, blob) as chunks:
        for chunk in chunks:
            got += chunk
    assert data.startswith(got)
    assert "\n" not in error.value.message
    assert error.value.message.startswith(f"{reference.name}: ")
    return error.value.message


# Blobs


def test_a_blob_is_read(registry: Registry, app: Reference, blob: Descriptor) -> None:
    assert read(registry, app, blob) == BLOB
    assert registry.bytes_read >= len(BLOB)


def test_an_empty_blob_is_read(registry: Registry, server: RegistryServer, app: Reference) -> None:
    server.put("team/app", b"")
    assert read(registry, app, descriptor_of(b"")) == b""


def test_a_blob_may_have_another_algorithm(
    registry: Registry, server: RegistryServer, app: Reference
) -> None:
    digest = f"sha512:{hashlib.sha512(BLOB).hexdigest()}"
    path = f"GET {server.path_of('team/app', digest)}"
    server.misbehave(path, answering(200, BLOB), times=1)
    server.misbehave(path, answering(200, BLOB[::-1]))
    blob = Descriptor(media_type=documents.LAYER, digest=digest, size=len(BLOB))
    assert read(registry, app, blob) == BLOB
    with pytest.raises(UndecidedError, match="is not what its digest says"):
        read(registry, app, blob)


def test_a_cut_is_resumed_where_it_was(
    registry: Registry,
    server: RegistryServer,
    app: Reference,
    blob: Descriptor,
    path: str,
) -> None:
    server.misbehave(path, cut_after(100_000), times=2)
    assert read(registry, app, blob) == BLOB
    ranges = [seen.headers.get("range") for seen in server.requests if "/blobs/" in seen.path]
    assert ranges == [None, "bytes=100000-", "bytes=200000-"]
    assert server.sent(path[4:]) == len(BLOB)


def test_a_registry_without_ranges_is_read_from_its_start_again(
    registry: Registry, server: RegistryServer, app: Reference, blob: Descriptor, path: str
) -> None:
    server.misbehave(path, cut_after(100_000), times=1)
    server.misbehave(path, answering(200, BLOB))
    assert read(registry, app, blob) == BLOB


def test_cuts_without_end_are_given_up(
    registry: Registry, server: RegistryServer, app: Reference, blob: Descriptor, path: str
) -> None:
    server.misbehave(path, cut_after(10))
    assert blob.digest in refused(registry, app, blob)
    assert server.asked(*path.split()) == HASTY.tries


def test_what_goes_on_does_not_count_as_failing(
    monkeypatch: pytest.MonkeyPatch,
    registry: Registry,
    server: RegistryServer,
    app: Reference,
    blob: Descriptor,
    path: str,
) -> None:
    monkeypatch.setattr(registry_blobs, "MIN_PROGRESS", 50_000)
    server.misbehave(path, cut_after(60_000))
    assert read(registry, app, blob) == BLOB
    assert server.asked(*path.split()) == 5


def test_a_stalled_blob_is_resumed(
    registry: Registry,
    server: RegistryServer,
    app: Reference,
    blob: Descriptor,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = end_silence(monkeypatch, server)
    server.misbehave(path, server.stalling_after(100_000), times=1)
    assert read(registry, app, blob) == BLOB
    assert len(ended) == 1 and ended[0] <= HASTY.silence


def test_a_registry_that_hangs_is_given_up(
    new_registry: Callable[..., Registry],
    server: RegistryServer,
    app: Reference,
    blob: Descriptor,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = new_registry(patience=replace(HASTY, tries=2, silence=200.0))
    ended = end_silence(monkeypatch, server)
    server.misbehave(path, server.hanging())
    assert "does not answer in time" in refused(registry, app, blob)
    assert server.asked(*path.split()) == len(ended) == 2
    assert 100 < max(ended) <= 200


LIES: list[tuple[Misdeed, str]] = [
    (answering(200, BLOB[:-1] + b"?"), "is not what its digest says"),
    (answering(200, BLOB + b"?"), "has 300001 bytes, and its descriptor states 300000"),
    (answering(200, BLOB[:-1]), "has 299999 bytes, and its descriptor states 300000"),
    (lambda request, serve: Response(200, iter([BLOB, b"?"])), "has more than the 300000 bytes"),
    (answering(200, b""), "has 0 bytes"),
    (answering(206, BLOB), "answers 206"),
    (answering(204), "answers 204"),
]


@pytest.mark.parametrize(("lie", "why"), LIES)
def test_a_lie_is_no_blob(
    registry: Registry,
    server: RegistryServer,
    app: Reference,
    blob: Descriptor,
    path: str,
    lie: Misdeed,
    why: str,
) -> None:
    server.misbehave(path, lie)
    got = bytearray()
    with pytest.raises(UndecidedError) as error, registry.blob(app, blob) as chunks:
        for chunk in chunks:
            got += chunk
    assert why in error.value.message
    assert app.name in error.value.message and blob.digest in error.value.message
    assert len(got) <= len(BLOB)


def test_a_short_body_of_unknown_length_is_a_cut(
    registry: Registry, server: RegistryServer, app: Reference, blob: Descriptor, path: str
) -> None:
    server.misbehave(path, lambda request, serve: Response(200, iter([BLOB[:1000]])))
    assert "was cut after 1000 of 300000 bytes" in refused(registry, app, blob)


@pytest.mark.parametrize(
    "said",
    [
        "bytes 0-299999/300000",
        "bytes 100001-299999/300000",
        "bytes 100000-299998/300000",
        "bytes 100000-299999/300001",
        "bytes 100000-299999",
        "",
    ],
)
def test_a_range_that_was_not_asked_for_is_refused(
    registry: Registry,
    server: RegistryServer,
    app: Reference,
    blob: Descriptor,
    path: str,
    said: str,
) -> None:
    server.misbehave(path, cut_after(100_000), times=1)
    server.misbehave(path, with_headers(content_range=said))
    assert "returned others" in refused(registry, app, blob)


def test_a_blob_that_became_shorter_is_refused(
    registry: Registry, server: RegistryServer, app: Reference, blob: Descriptor, path: str
) -> None:
    server.misbehave(path, cut_after(100_000), times=1)
    server.misbehave(path, answering(416))
    assert "does not have these bytes of the blob" in refused(registry, app, blob)


def test_who_leaves_early_frees_the_connection(
    registry: Registry, server: RegistryServer, app: Reference, blob: Descriptor
) -> None:
    with registry.blob(app, blob) as chunks:
        next(chunks)
    assert read(registry, app, blob) == BLOB


def test_whether_a_blob_is_there(registry: Registry, app: Reference, blob: Descriptor) -> None:
    assert registry.has_blob(app, blob.digest)
    assert not registry.has_blob(app, digest_of(b"nothing"))


# Statuses


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (401, "the registry wants credentials (401); log in with `docker login {host}`"),
        (403, "the registry wants credentials (403); log in with `docker login {host}`"),
        (404, "the registry does not have the blob {digest} (404)"),
        (418, "the registry answers 418 to the blob {digest}"),
        (429, "the registry answers 429 (too many requests) to the blob {digest}; try again later"),
        (500, "the registry answers 500 to the blob {digest}; try again later"),
        (503, "the registry answers 503 to the blob {digest}; try again later"),
    ],
)
def test_each_refusal_has_its_sentence(
    registry: Registry,
    server: RegistryServer,
    app: Reference,
    blob: Descriptor,
    path: str,
    status: int,
    why: str,
) -> None:
    body = json.dumps({"errors": [{"code": "CODE", "message": "because\n\x1b[1m."}]}).encode()
    server.misbehave(path, answering(status, body))
    why = why.format(host=server.host, digest=blob.digest)
    message = refused(registry, app, blob)
    assert message == f'{app.name}: {why}: it says "CODE: because\\n\\x1b[1m"'
    assert server.asked(*path.split()) == (HASTY.tries if status in (429, 500, 503) else 1)


@pytest.mark.parametrize(
    "body", [b"", b"[", b"[]", b"<html>", b'{"errors": [[]]}', b'{"errors": {}}', b"\xff", b"{}"]
)
def test_a_refusal_may_say_anything(
    registry: Registry,
    server: RegistryServer,
    app: Reference,
    blob: Descriptor,
    path: str,
    body: bytes,
) -> None:
    server.misbehave(path, answering(404, body))
    assert refused(registry, app, blob).endswith("(404)")


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(
    registry: Registry,
    server: RegistryServer,
    app: Reference,
    blob: Descriptor,
    path: str,
    status: int,
) -> None:
    server.misbehave(path, answering(status, retry_after="0"), times=2)
    assert read(registry, app, blob) == BLOB


def test_a_registry_is_left_alone_for_as_long_as_it_asks(
    registry: Registry, server: RegistryServer, app: Reference, blob: Descriptor, path: str
) -> None:
    server.misbehave(path, answering(429, retry_after="3600"))
    message = refused(registry, app, blob)
    assert "retry after 3600 s" in message
    assert server.asked(*path.split()) == 1


def test_nobody_is_there(registry: Registry, app: Reference, blob: Descriptor) -> None:
    nobody = replace(app, host="127.0.0.1:1")
    message = refused(registry, nobody, blob)
    assert message == "127.0.0.1:1/team/app: 127.0.0.1:1 refuses connections"


def test_nothing_is_asked_for_offline(
    new_registry: Callable[..., Registry], server: RegistryServer, app: Reference, blob: Descriptor
) -> None:
    assert "--offline" in refused(new_registry(offline=True), app, blob)
    assert server.connections == 0


# Redirects


def test_a_blob_may_be_elsewhere(
    registry: Registry, server: RegistryServer, app: Reference, blob: Descriptor, path: str
) -> None:
    with RegistryServer() as storage:
        storage.put("bucket", BLOB)
        target = storage.origin + storage.path_of("bucket", blob.digest) + "?Signature=s3cret"
        server.misbehave(path, redirecting(target, 307))
        storage.misbehave(target[len(storage.origin) :], cut_after(100), times=1)
        assert read(registry, app, blob) == BLOB
        storage.misbehave(
            storage.path_of("bucket", blob.digest), answering(403, b"<Error>expired</Error>")
        )
        message = refused(registry, app, blob)
        assert message == (
            f"{app.name}: {storage.host} wants credentials (403); log in with "
            f"`docker login {server.host}`"
        )
        assert "s3cret" not in message


def test_redirects_without_end_are_given_up(
    registry: Registry, server: RegistryServer, app: Reference, blob: Descriptor, path: str
) -> None:
    server.misbehave(path, redirecting(path[4:]))
    assert "redirects more than" in refused(registry, app, blob)


# Manifests


def test_a_tag_is_resolved_and_read(
    registry: Registry, server: RegistryServer, app: Reference
) -> None:
    digest = server.tag("team/app", "1.0", IMAGE)
    tagged = app.with_tag("1.0")
    resolved = registry.resolve(tagged)
    assert resolved == Descriptor(media_type=MANIFEST, digest=digest, size=len(IMAGE))
    assert registry.manifest(tagged.at(digest)).data == IMAGE
    assert registry.manifest(tagged.at(digest)).descriptor == resolved
    # The document of the digest is held; a tag is asked for each time.
    assert server.asked("GET", server.path_of("team/app", digest, "manifests")) == 0
    registry.resolve(tagged)
    assert server.asked("GET", server.path_of("team/app", "1.0", "manifests")) == 2


def test_asking_for_digests_takes_one_connection(
    registry: Registry, server: RegistryServer, app: Reference
) -> None:
    digests = [server.tag("team/app", tag, IMAGE) for tag in ("1.0", "1.1", "1.2")]
    assert [registry.digest(app.with_tag(tag)) for tag in ("1.0", "1.1", "1.2")] == digests
    assert server.connections == 1


def test_a_digest_that_is_known_is_asked_for_by_it(
    registry: Registry, server: RegistryServer, app: Reference
) -> None:
    old, tagged = server.tag("team/app", "1.0", IMAGE), app.with_tag("1.0")
    assert registry.digest(tagged, old) == old
    assert server.requests[-1].headers["if-none-match"] == f'"{old}"'
    new = server.tag("team/app", "1.0", OTHER)
    assert registry.digest(tagged, old) == new
    assert server.connections == 1


@pytest.mark.parametrize(
    ("misdeed", "known"),
    [
        # It says that it is unchanged, and that it is something else.
        (answering(304, docker_content_digest=digest_of(OTHER)), digest_of(IMAGE)),
        (answering(304), digest_of(OTHER)),
        (answering(304), ""),
    ],
)
def test_what_is_unchanged_is_what_was_known(
    registry: Registry, server: RegistryServer, app: Reference, misdeed: Misdeed, known: str
) -> None:
    digest = server.tag("team/app", "1.0", IMAGE)
    server.misbehave(f"HEAD {server.path_of('team/app', '1.0', 'manifests')}", misdeed)
    if known == digest_of(OTHER):
        assert registry.digest(app.with_tag("1.0"), known) == known
    elif known:
        assert registry.digest(app.with_tag("1.0"), known) == digest
        assert server.asked("GET", server.path_of("team/app", "1.0", "manifests")) == 1
    else:
        with pytest.raises(UndecidedError, match="304"):
            registry.digest(app.with_tag("1.0"))


def test_no_tag_is_latest(registry: Registry, server: RegistryServer, app: Reference) -> None:
    digest = server.tag("team/app", "latest", IMAGE)
    assert registry.resolve(app).digest == digest


def test_a_tag_that_changes_stays_what_it_was_resolved_to(
    registry: Registry, server: RegistryServer, app: Reference
) -> None:
    old = server.tag("team/app", "1.0", IMAGE)
    resolved = registry.resolve(app.with_tag("1.0"))
    new = server.tag("team/app", "1.0", OTHER)
    assert registry.manifest(app.with_tag("1.0").at(resolved.digest)).data == IMAGE
    assert resolved.digest == old
    assert registry.resolve(app.with_tag("1.0")).digest == new


def test_held_manifests_are_bounded(
    monkeypatch: pytest.MonkeyPatch, registry: Registry, server: RegistryServer, app: Reference
) -> None:
    monkeypatch.setattr(registry_manifests, "MAX_CACHED_BYTES", len(IMAGE) + len(OTHER) - 1)
    first, second = server.tag("team/app", "", IMAGE), server.tag("team/app", "", OTHER)
    for digest in (first, second, first, first):
        registry.manifest(app.at(digest))
    assert server.asked("GET", server.path_of("team/app", first, "manifests")) == 2


@pytest.mark.parametrize(
    ("misdeed", "why"),
    [
        (answering(200, OTHER, content_type=MANIFEST), "is not what its digest says"),
        (with_headers(docker_content_digest=digest_of(OTHER)), "is damaged: the registry says"),
        (with_headers(content_type=INDEX), "calls itself"),
        (filled(documents.MAX_DOCUMENT + 1), "exceeds the limit of 8 MiB"),
        (cut_after(10), "breaks off"),
        (answering(404), "does not have the manifest"),
    ],
)
def test_a_wrong_manifest_is_refused(
    registry: Registry, server: RegistryServer, app: Reference, misdeed: Misdeed, why: str
) -> None:
    digest = server.tag("team/app", "1.0", IMAGE)
    server.misbehave(f"GET {server.path_of('team/app', digest, 'manifests')}", misdeed)
    with pytest.raises(UndecidedError) as error:
        registry.manifest(app.at(digest))
    assert why in error.value.message and error.value.message.startswith(f"{app.name}: ")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{}", "is not a known kind of image manifest"),
        (b'{"mediaType": "application/vnd.oci.artifact.manifest.v1+json"}', "artifact.manifest"),
        (b"[]", "is not a known kind of image manifest"),
        (b"<html>", "is not a JSON document"),
        (b"\xff\xfe", "is not a JSON document"),
        (b'{"schemaVersion": 1, "fsLayers": []}', "is not a known kind of image manifest"),
    ],
)
def test_what_is_no_manifest_is_refused(
    registry: Registry, server: RegistryServer, app: Reference, data: bytes, why: str
) -> None:
    server.tag("team/app", "1.0", data, "application/json")
    with pytest.raises(UndecidedError) as error:
        registry.resolve(app.with_tag("1.0"))
    assert why in error.value.message and error.value.message.startswith(app.name)


def test_a_manifest_without_a_type_is_known_by_its_fields(
    registry: Registry, server: RegistryServer, app: Reference
) -> None:
    server.tag("team/app", "1.0", b'{"manifests": []}', "text/plain; charset=utf-8")
    assert registry.resolve(app.with_tag("1.0")).media_type == INDEX
