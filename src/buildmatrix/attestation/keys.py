"""Keys that attestations are signed and checked with, in the formats of cosign and OpenSSL.

A private key is what `cosign generate-key-pair` or `cosign import-key-pair` writes (PEM, the key
encrypted with scrypt and NaCl's secretbox:
https://github.com/secure-systems-lab/go-securesystemslib, `encrypted/encrypted.go`), or PKCS #8 in
PEM, encrypted or not. A public key is `cosign.pub`: PEM of its SubjectPublicKeyInfo. Curves are
those of cosign's own keys, P-256 with SHA-256, and Ed25519, which signs what it is given and no
hash of it (RFC 8032, 5.1).
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from buildmatrix.errors import UsageError
from buildmatrix.files import read_at_most
from buildmatrix.threads import prepare_type

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

#: The environment variable that cosign takes a key's password from, too.
PASSWORD = "COSIGN_PASSWORD"  # noqa: S105

#: Bytes of a key file; those of P-256 have less than 1,000.
_LARGEST_FILE = 64 << 10
_PEM = re.compile(
    rb"-----BEGIN (?P<label>[A-Z0-9 ]+)-----\s*(?P<body>[A-Za-z0-9+/=\s]*)-----END (?P=label)-----"
)
_COSIGN = frozenset({"ENCRYPTED COSIGN PRIVATE KEY", "ENCRYPTED SIGSTORE PRIVATE KEY"})
_PRIVATE = frozenset({"PRIVATE KEY", "EC PRIVATE KEY", "ENCRYPTED PRIVATE KEY"})
#: The cost that go-securesystemslib writes, today and before; it reads no other.
_SCRYPT_COSTS = (1 << 15, 1 << 16)
_KINDS = "ECDSA with the curve P-256, and Ed25519"


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
    """A PKCS #8 key as cosign encrypts it."""

    kdf: _Derivation
    cipher: _Cipher
    ciphertext: bytes


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that signatures are checked with."""

    key: EllipticCurvePublicKey | Ed25519PublicKey
    #: base64 of the SHA-256 of its SubjectPublicKeyInfo: what Sigstore's bundles name a key by.
    hint: str

    def signed(self, signature: bytes, data: bytes) -> bool:
        """Whether its owner made this signature of these bytes."""
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


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A key that signs."""

    key: EllipticCurvePrivateKey | Ed25519PrivateKey
    public: PublicKey

    def sign(self, data: bytes) -> bytes:
        """A signature of these bytes; that of ECDSA in DER."""
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256

        if isinstance(self.key, ec.EllipticCurvePrivateKey):
            return self.key.sign(data, ec.ECDSA(SHA256()))
        return self.key.sign(data)


def read_public(path: Path) -> PublicKey:
    """The key of a file such as `cosign.pub`. Raises `UsageError`, and `ComponentError`."""
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    label, body = _pem(path)
    if label in _COSIGN | _PRIVATE:
        raise UsageError(
            f"{path} holds a private key; name the file with the public one, such as cosign.pub"
        )
    if label != "PUBLIC KEY":
        raise UsageError(f"{path} holds a {label.lower()}; what is needed is a public key in PEM")
    try:
        return _public(load_der_public_key(body), path)
    except ValueError as error:
        raise UsageError(f"{path} holds no public key: {error}") from None


def read_private(path: Path, password: str | None) -> PrivateKey:
    """The key of a file such as `cosign.key`; `password` is None where nobody gave one.

    Raises `UsageError` for what is no such key or has another password, and `ComponentError` where
    the libraries for it are not installed.
    """
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.serialization import (
        load_der_private_key,
        load_pem_private_key,
    )

    label, body = _pem(path)
    if label == "PUBLIC KEY":
        raise UsageError(
            f"{path} holds a public key; name the file with the private one, such as cosign.key"
        )
    if label.startswith("ENCRYPTED") and password is None:
        raise UsageError(f"{path} is encrypted; give its password in the variable {PASSWORD}")
    try:
        if label in _COSIGN:
            key = load_der_private_key(_decrypted(path, body, password or ""), None)
        elif label in _PRIVATE:
            secret = (password or "").encode() if label.startswith("ENCRYPTED") else None
            key = load_pem_private_key(path.read_bytes(), secret)
        else:
            raise UsageError(f"{path} holds a {label.lower()}; what is needed is a private key")
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path} cannot be opened: {error}; is {PASSWORD} its password?") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey):
        raise _unfit(path)
    return PrivateKey(key, _public(key.public_key(), path))


def _public(key: object, path: Path) -> PublicKey:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    if not isinstance(key, ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey):
        raise _unfit(path)
    if isinstance(key, ec.EllipticCurvePublicKey) and not isinstance(key.curve, ec.SECP256R1):
        raise _unfit(path)
    data = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return PublicKey(key, base64.b64encode(hashlib.sha256(data).digest()).decode())


def _pem(path: Path) -> tuple[str, bytes]:
    """Label and bytes of the first block in a PEM file (RFC 7468)."""
    try:
        data = read_at_most(path, _LARGEST_FILE)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    block = _PEM.search(data) if len(data) <= _LARGEST_FILE else None
    try:
        body = base64.b64decode(b"".join(block["body"].split()), validate=True) if block else b""
    except ValueError:
        block = None
    if block is None:
        raise UsageError(f"{path} is no key in PEM, as `cosign generate-key-pair` writes it")
    return block["label"].decode(), body


def _decrypted(path: Path, data: bytes, password: str) -> bytes:
    """The PKCS #8 key in what cosign encrypted. Raises `ValueError`."""
    from nacl.exceptions import CryptoError
    from nacl.secret import SecretBox

    held = msgspec.json.decode(data, type=prepare_type(_EncryptedKey))
    cost = held.kdf.params
    if cost.cost not in _SCRYPT_COSTS or (cost.block_size, cost.parallelism) != (8, 1):
        raise ValueError("its scrypt parameters are none of those that cosign writes")
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


def _unfit(path: Path) -> UsageError:
    return UsageError(f"{path} holds a key of another kind; what can be used is {_KINDS}")
