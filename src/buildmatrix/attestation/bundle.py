"""Sigstore's bundle: an envelope and the key that it was signed with, in one JSON document.

Format: `sigstore_bundle.proto` of https://github.com/sigstore/protobuf-specs, in protobuf's JSON.
It is what cosign 3 attaches to an image, and what it looks for there first.
"""

from __future__ import annotations

import msgspec

from buildmatrix.attestation.envelope import Envelope

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
#: What the media types of all versions have in common.
FAMILY = "application/vnd.dev.sigstore.bundle"


class KeyHint(msgspec.Struct, frozen=True):
    """Which key was used: that of `PublicKey.hint`."""

    hint: str = ""


class VerificationMaterial(msgspec.Struct, frozen=True, rename="camel"):
    """What a signature is to be checked with; certificates and logs are not read here."""

    public_key: KeyHint = KeyHint()


class Bundle(msgspec.Struct, frozen=True, rename="camel"):
    """An envelope with what tells its key."""

    media_type: str = MEDIA_TYPE
    verification_material: VerificationMaterial = VerificationMaterial()
    #: None for the signature of something that is no statement.
    dsse_envelope: Envelope | None = None


def bundled(envelope: Envelope, hint: str) -> bytes:
    """The bundle of an envelope that the key with this hint signed."""
    material = VerificationMaterial(KeyHint(hint))
    return msgspec.json.encode(Bundle(MEDIA_TYPE, material, envelope))


def parse(data: bytes) -> Bundle:
    """A bundle. Raises `ValueError` for what is none."""
    try:
        return msgspec.json.decode(data, type=Bundle)
    except RecursionError:
        raise ValueError("it nests too deeply") from None
