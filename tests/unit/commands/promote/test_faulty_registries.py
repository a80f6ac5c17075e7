"""`promote`, `attach` and `verify` against a registry on loopback that misbehaves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hasty import HASTY
from loopback import answering
from registry import RegistryServer, losing_the_answer
from test_promote import promoted, report
from test_promote import states as states_of
from test_verify import DEMANDS, GOOD, KEY

from buildmatrix.base.errors import UndecidedError
from buildmatrix.commands.verify import verify
from buildmatrix.images.documents import (
    CONFIGURATION,
    MANIFEST,
    Descriptor,
    Manifest,
    encode,
    manifest_of,
)
from buildmatrix.judge.model import StagedImage, TargetResult
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Reference
from buildmatrix.reports.run import Report
from buildmatrix.signing import verdict
from buildmatrix.signing.attached import Claim, attach, attestation_tag

TAGS = tuple(f"1-t{number}" for number in range(4))


@pytest.fixture(autouse=True)
def no_logins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    for name in ("REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=[True, False], ids=["referrers", "tag"])
def server(request: pytest.FixtureRequest) -> Iterator[RegistryServer]:
    """One that lists referrers, and one that does not know of them."""
    with RegistryServer(referrers=request.param) as server:
        yield server


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry(patience=HASTY) as registry:
        yield registry


def image(server: RegistryServer, text: str = "") -> Reference:
    """An image under the tag 1."""
    data = text.encode()
    config = Descriptor(media_type=CONFIGURATION, digest=server.put("demo", data), size=len(data))
    manifest = encode(Manifest(schema_version=2, media_type=MANIFEST, config=config, layers=()))
    name = Reference.parse(f"{server.host}/demo:1")
    return name.at(server.tag("demo", "1", manifest))


def attested(server: RegistryServer, registry: Registry) -> Reference:
    name = image(server)
    claim = Claim(GOOD.target.id, verdict.PREDICATE_TYPE, verdict.encode(GOOD))
    attach(registry, name, claim, KEY, datetime.now(UTC))
    return name


def staged(server: RegistryServer) -> Report:
    gates = dict.fromkeys(("lock", "build", "scan", "smoke"), "passed")
    targets = []
    for tag in TAGS:
        held = StagedImage(f"{server.host}/demo", image(server, tag).digest, (tag,))
        targets.append(TargetResult(tag, "cpu", gates=gates, push="passed", staged=held))
    return report(*targets)


def tags(server: RegistryServer) -> list[str]:
    return [tag for tag in TAGS if tag in server.repositories["demo"].manifests]


@pytest.mark.parametrize("at", range(len(TAGS)))
@pytest.mark.parametrize("status", [403, 500])
def test_a_registry_that_fails_at_one_tag_keeps_those_before_it(
    server: RegistryServer, registry: Registry, at: int, status: int
) -> None:
    run = staged(server)
    server.misbehave(f"PUT /v2/demo/manifests/{TAGS[at]}", answering(status))
    promotion, code, _ = promoted(registry, [run])
    assert (code, tags(server)) == (3, list(TAGS[:at]))
    assert states_of(promotion)[at] == "failed"
    assert str(status) in promotion.problems[0]


def test_what_passes_is_tried_again(server: RegistryServer, registry: Registry) -> None:
    run = staged(server)
    server.misbehave(f"PUT /v2/demo/manifests/{TAGS[1]}", answering(503), times=1)
    server.misbehave(f"PUT /v2/demo/manifests/{TAGS[2]}", losing_the_answer(), times=1)
    promotion, code, _ = promoted(registry, [run])
    assert (code, tags(server)) == (0, list(TAGS))
    assert states_of(promotion) == ["moved"] * 4


def test_a_registry_that_cannot_be_read_gets_no_tag(
    server: RegistryServer, registry: Registry
) -> None:
    run = staged(server)
    server.misbehave(f"GET /v2/demo/manifests/{TAGS[3]}", answering(500))
    server.misbehave(f"HEAD /v2/demo/manifests/{TAGS[3]}", answering(500))
    assert promoted(registry, [run])[1] == 3
    assert tags(server) == []


def test_a_registry_that_has_something_else_under_a_digest_gets_no_tag(
    server: RegistryServer, registry: Registry
) -> None:
    """A report is no proof of what lies in a registry today."""
    run = staged(server)
    held = run.targets[3].staged
    assert held is not None
    other, _ = server.repositories["demo"].manifests[image(server, "another").digest]
    server.repositories["demo"].manifests[held.digest] = (other, MANIFEST)
    promotion, code, _ = promoted(registry, [run])
    assert (code, tags(server)) == (3, [])
    assert "no tag was set:" in promotion.problems[0]
    assert held.digest in promotion.problems[0]
    assert states_of(promotion) == ["not-tried"] * 4


def test_what_was_attached_is_verified(server: RegistryServer, registry: Registry) -> None:
    name = attested(server, registry)
    with Registry(patience=HASTY) as another:
        assert verify(another, "it", name, DEMANDS).verified


def test_a_verdict_of_other_bytes_is_no_answer(server: RegistryServer, registry: Registry) -> None:
    """A registry that sends something else than was asked for: nobody knows, and nothing passes."""
    name = attested(server, registry)
    (listed,) = registry.referrers(name, name.digest)
    blob = manifest_of(registry.manifest(name.at(listed.digest)).data, "it").layers[0]
    server.repositories["demo"].blobs[blob.digest] = b"x" * blob.size
    with Registry(patience=HASTY) as another, pytest.raises(UndecidedError):
        verify(another, "it", name, DEMANDS)


@pytest.mark.parametrize("status", [401, 403, 429, 500])
def test_a_registry_that_refuses_is_no_answer(
    server: RegistryServer, registry: Registry, status: int
) -> None:
    name = attested(server, registry)
    (listed,) = registry.referrers(name, name.digest)
    server.misbehave(f"GET /v2/demo/manifests/{listed.digest}", answering(status))
    with Registry(patience=HASTY) as another, pytest.raises(UndecidedError, match=str(status)):
        verify(another, "it", name, DEMANDS)


def test_attestations_that_were_deleted_are_missing(
    server: RegistryServer, registry: Registry
) -> None:
    name = attested(server, registry)
    held = server.repositories["demo"].manifests
    for tag in [tag for tag in held if tag not in ("1", name.digest)]:
        del held[tag]
    with Registry(patience=HASTY) as another:
        found = verify(another, "it", name, DEMANDS)
    assert {item.reason for item in found.refusals} <= {"no-attestation", "stripped"}
    assert not found.verified


def test_the_tag_alone_is_enough(server: RegistryServer, registry: Registry) -> None:
    """As cosign 2 leaves it."""
    name = attested(server, registry)
    held = server.repositories["demo"].manifests
    keep = {"1", name.digest, attestation_tag(name).tag}
    keep.add(f"sha256:{hashlib.sha256(held[attestation_tag(name).tag][0]).hexdigest()}")
    for tag in set(held) - keep:
        del held[tag]
    with Registry(patience=HASTY) as another:
        assert verify(another, "it", name, DEMANDS).verified
