"""Signed statements beside an image in its registry, where cosign and admission controllers look.

Two places, of one envelope. Since cosign 3 a bundle is a manifest that refers to the image (OCI
distribution specification 1.1, "referrers"). cosign 2, and controllers that know no bundles, read
the layers of the manifest under the tag `sha256-<digest>.att`. The forms are those that cosign
3.1.1 writes (`WriteAttestationNewBundleFormat` and `WriteAttestations` in its
`pkg/oci/remote/write.go`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

import msgspec

from buildmatrix.attestation import bundle, statement
from buildmatrix.attestation.envelope import Envelope
from buildmatrix.attestation.keyless import KeylessSigner
from buildmatrix.attestation.keys import PrivateKey
from buildmatrix.attestation.tagged import CREATED, TARGET, add_to_tag, push_data
from buildmatrix.oci.documents import EMPTY, MANIFEST, Descriptor, Manifest, encode
from buildmatrix.registry.client import Registry
from buildmatrix.registry.reference import Reference

#: A key of one's own, or the identity of a CI job.
Signer: TypeAlias = PrivateKey | KeylessSigner


@dataclass(frozen=True, slots=True)
class Claim:
    """Something to be said of an image."""

    #: The target that it is said for.
    target: str
    predicate_type: str
    #: JSON.
    predicate: bytes


def attach(
    registry: Registry, image: Reference, claim: Claim, signer: Signer, now: datetime
) -> Descriptor:
    """Sign a claim about `image`, which has its digest, and put it beside it; what refers to it.

    Raises `UndecidedError` for what the registry does not take, and where nobody signs.
    """
    payload = statement.statement(image.name, image.digest, claim.predicate_type, claim.predicate)
    if isinstance(signer, KeylessSigner):
        signed = signer.sign(payload)
    else:
        signed = bundle.bundled(Envelope.signed(payload, signer), signer.public.hint)
    attached = _refer(registry, image, claim, signed, now)
    add_to_tag(registry, image, attached)
    return attached


def _refer(
    registry: Registry, image: Reference, claim: Claim, data: bytes, now: datetime
) -> Descriptor:
    subject = registry.resolve(image)
    manifest = Manifest(
        schema_version=2,
        media_type=MANIFEST,
        artifact_type=bundle.MEDIA_TYPE,
        config=push_data(registry, image, b"{}", EMPTY),
        layers=(push_data(registry, image, data, bundle.MEDIA_TYPE),),
        subject=msgspec.structs.replace(subject, annotations={}, platform=None),
        annotations={
            "dev.sigstore.bundle.content": "dsse-envelope",
            bundle.PREDICATE_TYPE: claim.predicate_type,
            CREATED: now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            TARGET: claim.target,
        },
    )
    return registry.push_referrer(image, encode(manifest))
