"""Sigstore bundles: an envelope with its verification material, as one JSON document.

Format: `sigstore_bundle.proto` of https://github.com/sigstore/protobuf-specs, in protobuf's JSON.
cosign 3 attaches bundles to images, and looks for them first.
"""

from __future__ import annotations

import msgspec

from buildmatrix.attestation.envelope import Envelope
from buildmatrix.strict_json import decode_json

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
#: Common prefix of the media types of all versions.
MEDIA_TYPE_PREFIX = "application/vnd.dev.sigstore.bundle"
#: Annotation of a bundle's manifest: the type of its predicate.
PREDICATE_TYPE = "dev.sigstore.bundle.predicateType"
#: Annotation: UTC time of attachment, as `2026-11-22T15:04:26Z`.
CREATED = "org.opencontainers.image.created"
#: Maximum bytes of a bundle. A bill of materials of an image with a thousand distributions has half
#: a megabyte.
MAX_BYTES = 16 << 20


class KeyHint(msgspec.Struct, frozen=True):
    """Reference to the signing key, by its `PublicKey.hint`."""

    hint: str = ""


class VerificationMaterial(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Material to verify a signature; log entries are not read here."""

    public_key: KeyHint = KeyHint()
    #: Certificate of an identity, in place of a key; not parsed here either.
    certificate: msgspec.Raw = msgspec.Raw()
    #: The same in bundles before version 0.3.
    x509_certificate_chain: msgspec.Raw = msgspec.Raw()


class Bundle(msgspec.Struct, frozen=True, rename="camel"):
    """An envelope with its verification material."""

    media_type: str = MEDIA_TYPE
    verification_material: VerificationMaterial = VerificationMaterial()
    #: None for a signature of something other than a statement.
    dsse_envelope: Envelope | None = None

    @property
    def is_by_identity(self) -> bool:
        """True if it has a certificate."""
        material = self.verification_material
        return any(map(bytes, (material.certificate, material.x509_certificate_chain)))


def encode_bundle(envelope: Envelope, hint: str) -> bytes:
    """Encode the bundle of an envelope signed with the key of this hint."""
    material = VerificationMaterial(KeyHint(hint))
    return msgspec.json.encode(Bundle(MEDIA_TYPE, material, envelope))


def parse(data: bytes) -> Bundle:
    """Parse a bundle. Raises `ValueError`."""
    return decode_json(data, Bundle)
