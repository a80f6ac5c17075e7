"""Documents of an attestation, and the keys that sign and verify them.

Documents are in-toto statements, DSSE envelopes, and Sigstore bundles. Keys have the formats of
cosign and OpenSSL.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from buildmatrix.base.errors import UsageError
from buildmatrix.base.strict import decode_json
from buildmatrix.base.threads import prepare_type
from buildmatrix.facts.files import read_at_most

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

# Keys.
#
# Private keys are those of `cosign generate-key-pair` or `cosign import-key-pair` (PEM, encrypted
# with scrypt and NaCl's secretbox: https://github.com/secure-systems-lab/go-securesystemslib,
# `encrypted/encrypted.go`), or PKCS #8 in PEM, encrypted or not. Public keys are those of
# `cosign.pub`: PEM of a SubjectPublicKeyInfo. Kinds are P-256 with SHA-256, as cosign's own, and
# Ed25519, which signs its input without a hash (RFC 8032, 5.1).


#: Environment variable with the password of a key, as in cosign.
PASSWORD = "COSIGN_PASSWORD"  # noqa: S105

#: Bytes of a key file; those of P-256 have less than 1,000.
_MAX_FILE = 64 << 10
_PEM = re.compile(
    rb"-----BEGIN (?P<label>[A-Z0-9 ]+)-----\s*(?P<body>[A-Za-z0-9+/=\s]*)-----END (?P=label)-----"
)
_COSIGN = frozenset({"ENCRYPTED COSIGN PRIVATE KEY", "ENCRYPTED SIGSTORE PRIVATE KEY"})
_PRIVATE = frozenset({"PRIVATE KEY", "EC PRIVATE KEY", "ENCRYPTED PRIVATE KEY"})
#: Cost parameters that go-securesystemslib writes, now and earlier, and accepts.
_SCRYPT_COSTS = (1 << 15, 1 << 16)
_KINDS = "ECDSA with P-256, or Ed25519"


class _Scrypt(msgspec.Struct, frozen=True):
    cost: int = msgspec.field(name="N")
    block_size: int = msgspec.field(name="r")
    parallelism: int = msgspec.field(name="p")


class _Derivation(msgspec.Struct, frozen=True):
    name: Literal["scrypt"]
    params: _Scrypt
    salt: bytes


class _Cipher(msgspec.Struct, frozen=True):
    name: Literal["nacl/secretbox"]
    nonce: bytes


class _EncryptedKey(msgspec.Struct, frozen=True):
    """A PKCS #8 key, encrypted by cosign."""

    kdf: _Derivation
    cipher: _Cipher
    ciphertext: bytes


class PublicKey(Struct, frozen=True):
    """A key to verify signatures."""

    key: EllipticCurvePublicKey | Ed25519PublicKey
    #: base64 of the SHA-256 of its SubjectPublicKeyInfo: the key's name in Sigstore bundles.
    hint: str

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Return True if the signature of these bytes is valid."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256

        try:
            if isinstance(self.key, ec.EllipticCurvePublicKey):
                self.key.verify(signature, data, ec.ECDSA(SHA256()))
            else:
                self.key.verify(signature, data)
        except InvalidSignature:
            return False
        return True


class PrivateKey(Struct, frozen=True):
    """A key to sign with."""

    key: EllipticCurvePrivateKey | Ed25519PrivateKey
    public: PublicKey

    def sign(self, data: bytes) -> bytes:
        """Sign these bytes; ECDSA signatures are in DER."""
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256

        if isinstance(self.key, ec.EllipticCurvePrivateKey):
            return self.key.sign(data, ec.ECDSA(SHA256()))
        return self.key.sign(data)


def read_public(path: Path) -> PublicKey:
    """Read a file such as `cosign.pub`. Raises `UsageError`, and `ComponentError`."""
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    label, body = _read_pem(path)
    if label in _COSIGN | _PRIVATE:
        raise UsageError(
            f"{path} holds a private key; name the file with the public one, such as cosign.pub"
        )
    if label != "PUBLIC KEY":
        raise UsageError(f"{path} holds a {label.lower()}, not a public key in PEM")
    try:
        return _make_public_key(load_der_public_key(body), path)
    except ValueError as error:
        raise UsageError(f"{path} holds an invalid public key: {error}") from None


