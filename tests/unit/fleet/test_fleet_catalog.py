"""The images that a registry has."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hasty import HASTY
from loopback import Request, Response, Serve, answering
from registry import INDEX, MANIFEST, RegistryServer, error

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.catalogue.load import load
from buildmatrix.fleet import subjects
from buildmatrix.fleet.reference_lists import SubjectList, SubjectSettings
from buildmatrix.fleet.subjects import Lister
from buildmatrix.images.documents import CONFIGURATIONS
from buildmatrix.net.registry_client import Registry

CONFIGURATION = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DOCKER_CONFIG", raising=False)


def found(name: str, **settings: object) -> SubjectList:
    with Registry(patience=HASTY) as registry:
        return Lister(SubjectSettings(**settings), load(), lambda: registry).find(
            [f"registry:{name}"]
        )


def tagged(server: RegistryServer, listing: SubjectList) -> list[str]:
    return [item.reference.removeprefix(f"{server.host}/") for item in listing.subjects]


def image(server: RegistryServer, name: str, tag: str, created: str, kind: str = CONFIGURATION):
    """An image that was made then; its descriptor."""
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": []},
            "created": created,
            "author": name,
        }
    ).encode()
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": kind, "digest": server.put(name, config), "size": len(config)},
        "layers": [],
    }
    data = json.dumps(document).encode()
    digest = server.tag(name, tag, data)
    return {"mediaType": MANIFEST, "digest": digest, "size": len(data)}


@pytest.fixture
def fleet(server: RegistryServer) -> RegistryServer:
    for name in ("base", "team-a/serve", "team-b/serve", "team-b/train/deep"):
        for tag in ("cpu-1.0", "cuda-1.0", "cuda-1.1"):
            server.tag(name, tag, b"{}")
    return server


@pytest.mark.parametrize(
    ("pattern", "images"),
    [
        ("/team-*/serve:cuda-1.0", ["team-a/serve:cuda-1.0", "team-b/serve:cuda-1.0"]),
        ("/team-b/*:cpu*", ["team-b/serve:cpu-1.0", "team-b/train/deep:cpu-1.0"]),
        ("/team-b/:cpu*", ["team-b/serve:cpu-1.0", "team-b/train/deep:cpu-1.0"]),
        ("/base", ["base:cpu-1.0", "base:cuda-1.0", "base:cuda-1.1"]),
        ("/base:cuda-*", ["base:cuda-1.0", "base:cuda-1.1"]),
        ("/base:cuda-7", ["base:cuda-7"]),
        ("/base@sha256:" + "a" * 64, ["base@sha256:" + "a" * 64]),
        (
            "/*:cpu-1.0",
            [
                "base:cpu-1.0",
                "team-a/serve:cpu-1.0",
                "team-b/serve:cpu-1.0",
                "team-b/train/deep:cpu-1.0",
            ],
        ),
    ],
)
def test_patterns(fleet: RegistryServer, pattern: str, images: list[str]):
    held = found(fleet.host + pattern)
    assert tagged(fleet, held) == images
    assert held.missing == held.notes == ()
    assert {place for item in held.subjects for place in item.places} == {
        f"registry:{fleet.host}{pattern}"
    }
    # A repository that is named needs no catalog, which most public registries do not have.
    assert (
        fleet.asked("GET", "/v2/_catalog") == ("*" in pattern.partition(":")[0]) or "/:" in pattern
    )


def test_a_whole_registry(fleet: RegistryServer):
    assert len(found(f"{fleet.host}/").subjects) == len(found(f"{fleet.host}/*").subjects) == 12


@pytest.mark.parametrize(
    "name",
    [
        "a.test/*@sha256:1",
        "a.test/Team/*",
        "a.test/b:*:1",
        "a.test/Team",
        "a b.test/*",
        "localhost:5000",
        "registry.test",
    ],
)
def test_what_is_no_pattern(name: str):
    with pytest.raises(UsageError):
        found(name)


def test_excluded_repositories_are_not_asked(fleet: RegistryServer):
    held = found(f"{fleet.host}/*", exclude=("team-*", "*:cuda-1.0"))
    assert tagged(fleet, held) == ["base:cpu-1.0", "base:cuda-1.1"]
    assert fleet.asked("GET", "/v2/team-a/serve/tags/list") == 0


ADVICE = (
    "name repositories without a pattern (registry:{0}/NAME), or the images in a file "
    "(file:images.txt)"
)


@pytest.mark.parametrize(
    ("status", "code", "what"),
    [
        (401, "UNAUTHORIZED", "{0}: the registry wants credentials (401); log in with "),
        (403, "DENIED", "{0}: the registry wants credentials (403); log in with "),
        (404, "NOT_FOUND", "{0} does not list its repositories (404); "),
        (400, "UNSUPPORTED", "{0} does not list its repositories (400); "),
        (405, "UNSUPPORTED", "{0} does not list its repositories (405); "),
    ],
)
def test_a_registry_without_a_catalog(fleet: RegistryServer, status: int, code: str, what: str):
    fleet.misbehave("/v2/_catalog", lambda request, serve: error(status, code, "no"))
    held = found(f"{fleet.host}/team-*/serve")
    assert held.subjects == ()
    (sentence,) = held.missing
    assert sentence.startswith(what.format(fleet.host))
    assert sentence.endswith(ADVICE.format(fleet.host))
    assert ("administrators" in sentence) == (status in (401, 403))


def test_a_catalog_is_asked_for_once(fleet: RegistryServer):
    patterns = ["team-*:cpu*", "team-*:cuda*", "base*", "*/deep:cuda-1.0"]
    with Registry(patience=HASTY) as registry:
        held = Lister(SubjectSettings(), load(), lambda: registry).find(
            [f"registry:{fleet.host}/{pattern}" for pattern in patterns]
        )
    assert len(held.subjects) == 12
    assert fleet.asked("GET", "/v2/_catalog") == 1
    for name in ("base", "team-a/serve", "team-b/train/deep"):
        assert fleet.asked("GET", f"/v2/{name}/tags/list") == 1
    fleet.misbehave("/v2/_catalog", answering(404))
    with Registry(patience=HASTY) as registry:
        held = Lister(SubjectSettings(), load(), lambda: registry).find(
            [f"registry:{fleet.host}/{pattern}" for pattern in patterns]
        )
    assert len(held.missing) == 1
    assert fleet.asked("GET", "/v2/_catalog") == 2


def test_pages_that_are_smaller_than_was_asked_for(fleet: RegistryServer):
    """`catalog.maxentries` of distribution 2.8.2 and later."""

    def limited(request: Request, serve: Serve) -> Response:
        if "n=1000" in request.path:
            return error(400, "PAGINATION_NUMBER_INVALID", "invalid number of results requested")
        return serve(request)

    fleet.misbehave("/v2/_catalog", limited)
    held = found(f"{fleet.host}/*")
    assert (len(held.subjects), held.missing) == (12, ())
    assert fleet.asked("GET", "/v2/_catalog") == 2


def unlinked(request: Request, serve: Serve) -> Response:
    response = serve(request)
    headers = {name: text for name, text in response.headers.items() if name != "link"}
    return replace(response, headers=headers)


def test_full_pages_that_do_not_lead_on(fleet: RegistryServer, monkeypatch: pytest.MonkeyPatch):
    """Amazon ECR takes `n` and `last`, and has no header `Link`."""
    fleet.misbehave("/v2/_catalog", unlinked)
    for page in (1, 2, 3, 4):
        monkeypatch.setattr("buildmatrix.net.registry_client._PAGE_NAMES", page)
        held = found(f"{fleet.host}/*")
        assert (len(held.subjects), held.missing) == (12, ())


def test_full_pages_that_are_the_same_for_ever(
    fleet: RegistryServer, monkeypatch: pytest.MonkeyPatch
):
    names = json.dumps({"repositories": ["base", "team-a/serve"]}).encode()
    fleet.misbehave("/v2/_catalog", answering(200, names))
    monkeypatch.setattr("buildmatrix.net.registry_client._PAGE_NAMES", 2)
    held = found(f"{fleet.host}/*")
    assert len(held.subjects) == 6
    (sentence,) = held.missing
    assert sentence.endswith("gives 2 and no next page: there may be more")


def test_a_registry_that_fails_on_the_way_keeps_what_came(
    fleet: RegistryServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("buildmatrix.net.registry_client._PAGE_NAMES", 3)
    fleet.misbehave("/v2/_catalog", answering(500), after=1)
    held = found(f"{fleet.host}/*:cpu-*")
    assert tagged(fleet, held) == ["base:cpu-1.0", "team-a/serve:cpu-1.0", "team-b/serve:cpu-1.0"]
    assert "answers 500 to its repositories" in held.missing[0]


def test_one_repository_that_may_not_be_read_costs_no_other(fleet: RegistryServer):
    fleet.misbehave("/v2/base/tags/list", answering(403))
    held = found(f"{fleet.host}/*:cpu-*")
    assert len(held.subjects) == 3
    assert held.missing == (
        f"{fleet.host}/base: the registry wants credentials (403); "
        f"log in with `docker login {fleet.host}`",
    )


def test_a_repository_without_tags(fleet: RegistryServer):
    """distribution lists repositories for ever, and answers 404 once their last tag is gone."""
    fleet.put("empty", b"x")
    assert len(found(f"{fleet.host}/*").subjects) == 12
    held = found(f"{fleet.host}/empty")
    assert "does not have its tags (404)" in held.missing[0]
    nothing = found(f"{fleet.host}/nobody*")
    assert nothing.missing == (
        f"registry:{fleet.host}/nobody*: {fleet.host} has no repository of this name",
    )


def test_names_that_can_be_none(fleet: RegistryServer):
    names = json.dumps({"repositories": ["base", "../etc", "A", "x" * 300, "a\nb"]}).encode()
    tags = json.dumps({"tags": ["1", "a/b", "\u202e", "x" * 200]}).encode()
    fleet.misbehave("/v2/_catalog", answering(200, names))
    fleet.misbehave("/v2/base/tags/list", answering(200, tags))
    held = found(f"{fleet.host}/*")
    assert tagged(fleet, held) == ["base:1"]
    assert held.missing == (
        f"{fleet.host} lists 4 names that cannot be a repository",
        f"{fleet.host}/base: 3 names in its list cannot be a tag",
    )


def test_signatures_are_no_images(fleet: RegistryServer):
    digest = "sha256-" + "0" * 64
    for tag in (digest, f"{digest}.sig", f"{digest}.att", "sha256-short"):
        fleet.tag("base", tag, b"{}")
    held = found(f"{fleet.host}/base:sha256*")
    assert tagged(fleet, held) == ["base:sha256-short"]
    assert held.notes == (
        f"registry:{fleet.host}/base:sha256*: 3 tags of signatures, attestations and other "
        "artifacts left out",
    )


def test_the_newest(server: RegistryServer):
    image(server, "app", "1.9", "2026-01-01T00:00:00Z")
    image(server, "app", "1.10", "2026-03-01T00:00:00.123456789Z")
    image(server, "app", "hotfix", "2026-02-28T23:00:00-02:00")
    newest = image(server, "app", "nightly", "2026-05-01T00:00:00Z")
    image(server, "app", "old", "")
    image(server, "app", "chart", "", "application/vnd.cncf.helm.config.v1+json")
    data = server.repositories["app"].manifests[newest["digest"]][0]
    server.tag("app", "latest", data)
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [
            {**newest, "platform": {"os": "linux", "architecture": "arm64"}},
            {
                **image(server, "app", "", "2026-04-01T00:00:00Z"),
                "platform": {"os": "linux", "architecture": "amd64"},
            },
        ],
    }
    server.tag("app", "multi", json.dumps(index).encode(), INDEX)
    server.tag("app", "broken", b'{"mediaType": "application/x"}')
    held = found(f"{server.host}/*", newest=3)
    # Two tags are one image; what cannot be dated is judged, and said to be broken there.
    assert tagged(server, held) == [
        "app:broken",
        "app:hotfix",
        "app:latest",
        "app:multi",
        "app:nightly",
    ]
    assert len(held.notes) == 1
    assert "1 tag of signatures, attestations and other artifacts left out" in held.notes[0]
    arm = found(f"{server.host}/*", newest=2, platform="linux/arm64")
    assert tagged(server, arm) == ["app:broken", "app:latest", "app:multi", "app:nightly"]


def test_where_all_are_of_one_date_the_later_name_is_newer(server: RegistryServer):
    for tag in ("1.9", "1.10", "1.2"):
        image(server, f"app{tag}", tag, "1970-01-01T00:00:00Z")
    for tag in ("1.9", "1.10", "1.2"):
        data = next(iter(server.repositories[f"app{tag}"].manifests.values()))[0]
        server.tag("app", tag, data)
        server.repositories["app"].blobs |= server.repositories[f"app{tag}"].blobs
    assert tagged(server, found(f"{server.host}/app", newest=2)) == ["app:1.10", "app:1.9"]


def test_too_many_tags_to_date(server: RegistryServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subjects, "MOST_DATED", 2)
    for number in range(8, 12):
        image(server, "app", f"v{number}", f"2026-01-{20 - number}T00:00:00Z")
    held = found(f"{server.host}/app", newest=1)
    assert tagged(server, held) == ["app:v10"]
    assert held.notes == (
        f"registry:{server.host}/app: of app the newest 1 were looked for among the 2 tags whose "
        "names come last",
    )


def test_bounds(fleet: RegistryServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subjects, "MOST_REPOSITORIES", 2)
    monkeypatch.setattr(subjects, "MOST_TAGS", 1)
    held = found(f"{fleet.host}/*")
    assert tagged(fleet, held) == ["base:cuda-1.1", "team-a/serve:cuda-1.1"]
    assert "has more than 2 such repositories" in held.missing[0]
    assert "base has 3 such tags, and 1 of them were taken" in held.missing[1]


def test_no_configuration_is_trusted_for_its_size(server: RegistryServer):
    """The size is a claim of the manifest."""
    huge = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {
            "mediaType": sorted(CONFIGURATIONS)[0],
            "digest": server.put("app", b"{}"),
            "size": 1 << 40,
        },
        "layers": [],
    }
    server.tag("app", "1", json.dumps(huge).encode())
    assert tagged(server, found(f"{server.host}/app", newest=1)) == ["app:1"]


def test_repositories_are_asked_side_by_side(fleet: RegistryServer):
    import threading

    both = threading.Barrier(2, timeout=300)

    def wait(request: Request, serve: Serve) -> Response:
        both.wait()
        return serve(request)

    for name in ("team-a/serve", "team-b/serve"):
        fleet.misbehave(f"/v2/{name}/tags/list", wait, times=1)
    assert len(found(f"{fleet.host}/team-*/serve", jobs=2).subjects) == 6
