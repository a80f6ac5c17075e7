"""Sigstore's bundle: an envelope and what its signature is checked with, in one JSON document.

Format: `sigstore_bundle.proto` of https://github.com/sigstore/protobuf-specs, in protobuf's JSON.
It is what cosign 3 attaches to an image, and what it looks for there first.
"""

from __future__ import annotations

import msgspec

from buildmatrix.attestation.envelope import Envelope
from buildmatrix.strict_json import decode_json

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
#: What the media types of all versions have in common.
FAMILY = "application/vnd.dev.sigstore.bundle"
#: Annotation of the manifest that holds a bundle: what its statement says, by its type.
PREDICATE_TYPE = "dev.sigstore.bundle.predicateType"
#: Annotation: when something was attached, in UTC: `2026-11-22T15:04:26Z`.
CREATED = "org.opencontainers.image.created"
#: Bytes of a bundle that are read. A bill of materials of an image with a thousand distributions
#: has half a megabyte.
LARGEST = 16 << 20


class KeyHint(msgspec.Struct, frozen=True):
    """Which key was used: that of `PublicKey.hint`."""

    hint: str = ""


class VerificationMaterial(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a signature is to be checked with; logs are not read here."""

    public_key: KeyHint = KeyHint()
    #: Of an identity, in place of a key; what is in it is not read here either.
    certificate: msgspec.Raw = msgspec.Raw()
    #: The same in bundles before version 0.3.
    x509_certificate_chain: msgspec.Raw = msgspec.Raw()


class Bundle(msgspec.Struct, frozen=True, rename="camel"):
    """An envelope with what tells its key."""

    media_type: str = MEDIA_TYPE
    verification_material: VerificationMaterial = VerificationMaterial()
    #: None for the signature of something that is no statement.
    dsse_envelope: Envelope | None = None

    @property
    def is_by_identity(self) -> bool:
        """Whether it has a certificate."""
        material = self.verification_material
        return any(map(bytes, (material.certificate, material.x509_certificate_chain)))


def bundled(envelope: Envelope, hint: str) -> bytes:
    """The bundle of an envelope that the key with this hint signed."""
    material = VerificationMaterial(KeyHint(hint))
    return msgspec.json.encode(Bundle(MEDIA_TYPE, material, envelope))


def parse(data: bytes) -> Bundle:
    """A bundle. Raises `ValueError` for what is none."""
    return decode_json(data, Bundle)