def read_private(path: Path, password: str | None) -> PrivateKey:
    """Read a file such as `cosign.key`; `password` is None if it was not given.

    Raises `UsageError` for an invalid key or a wrong password, and `ComponentError` if the
    libraries for it are not installed.
    """
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.serialization import (
        load_der_private_key,
        load_pem_private_key,
    )

    label, body = _read_pem(path)
    if label == "PUBLIC KEY":
        raise UsageError(
            f"{path} holds a public key; name the file with the private one, such as cosign.key"
        )
    if label.startswith("ENCRYPTED") and password is None:
        raise UsageError(f"{path} is encrypted; give its password in the variable {PASSWORD}")
    try:
        if label in _COSIGN:
            key = load_der_private_key(_decrypt_cosign_key(path, body, password or ""), None)
        elif label in _PRIVATE:
            secret = (password or "").encode() if label.startswith("ENCRYPTED") else None
            key = load_pem_private_key(path.read_bytes(), secret)
        else:
            raise UsageError(f"{path} holds a {label.lower()}, not a private key")
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path} cannot be opened: {error}; is {PASSWORD} its password?") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey):
        raise _unsupported_key_error(path)
    return PrivateKey(key, _make_public_key(key.public_key(), path))


def _make_public_key(key: object, path: Path) -> PublicKey:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    if not isinstance(key, ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey):
        raise _unsupported_key_error(path)
    if isinstance(key, ec.EllipticCurvePublicKey) and not isinstance(key.curve, ec.SECP256R1):
        raise _unsupported_key_error(path)
    data = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return PublicKey(key, base64.b64encode(hashlib.sha256(data).digest()).decode())


def _read_pem(path: Path) -> tuple[str, bytes]:
    """Return label and content of the first block in a PEM file (RFC 7468)."""
    try:
        data = read_at_most(path, _MAX_FILE)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    block = _PEM.search(data) if len(data) <= _MAX_FILE else None
    try:
        body = base64.b64decode(b"".join(block["body"].split()), validate=True) if block else b""
    except ValueError:
        block = None
    if block is None:
        raise UsageError(f"{path} is not a PEM key, as written by `cosign generate-key-pair`")
    return block["label"].decode(), body


def _decrypt_cosign_key(path: Path, data: bytes, password: str) -> bytes:
    """Decrypt a PKCS #8 key that cosign encrypted. Raises `ValueError`."""
    from nacl.exceptions import CryptoError
    from nacl.secret import SecretBox

    held = msgspec.json.decode(data, type=prepare_type(_EncryptedKey))
    cost = held.kdf.params
    if cost.cost not in _SCRYPT_COSTS or (cost.block_size, cost.parallelism) != (8, 1):
        raise ValueError("its scrypt parameters are not those of cosign")
    key = hashlib.scrypt(
        password.encode(),
        salt=held.kdf.salt,
        n=cost.cost,
        r=cost.block_size,
        p=cost.parallelism,
        maxmem=256 << 20,
        dklen=SecretBox.KEY_SIZE,
    )
    try:
        return SecretBox(key).decrypt(held.ciphertext, held.cipher.nonce)
    except CryptoError:
        raise UsageError(f"{path}: the password in {PASSWORD} is not that of the key") from None


def _unsupported_key_error(path: Path) -> UsageError:
    return UsageError(f"{path} holds an unsupported kind of key; use {_KINDS}")


# in-toto statements (https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md).
#
# cosign still writes version 0.1, which differs only in its type; both are accepted.


TYPE = "https://in-toto.io/Statement/v1"
_TYPES = (TYPE, "https://in-toto.io/Statement/v0.1")


class ResourceDescriptor(msgspec.Struct, frozen=True):
    """An artifact by its digests: algorithm → hexadecimal hash."""

    digest: Mapping[str, str]
    name: str = ""


class Statement(msgspec.Struct, frozen=True, rename="camel"):
    """A predicate about artifacts."""

    subject: tuple[ResourceDescriptor, ...]
    #: URI of the predicate's meaning.
    predicate_type: str
    predicate: msgspec.Raw
    type: str = msgspec.field(name="_type", default=TYPE)

    def is_about(self, digest: str) -> bool:
        """Return True if the content with a digest, `sha256:...`, is among the subjects."""
        algorithm, _, value = digest.partition(":")
        return any(item.digest.get(algorithm) == value for item in self.subject)


def encode_statement(name: str, digest: str, predicate_type: str, predicate: bytes) -> bytes:
    """Encode a statement about the image `name` (without a tag) with this digest."""
    algorithm, _, value = digest.partition(":")
    subject = (ResourceDescriptor({algorithm: value}, name),)
    return msgspec.json.encode(Statement(subject, predicate_type, msgspec.Raw(predicate)))


def parse_statement(data: bytes) -> Statement:
    """Parse a statement. Raises `ValueError`."""
    held = decode_json(data, Statement)
    if held.type not in _TYPES:
        raise ValueError(f"it has the type {held.type[:100]!r}, not that of an in-toto statement")
    return held


