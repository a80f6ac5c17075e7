"""What is attached to an image, in the two forms that cosign reads; and what is read of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from memory_registry import IMAGE, MemoryRegistry

from buildmatrix.base.errors import UndecidedError
from buildmatrix.images.documents import (
    EMPTY,
    MANIFEST,
    Descriptor,
    Manifest,
    encode,
    manifest_of,
)
from buildmatrix.net.addresses import RequestError
from buildmatrix.net.registry_mirrors import Reference
from buildmatrix.signing import documents
from buildmatrix.signing.attached import ENVELOPE, AttestationReader, Claim, attach, attestation_tag
from buildmatrix.signing.documents import Envelope, read_private

VECTORS = Path(__file__).parent / "vectors"
KEY = read_private(VECTORS / "openssl.pem", None)
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
TYPE = "urn:example:1"
CLAIM = Claim("cpu", TYPE, b'{"a": 1}')


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


def manifest(registry: MemoryRegistry, reference: Reference) -> dict[str, object]:
    return json.loads(registry.manifest(reference).data)


def test_the_referrer_has_the_form_of_cosign(registry: MemoryRegistry) -> None:
    """Field by field what cosign 3.1.1 wrote for `attest --key` (its manifest, by hand)."""
    image = registry.image()
    pushed = attach(registry, image, CLAIM, KEY, NOW)
    held = manifest(registry, image.at(pushed.digest))
    (layer,) = held.pop("layers")
    assert layer["mediaType"] == "application/vnd.dev.sigstore.bundle.v0.3+json"
    assert held == {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "config": {
            "mediaType": "application/vnd.oci.empty.v1+json",
            "size": 2,
            "digest": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
        },
        "annotations": {
            "dev.sigstore.bundle.content": "dsse-envelope",
            "dev.sigstore.bundle.predicateType": TYPE,
            "org.opencontainers.image.created": "2026-11-22T12:00:00Z",
            "dev.buildmatrix.target": "cpu",
        },
        "subject": {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": image.digest,
            "size": len(registry.manifests[image.name, image.digest]),
        },
    }


def test_the_tag_has_the_form_of_older_cosign(registry: MemoryRegistry) -> None:
    image = registry.image()
    attach(registry, image, CLAIM, KEY, NOW)
    tag = attestation_tag(image)
    assert tag.tag == image.digest.replace(":", "-") + ".att"
    held = manifest(registry, tag)
    (layer,) = held["layers"]
    assert layer["mediaType"] == ENVELOPE == "application/vnd.dsse.envelope.v1+json"
    assert layer["annotations"]["dev.cosignproject.cosign/signature"] == ""
    assert layer["annotations"]["predicateType"] == TYPE
    config = json.loads(registry.blobs[image.name, held["config"]["digest"]])
    assert config["rootfs"] == {"type": "layers", "diff_ids": [layer["digest"]]}
    envelope = msgspec.json.decode(registry.blobs[image.name, layer["digest"]], type=Envelope)
    assert envelope.find_signer([KEY.public]) is KEY.public


def test_what_others_wrote_under_the_tag_stays_and_ours_is_replaced(
    registry: MemoryRegistry,
) -> None:
    image = registry.image()
    tag = attestation_tag(image)
    theirs = Descriptor(media_type=ENVELOPE, digest="sha256:" + "1" * 64, size=1)
    empty = Descriptor(media_type=EMPTY, digest="sha256:" + "2" * 64, size=2)
    others = Manifest(schema_version=2, media_type=MANIFEST, config=empty, layers=(theirs,))
    registry.push_manifest(tag, encode(others), MANIFEST)

    def layers() -> tuple[Descriptor, ...]:
        return manifest_of(registry.manifest(tag).data, "it").layers

    attach(registry, image, CLAIM, KEY, NOW)
    first = layers()
    attach(registry, image, Claim("cpu", "urn:example:2", b"{}"), KEY, NOW)
    attach(registry, image, Claim("cuda", TYPE, b"{}"), KEY, NOW)
    attach(registry, image, Claim("cpu", TYPE, b'{"a": 2}'), KEY, NOW)
    last = layers()
    assert last[0] == theirs and len(last) == 4
    assert first[1] not in last


def test_a_tag_with_too_many_attestations_is_not_added_to(registry: MemoryRegistry) -> None:
    image = registry.image()
    theirs = tuple(
        Descriptor(media_type=ENVELOPE, digest=f"sha256:{number:064x}", size=1)
        for number in range(64)
    )
    others = Manifest(schema_version=2, media_type=MANIFEST, config=theirs[0], layers=theirs)
    registry.push_manifest(attestation_tag(image), encode(others), MANIFEST)
    with pytest.raises(UndecidedError, match="has 64 attestations already"):
        attach(registry, image, CLAIM, KEY, NOW)


# Reading


def reader(registry: MemoryRegistry, image: Reference) -> AttestationReader:
    return AttestationReader(registry, image, TYPE)


def test_what_was_attached_is_read_in_both_places(registry: MemoryRegistry) -> None:
    image = registry.image()
    pushed = attach(registry, image, CLAIM, KEY, NOW)
    (referred,) = reader(registry, image).referrers()
    (tagged,) = reader(registry, image).tagged()
    assert referred.envelope == tagged.envelope is not None
    assert (referred.place, referred.hint) == (pushed.digest, KEY.public.hint)
    assert (tagged.place, tagged.hint) == (attestation_tag(image).tag, "")
    assert referred.envelope.find_signer([KEY.public]) is KEY.public


def test_nothing_is_attached_to_another_image(registry: MemoryRegistry) -> None:
    attach(registry, registry.image(), CLAIM, KEY, NOW)
    other = registry.image(IMAGE.with_tag("2"), salt="other")
    assert list(reader(registry, other).referrers()) == list(reader(registry, other).tagged()) == []


def test_layers_of_the_image_are_never_read(registry: MemoryRegistry) -> None:
    image = registry.image()
    attach(registry, image, CLAIM, KEY, NOW)
    registry.asked.clear()
    list(reader(registry, image).referrers())
    config = manifest_of(registry.manifest(image).data, "it").config
    assert not any(config.digest in request for request in registry.asked)


def test_what_says_that_it_is_of_another_type_is_not_read(registry: MemoryRegistry) -> None:
    image = registry.image()
    attach(registry, image, Claim("cpu", "https://cyclonedx.org/bom", b"{}"), KEY, NOW)
    registry.asked.clear()
    assert list(reader(registry, image).referrers()) == []
    assert registry.asked == [f"referrers {image}"]
    assert list(reader(registry, image).tagged()) == []
    assert not any(request.startswith("blob") for request in registry.asked)


def test_a_listing_without_annotations_is_followed(registry: MemoryRegistry) -> None:
    """As go-containerregistry writes the tag that stands in for the referrers API."""
    image = registry.image()
    pushed = attach(registry, image, CLAIM, KEY, NOW)
    bare = msgspec.structs.replace(pushed, artifact_type=EMPTY, annotations={})
    registry.listed[image.digest] = [bare]
    (found,) = reader(registry, image).referrers()
    assert found.envelope is not None


def test_what_is_listed_and_gone_is_said(registry: MemoryRegistry) -> None:
    image = registry.image()
    pushed = attach(registry, image, CLAIM, KEY, NOW)
    data = registry.manifests.pop((image.name, pushed.digest))
    (found,) = reader(registry, image).referrers()
    assert (found.trouble, found.envelope) == ("gone", None)
    registry.manifests[image.name, pushed.digest] = data
    registry.blobs.clear()
    (found,) = reader(registry, image).referrers()
    assert (found.trouble, found.envelope) == ("gone", None)


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b'{"dsseEnvelope": {"payload": 7}}'])
def test_hostile_blobs_are_unreadable_and_nothing_worse(
    registry: MemoryRegistry, data: bytes
) -> None:
    image = registry.image()
    for kind in (documents.MEDIA_TYPE, ENVELOPE):
        registry.listed.clear()
        listed(registry, image, data, kind)
        (found,) = reader(registry, image).referrers()
        assert found.trouble == "unreadable" and found.why


def listed(registry: MemoryRegistry, image: Reference, data: bytes, kind: str) -> None:
    from memory_registry import digest_of

    registry.blobs[image.name, digest_of(data)] = data
    registry.blobs[image.name, digest_of(b"{}")] = b"{}"
    layer = Descriptor(media_type=kind, digest=digest_of(data), size=len(data))
    empty = Descriptor(media_type=EMPTY, digest=digest_of(b"{}"), size=2)
    held = Manifest(
        schema_version=2,
        media_type=MANIFEST,
        artifact_type=documents.MEDIA_TYPE,
        config=empty,
        layers=(layer,),
        subject=registry.resolve(image),
    )
    registry.push_referrer(image, encode(held))


def test_an_envelope_that_is_too_large_is_not_fetched(registry: MemoryRegistry) -> None:
    image = registry.image()
    attach(registry, image, CLAIM, KEY, NOW)
    (item,) = registry.listed[image.digest]
    held = manifest_of(registry.manifests[image.name, item.digest], "it")
    huge = msgspec.structs.replace(held.layers[0], size=1 << 40)
    data = encode(msgspec.structs.replace(held, layers=(huge,)))
    registry.listed.clear()
    registry.push_referrer(image, data)
    registry.asked.clear()
    (found,) = reader(registry, image).referrers()
    assert found.trouble == "unreadable" and "bytes, more than are read" in found.why
    assert not any(request.startswith("blob") for request in registry.asked)


def test_a_flood_of_referrers_is_read_in_part_and_said(registry: MemoryRegistry) -> None:
    image = registry.image()
    pushed = attach(registry, image, CLAIM, KEY, NOW)
    registry.listed[image.digest] = [pushed] * 5000
    found = list(reader(registry, image).referrers())
    assert len(found) == 65
    assert found[-1].why == "there are 5000 attestations, of which 64 were looked at"


def test_a_registry_that_cannot_be_asked_is_no_answer(registry: MemoryRegistry) -> None:
    image = registry.image()

    def fails(name: str, reference: Reference) -> None:
        raise UndecidedError("the registry does not answer")

    registry.fails = fails
    with pytest.raises(UndecidedError, match="does not answer"):
        list(reader(registry, image).referrers())
    with pytest.raises(UndecidedError, match="does not answer"):
        list(reader(registry, image).tagged())


def test_a_registry_that_fails_on_the_way_is_no_answer(registry: MemoryRegistry) -> None:
    image = registry.image()
    attach(registry, image, CLAIM, KEY, NOW)

    def fails(name: str, reference: Reference) -> None:
        if name == "blob":
            raise RequestError("the registry answers 500", is_temporary=True, status=500)

    registry.fails = fails
    with pytest.raises(UndecidedError, match="answers 500"):
        list(reader(registry, image).referrers())


def test_a_referrer_that_is_no_manifest_is_unreadable(registry: MemoryRegistry) -> None:
    image = registry.image()
    pushed = attach(registry, image, CLAIM, KEY, NOW)
    for data in (b"{}", b"[]", b"{", b'{"layers": 7, "config": {}}', b"[" * 100_000):
        registry.manifests[image.name, pushed.digest] = data
        (found,) = reader(registry, image).referrers()
        assert found.trouble == "unreadable" and found.why, data
