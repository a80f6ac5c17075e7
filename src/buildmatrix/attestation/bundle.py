"""Sigstore's bundle: an envelope and what its signature is checked with, in one JSON document.

Format: `sigstore_bundle.proto` of https://github.com/sigstore/protobuf-specs, in protobuf's JSON.
It is what cosign 3 attaches to an image, and what it looks for there first.
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from buildmatrix.attestation.envelope import Envelope
from buildmatrix.strict_json import decode_json

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
#: What the media types of all versions have in common.
FAMILY = "application/vnd.dev.sigstore.bundle"
#: Annotation of the manifest that holds a bundle: what its statement says, by its type.
PREDICATE_TYPE = "dev.sigstore.bundle.predicateType"
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


# What cosign 2 keeps: the envelope by itself, and the rest in annotations.


class _Certificate(msgspec.Struct, frozen=True, rename="camel"):
    """In DER."""

    raw_bytes: bytes


class _LogId(msgspec.Struct, frozen=True, rename="camel"):
    key_id: bytes


class _InclusionPromise(msgspec.Struct, frozen=True, rename="camel"):
    signed_entry_timestamp: bytes


class _LogEntry(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of Rekor; numbers are text in protobuf's JSON."""

    log_index: int
    log_id: _LogId
    canonicalized_body: bytes
    integrated_time: int = 0
    #: None in logs of Rekor's second version.
    inclusion_promise: _InclusionPromise | None = None


class _LoggedMaterial(msgspec.Struct, frozen=True, rename="camel"):
    certificate: _Certificate | None = None
    tlog_entries: tuple[_LogEntry, ...] = ()


class _LooseBundle(msgspec.Struct, frozen=True, rename="camel"):
    dsse_envelope: msgspec.Raw
    verification_material: _LoggedMaterial = _LoggedMaterial()


@dataclass(frozen=True, slots=True)
class LooseEnvelope:
    """What cosign 2 keeps of a bundle."""

    #: JSON; of a logged one the very bytes that were logged.
    envelope: bytes
    annotations: Mapping[str, str] = field(default_factory=dict)


def loose(data: bytes) -> LooseEnvelope | None:
    """What cosign 2 keeps of a bundle; None for a bundle that it has no form for.

    That is one whose log entry has no promise of inclusion, or of another text of the envelope.
    Raises `ValueError` for what is no bundle of an envelope.
    """
    held = decode_json(data, _LooseBundle, has_numbers_as_text=True)
    envelope = bytes(held.dsse_envelope)
    material = held.verification_material
    if material.certificate is None:
        return LooseEnvelope(envelope)
    for entry in material.tlog_entries[:1]:
        if entry.inclusion_promise is not None and _is_of(entry, envelope):
            certificate = ssl.DER_cert_to_PEM_cert(material.certificate.raw_bytes)
            return LooseEnvelope(
                envelope,
                {
                    "dev.sigstore.cosign/certificate": certificate,
                    "dev.sigstore.cosign/bundle": _promise(entry, entry.inclusion_promise),
                },
            )
    return None


def _promise(entry: _LogEntry, promise: _InclusionPromise) -> str:
    """`RekorBundle` of cosign's `pkg/cosign/bundle/rekor.go`."""
    payload = {
        "body": base64.b64encode(entry.canonicalized_body).decode(),
        "integratedTime": entry.integrated_time,
        "logIndex": entry.log_index,
        "logID": entry.log_id.key_id.hex(),
    }
    signed = base64.b64encode(promise.signed_entry_timestamp).decode()
    return json.dumps({"SignedEntryTimestamp": signed, "Payload": payload})


class _Hash(msgspec.Struct, frozen=True):
    value: str
    algorithm: str = ""


class _LoggedEnvelope(msgspec.Struct, frozen=True, rename="camel"):
    envelope_hash: _Hash


class _LogBody(msgspec.Struct, frozen=True):
    spec: _LoggedEnvelope


def _is_of(entry: _LogEntry, envelope: bytes) -> bool:
    """Whether an entry is about this very text of an envelope, as cosign 2 wants it."""
    try:
        logged = decode_json(entry.canonicalized_body, _LogBody).spec.envelope_hash
    except ValueError:
        return False
    return logged == _Hash(hashlib.sha256(envelope).hexdigest(), "sha256")
