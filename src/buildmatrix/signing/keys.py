"""Keys to sign and verify attestations, in the formats of cosign and OpenSSL.

Private keys are those of `cosign generate-key-pair` or `cosign import-key-pair` (PEM, encrypted
with scrypt and NaCl's secretbox: https://github.com/secure-systems-lab/go-securesystemslib,
`encrypted/encrypted.go`), or PKCS #8 in PEM, encrypted or not. Public keys are those of
`cosign.pub`: PEM of a SubjectPublicKeyInfo. Kinds are P-256 with SHA-256, as cosign's own, and
Ed25519, which signs its input without a hash (RFC 8032, 5.1).
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from buildmatrix.base.errors import UsageError
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
