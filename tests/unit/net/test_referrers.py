"""What is attached to an image is found, with the referrers API and without."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hasty import HASTY
from loopback import Misdeed, Request, Response, Serve, answering, filled, with_headers
from registry import INDEX, MANIFEST, RegistryServer, digest_of

from buildmatrix.base.errors import UndecidedError
from buildmatrix.images import documents
from buildmatrix.images.documents import Descriptor, Manifest, encode
from buildmatrix.net import registry_manifests
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Reference

EMPTY = Descriptor(media_type=documents.EMPTY, digest=digest_of(b"{}"), size=2)
SUBJECT = Descriptor(media_type=MANIFEST, digest=digest_of(b"image"), size=5)
TAG = SUBJECT.digest.replace(":", "-")


@pytest.fixture(params=["api", "tag"])
def server(request: pytest.FixtureRequest) -> Iterator[RegistryServer]:
    with RegistryServer(referrers=request.param == "api") as server:
        server.put("team/app", b"{}")
        yield server


@pytest.fixture
def old() -> Iterator[RegistryServer]:
    """Without the API."""
    with RegistryServer(referrers=False) as server:
        server.put("team/app", b"{}")
        yield server


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry(patience=HASTY) as registry:
        yield registry


def app_of(server: RegistryServer) -> Reference:
    return Reference.parse(f"{server.host}/team/app:1.0")


def statement(number: int, artifact_type: str = "application/vnd.test", **more: object) -> bytes:
    return encode(
        Manifest(
            config=EMPTY,
            layers=(EMPTY,),
            media_type=MANIFEST,
            artifact_type=artifact_type,
            annotations={"number": str(number)},
            **{"subject": SUBJECT, **more},
        )
    )


def test_what_is_attached_is_found(registry: Registry, server: RegistryServer) -> None:
    app = app_of(server)
    assert registry.referrers(app, SUBJECT.digest) == []
    entries = [registry.push_referrer(app, statement(number)) for number in range(3)]
    other = registry.push_referrer(app, statement(4, "application/vnd.other"))
    registry.push_referrer(app, statement(0))  # again
    digests = [digest_of(statement(number)) for number in range(3)]
    assert [entry.digest for entry in entries] == digests
    found = registry.referrers(app, SUBJECT.digest, "application/vnd.test")
    assert [entry.digest for entry in found] == digests
    assert {entry.artifact_type for entry in found} == {"application/vnd.test"}
    assert [entry.size for entry in found] == [len(statement(number)) for number in range(3)]
    everything = registry.referrers(app, SUBJECT.digest)
    assert [entry.digest for entry in everything] == [*digests, other.digest]
    assert registry.referrers(app, digest_of(b"other")) == []
    assert registry.manifest(app.at(digests[1])).data == statement(1)


def test_the_tag_is_as_the_specification_has_it(registry: Registry, old: RegistryServer) -> None:
    entry = registry.push_referrer(app_of(old), statement(1, ""))
    data, media_type = old.repositories["team/app"].manifests[TAG]
    assert media_type == INDEX
    assert json.loads(data) == {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [
            {
                "mediaType": MANIFEST,
                "digest": entry.digest,
                "size": entry.size,
                # That of the configuration, where there is no other.
                "artifactType": documents.EMPTY,
                "annotations": {"number": "1"},
            }
        ],
    }


def test_a_registry_with_the_api_has_no_tag(registry: Registry) -> None:
    with RegistryServer() as server:
        server.put("team/app", b"{}")
        registry.push_referrer(app_of(server), statement(1))
        assert TAG not in server.repositories["team/app"].manifests


@pytest.mark.parametrize("status", [400, 404, 405, 501])
def test_a_registry_may_refuse_the_list(
    registry: Registry, old: RegistryServer, status: int
) -> None:
    registry.push_referrer(app_of(old), statement(1))
    old.misbehave(f"/v2/team/app/referrers/{SUBJECT.digest}", answering(status, b"x"))
    assert len(registry.referrers(app_of(old), SUBJECT.digest)) == 1


@pytest.mark.parametrize(
    ("misdeed", "why"),
    [
        (answering(401), "wants credentials (401)"),
        (answering(403), "wants credentials (403)"),
        (answering(500), "answers 500 to the referrers of"),
        (answering(200, b"<html>"), "is not a JSON document"),
        (answering(200, b"{}"), "is not a valid index of an image"),
        (filled(documents.MAX_DOCUMENT + 1), "exceeds the limit of 8 MiB"),
    ],
)
def test_a_list_that_cannot_be_read_is_never_taken_for_empty(
    registry: Registry, server: RegistryServer, misdeed: Misdeed, why: str
) -> None:
    server.misbehave(f"/v2/team/app/referrers/{SUBJECT.digest}", misdeed)
    with pytest.raises(UndecidedError) as failure:
        registry.referrers(app_of(server), SUBJECT.digest)
    assert why in failure.value.message and failure.value.message.startswith(app_of(server).name)


def test_a_tag_that_cannot_be_read_is_never_taken_for_empty(
    registry: Registry, old: RegistryServer
) -> None:
    old.misbehave(old.path_of("team/app", TAG, "manifests"), answering(500))
    with pytest.raises(UndecidedError, match="answers 500"):
        registry.referrers(app_of(old), SUBJECT.digest)
    with pytest.raises(UndecidedError, match="answers 500"):
        registry.push_referrer(app_of(old), statement(1))


def test_a_list_may_have_pages(registry: Registry) -> None:
    with RegistryServer() as server:
        server.put("team/app", b"{}")
        pushed = [registry.push_referrer(app_of(server), statement(number)) for number in range(3)]
        path = f"/v2/team/app/referrers/{SUBJECT.digest}"

        def paged(request: Request, serve: Serve) -> Response:
            response = serve(request)
            document = json.loads(response.body)
            page = int((request.path.partition("page=")[2] or "0").partition("&")[0])
            document["manifests"] = document["manifests"][page : page + 1]
            link = f'<{path}?page={page + 1}&artifactType=x>; rel="next"'
            body = json.dumps(document).encode()
            return Response(200, body, {} if page == 2 else {"link": link})

        server.misbehave(path, paged)
        found = registry.referrers(app_of(server), SUBJECT.digest, "application/vnd.test")
        assert [entry.digest for entry in found] == [entry.digest for entry in pushed]


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ("<?again>; rel=next", "or no last page"),
        ('<http://elsewhere.example/v2/>; rel="next"', "next page on another server"),
    ],
)
def test_pages_without_end_or_elsewhere_are_refused(
    monkeypatch: pytest.MonkeyPatch, registry: Registry, link: str, why: str
) -> None:
    monkeypatch.setattr(registry_manifests, "_MAX_PAGES", 3)
    with RegistryServer() as server:
        path = f"/v2/team/app/referrers/{SUBJECT.digest}"
        server.misbehave(path, with_headers(link=link))
        with pytest.raises(UndecidedError, match=why):
            registry.referrers(app_of(server), SUBJECT.digest)


def test_who_writes_the_tag_at_the_same_moment_is_kept(
    registry: Registry, old: RegistryServer
) -> None:
    registry.push_referrer(app_of(old), statement(1))
    mine = statement(2)

    def overtaking(request: Request, serve: Serve) -> Response:
        """Somebody else writes what he read before."""
        response = serve(request)
        theirs = old.repositories["team/app"].manifests[first]
        old.tag("team/app", TAG, *theirs)
        return response

    first = digest_of(old.repositories["team/app"].manifests[TAG][0])
    old.misbehave(f"PUT {old.path_of('team/app', TAG, 'manifests')}", overtaking, times=1)
    registry.push_referrer(app_of(old), mine)
    found = [entry.digest for entry in registry.referrers(app_of(old), SUBJECT.digest)]
    assert found == [digest_of(statement(1)), digest_of(mine)]


def test_a_tag_that_does_not_keep_what_is_written_is_said(
    registry: Registry, old: RegistryServer
) -> None:
    old.misbehave(f"PUT {old.path_of('team/app', TAG, 'manifests')}", answering(201))
    with pytest.raises(UndecidedError, match="did not store the new one"):
        registry.push_referrer(app_of(old), statement(1))


def test_what_has_no_subject_is_attached_to_nothing(
    registry: Registry, server: RegistryServer
) -> None:
    with pytest.raises(UndecidedError, match="names no subject"):
        registry.push_referrer(app_of(server), statement(1, subject=None))
    assert server.connections == 0