# DSSE envelopes (https://github.com/secure-systems-lab/dsse).
#
# Signatures cover the payload and its type, each with its length (PAE), so that they cannot be
# reused for bytes with another meaning.


#: Payload type of in-toto statements.
IN_TOTO = "application/vnd.in-toto+json"
#: Maximum signatures to verify per envelope.
_MAX_SIGNATURES = 16


class EnvelopeSignature(msgspec.Struct, frozen=True, omit_defaults=True):
    """One signature of an envelope."""

    sig: bytes
    #: Chosen by the signer, and not to be trusted.
    keyid: str = ""


class Envelope(msgspec.Struct, frozen=True, rename="camel"):
    """A payload with its type and signatures."""

    payload: bytes
    payload_type: str
    signatures: tuple[EnvelopeSignature, ...] = ()

    @classmethod
    def sign(cls, payload: bytes, key: PrivateKey) -> Envelope:
        """Sign an in-toto statement."""
        return cls(
            payload, IN_TOTO, (EnvelopeSignature(key.sign(_signed_bytes(IN_TOTO, payload))),)
        )

    def find_signer(self, keys: Sequence[PublicKey]) -> PublicKey | None:
        """Return the first of the keys that signed it; None if there is none."""
        data = _signed_bytes(self.payload_type, self.payload)
        for signature in self.signatures[:_MAX_SIGNATURES]:
            for key in keys:
                if key.verifies(signature.sig, data):
                    return key
        return None


def _signed_bytes(payload_type: str, payload: bytes) -> bytes:
    """Return the signed bytes, in "pre-authentication encoding"."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


# Sigstore bundles: an envelope with its verification material, as one JSON document.
#
# Format: `sigstore_bundle.proto` of https://github.com/sigstore/protobuf-specs, in protobuf's JSON.
# cosign 3 attaches bundles to images, and looks for them first.


MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
#: Common prefix of the media types of all versions.
MEDIA_TYPE_PREFIX = "application/vnd.dev.sigstore.bundle"
#: Annotation of a bundle's manifest: the type of its predicate.
PREDICATE_TYPE = "dev.sigstore.bundle.predicateType"
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


def parse_bundle(data: bytes) -> Bundle:
    """Parse a bundle. Raises `ValueError`."""
    return decode_json(data, Bundle)


# The format of cosign 2: an envelope without a bundle, and annotations.


class _Certificate(msgspec.Struct, frozen=True, rename="camel"):
    """A certificate in DER."""

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
    #: None in logs of Rekor 2.
    inclusion_promise: _InclusionPromise | None = None


class _LoggedMaterial(msgspec.Struct, frozen=True, rename="camel"):
    certificate: _Certificate | None = None
    tlog_entries: tuple[_LogEntry, ...] = ()


class _LoggedBundle(msgspec.Struct, frozen=True, rename="camel"):
    dsse_envelope: msgspec.Raw
    verification_material: _LoggedMaterial = _LoggedMaterial()


def convert_for_cosign2(data: bytes) -> tuple[bytes, Mapping[str, str]] | None:
    """Convert a bundle to an envelope and its annotations; None if cosign 2 cannot express it.

    Its log entry then has no promise of inclusion, or one for other bytes. Raises `ValueError` for
    an invalid bundle.
    """
    held = decode_json(data, _LoggedBundle, has_numbers_as_text=True)
    envelope = bytes(held.dsse_envelope)
    material = held.verification_material
    if material.certificate is None:
        return envelope, {}
    for entry in material.tlog_entries[:1]:
        if entry.inclusion_promise is not None and _is_entry_of(entry, envelope):
            certificate = ssl.DER_cert_to_PEM_cert(material.certificate.raw_bytes)
            return envelope, {
                "dev.sigstore.cosign/certificate": certificate,
                "dev.sigstore.cosign/bundle": _encode_promise(entry, entry.inclusion_promise),
            }
    return None


def _encode_promise(entry: _LogEntry, promise: _InclusionPromise) -> str:
    """Return a `RekorBundle` of cosign's `pkg/cosign/bundle/rekor.go`."""
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


def _is_entry_of(entry: _LogEntry, envelope: bytes) -> bool:
    """Return True if an entry logs exactly these bytes, as cosign 2 requires."""
    try:
        logged = decode_json(entry.canonicalized_body, _LogBody).spec.envelope_hash
    except ValueError:
        return False
    return logged == _Hash(hashlib.sha256(envelope).hexdigest(), "sha256")
