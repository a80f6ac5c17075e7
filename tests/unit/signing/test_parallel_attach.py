"""Several machines that attest one image at the same moment: nobody takes out what another added.

A registry has no lock, so every order of their requests has to be good. One attestation runs whole
in the middle of another, before each of its requests.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier, Thread

import pytest
from hasty import HASTY
from memory_registry import MemoryRegistry
from registry import RegistryServer

from buildmatrix.base.errors import UndecidedError
from buildmatrix.images.documents import Descriptor, Manifest, encode, manifest_of
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Reference
from buildmatrix.signing import documents
from buildmatrix.signing.attached import Claim, attach, attestation_tag, list_tagged_layers
from buildmatrix.signing.documents import read_private

KEY = read_private(Path(__file__).parent / "vectors/openssl.pem", None)
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
TYPE = "urn:example:1"
LATER = NOW + timedelta(seconds=1)


def attached(registry: MemoryRegistry, image: Reference, target: str, now: datetime = NOW) -> str:
    return attach(registry, image, Claim(target, TYPE, b'{"a": 1}'), KEY, now).digest


def targets(registry: MemoryRegistry, image: Reference) -> list[str]:
    layers = list_tagged_layers(registry, attestation_tag(image))
    return sorted(layer.annotations["dev.buildmatrix.target"] for layer in layers)


def requests_of_one() -> int:
    registry = MemoryRegistry()
    image = registry.image()
    before = len(registry.asked)
    attached(registry, image, "cpu")
    return len(registry.asked) - before


def in_the_middle(registry: MemoryRegistry, image: Reference, at: int, *others: str) -> None:
    """Other machines attest, one behind the other, before the request number `at` of the first."""
    numbers = iter(range(10_000))

    def fails(name: str, reference: Reference) -> None:
        if next(numbers) == at:
            registry.fails = lambda name, reference: None
            for other in others:
                attached(registry, image, other)

    registry.fails = fails


@pytest.mark.parametrize("at", range(requests_of_one()))
def test_one_that_attests_in_the_middle_of_another_loses_nothing_and_takes_nothing(at: int) -> None:
    registry = MemoryRegistry()
    image = registry.image()
    in_the_middle(registry, image, at, "cuda", "rocm")
    attached(registry, image, "cpu")
    assert targets(registry, image) == ["cpu", "cuda", "rocm"]
    assert len({item.digest for item in registry.listed[image.digest]}) == 3


@pytest.mark.parametrize("at", range(requests_of_one()))
def test_two_verdicts_of_one_target_leave_the_later(at: int) -> None:
    registry = MemoryRegistry()
    image = registry.image()
    numbers = iter(range(10_000))

    def fails(name: str, reference: Reference) -> None:
        if next(numbers) == at:
            registry.fails = lambda name, reference: None
            later.append(attached(registry, image, "cpu", LATER))

    later: list[str] = []
    registry.fails = fails
    attached(registry, image, "cpu")
    (layer,) = list_tagged_layers(registry, attestation_tag(image))
    assert [layer.annotations["dev.buildmatrix.bundle"]] == later


def test_a_tag_that_keeps_nothing_is_given_up() -> None:
    registry = MemoryRegistry()
    image = registry.image()
    write = registry.push_manifest

    def forgets(reference: Reference, data: bytes, media_type: str) -> Descriptor:
        if reference.tag and not reference.digest:
            writes.append(reference.tag)
            return Descriptor(media_type=media_type, digest=image.digest, size=len(data))
        return write(reference, data, media_type)

    writes: list[str] = []
    registry.push_manifest = forgets  # type: ignore[method-assign]
    with pytest.raises(UndecidedError, match="is being overwritten by others"):
        attached(registry, image, "cpu")
    assert len(writes) == 8


def test_what_others_listed_and_cannot_be_read_stops_nobody() -> None:
    """Whoever may write to the repository may list anything, under our annotations too."""
    registry = MemoryRegistry()
    image = registry.image()
    attached(registry, image, "gone")
    attached(registry, image, "damaged")
    gone, damaged = registry.listed[image.digest]
    del registry.manifests[image.name, gone.digest]
    held = manifest_of(registry.manifests[image.name, damaged.digest], "it")
    registry.manifests[image.name, damaged.digest] = encode(
        Manifest(config=held.config, layers=(held.config,), subject=held.subject)
    )
    del registry.tags[image.name, attestation_tag(image).tag]
    attached(registry, image, "cpu")
    assert targets(registry, image) == ["cpu"]


@pytest.mark.parametrize("referrers", [True, False], ids=["referrers", "tag"])
def test_machines_that_start_at_one_moment_all_find_their_verdict(
    referrers: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Over HTTP, each with a client of its own; also where the list itself is under a tag."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    names = [f"t{number}" for number in range(4)]
    with RegistryServer(referrers=referrers) as server:
        manifest = encode(
            Manifest(
                config=Descriptor(
                    media_type="application/vnd.oci.image.config.v1+json",
                    digest=server.put("demo", b"{}"),
                    size=2,
                ),
                layers=(),
                media_type="application/vnd.oci.image.manifest.v1+json",
            )
        )
        digest = server.tag("demo", "1", manifest)
        image = Reference.parse(f"{server.host}/demo:1").at(digest)
        start = Barrier(len(names))

        def work(target: str) -> None:
            with Registry(patience=HASTY) as registry:
                start.wait(300)
                attach(registry, image, Claim(target, TYPE, b"{}"), KEY, NOW)

        threads = [Thread(target=work, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        with Registry(patience=HASTY) as registry:
            held = list_tagged_layers(registry, attestation_tag(image))
            assert sorted(layer.annotations["dev.buildmatrix.target"] for layer in held) == names
            listed = registry.referrers(image, image.digest)
            assert {item.annotations[documents.PREDICATE_TYPE] for item in listed} == {TYPE}
            assert len(listed) == len(names)
