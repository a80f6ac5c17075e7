"""Signed statements beside an image in its registry, where cosign and admission controllers look.

Two places, of one envelope. Since cosign 3 a bundle is a manifest that refers to the image (OCI
distribution specification 1.1, "referrers"). cosign 2, and controllers that know no bundles, read
the layers of the manifest under the tag `sha256-<digest>.att`. The forms are those that cosign
3.1.1 writes (`WriteAttestationNewBundleFormat` and `WriteAttestations` in its
`pkg/oci/remote/write.go`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO

import msgspec

from buildmatrix.attestation import bundle, statement
from buildmatrix.attestation.envelope import Envelope
from buildmatrix.attestation.keys import PrivateKey
from buildmatrix.errors import UndecidedError
from buildmatrix.http.failures import RequestError
from buildmatrix.oci.documents import (
    CONFIGURATION,
    EMPTY,
    MANIFEST,
    Descriptor,
    HistoryStep,
    ImageConfiguration,
    Manifest,
    RootFileSystem,
    encode,
    manifest_of,
)
from buildmatrix.registry.client import Registry
from buildmatrix.registry.reference import Reference

#: Media type of an envelope that lies in a registry by itself.
ENVELOPE = "application/vnd.dsse.envelope.v1+json"
#: Annotations that cosign reads.
PREDICATE_TYPE = "dev.sigstore.bundle.predicateType"
LAYER_PREDICATE_TYPE = "predicateType"
#: When something was attached, in UTC: `2026-11-22T15:04:26Z`.
CREATED = "org.opencontainers.image.created"
_SIGNATURE = "dev.cosignproject.cosign/signature"
#: Ours: what was attached for a target before makes room for what is attached now.
_TARGET = "dev.buildmatrix.target"
#: Envelopes of other tools that a tag may hold beside ours.
_MOST_LAYERS = 64


@dataclass(frozen=True, slots=True)
class Claim:
    """Something to be said of an image."""

    #: The target that it is said for.
    target: str
    predicate_type: str
    #: JSON.
    predicate: bytes


def attach(
    registry: Registry, image: Reference, claim: Claim, key: PrivateKey, now: datetime
) -> Descriptor:
    """Sign a claim about `image`, which has its digest, and put it beside it; what refers to it.

    Raises `UndecidedError` for what the registry does not take.
    """
    payload = statement.statement(image.name, image.digest, claim.predicate_type, claim.predicate)
    envelope = Envelope.signed(payload, key)
    attached = _refer(registry, image, claim, bundle.bundled(envelope, key.public.hint), now)
    _tag(registry, image, claim, envelope)
    return attached


def tag_of(image: Reference) -> Reference:
    """The tag under which cosign 2 keeps attestations of an image."""
    return image.tagged(image.digest.replace(":", "-") + ".att")


def is_missing(error: UndecidedError) -> bool:
    """Whether a registry said that there is no such thing."""
    return isinstance(error, RequestError) and error.status in (404, 410)


def _refer(
    registry: Registry, image: Reference, claim: Claim, data: bytes, now: datetime
) -> Descriptor:
    subject = registry.resolve(image)
    manifest = Manifest(
        schema_version=2,
        media_type=MANIFEST,
        artifact_type=bundle.MEDIA_TYPE,
        config=_blob(registry, image, b"{}", EMPTY),
        layers=(_blob(registry, image, data, bundle.MEDIA_TYPE),),
        subject=msgspec.structs.replace(subject, annotations={}, platform=None),
        annotations={
            "dev.sigstore.bundle.content": "dsse-envelope",
            PREDICATE_TYPE: claim.predicate_type,
            CREATED: now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        },
    )
    return registry.push_referrer(image, encode(manifest))


def _tag(registry: Registry, image: Reference, claim: Claim, envelope: Envelope) -> None:
    """Add an envelope to those under the tag; what others wrote there stays."""
    tag = tag_of(image)
    own = {_TARGET: claim.target, LAYER_PREDICATE_TYPE: claim.predicate_type}
    layer = _blob(registry, image, msgspec.json.encode(envelope), ENVELOPE)
    layer = msgspec.structs.replace(layer, annotations={_SIGNATURE: "", **own})
    others = tuple(
        item
        for item in layers_under(registry, tag)
        if not own.items() <= dict(item.annotations).items()
    )
    if len(others) >= _MOST_LAYERS:
        raise UndecidedError(
            f"{tag} has {len(others)} attestations already, more than are read; delete that tag"
        )
    layers = (*others, layer)
    configuration = ImageConfiguration(
        architecture="",
        os="",
        created="0001-01-01T00:00:00Z",
        history=tuple(HistoryStep(created="0001-01-01T00:00:00Z") for _ in layers),
        rootfs=RootFileSystem(diff_ids=tuple(item.digest for item in layers)),
    )
    manifest = Manifest(
        schema_version=2,
        media_type=MANIFEST,
        config=_blob(registry, image, encode(configuration), CONFIGURATION),
        layers=layers,
    )
    registry.push_manifest(tag, encode(manifest), MANIFEST)


def layers_under(registry: Registry, tag: Reference) -> tuple[Descriptor, ...]:
    """The envelopes under the tag that `tag_of` names; none where there is no such tag."""
    try:
        held = registry.manifest(tag)
    except UndecidedError as error:
        if is_missing(error):
            return ()
        raise
    return manifest_of(held.data, str(tag)).layers


def _blob(registry: Registry, image: Reference, data: bytes, media_type: str) -> Descriptor:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    descriptor = Descriptor(media_type=media_type, digest=digest, size=len(data))
    registry.push_blob(image, descriptor, lambda: BytesIO(data))
    return descriptor
