"""Keys, against files that cosign 3.1.1 and OpenSSL 3.0 wrote (the password is `secret`)."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from buildmatrix import signing as attestation
from buildmatrix.base.errors import UsageError
from buildmatrix.signing.documents import read_private, read_public

ATTESTATION = Path(attestation.__file__).parent
VECTORS = Path(__file__).parent / "vectors"
PAIRS = [
    ("cosign.key", "cosign.pub"),
    ("cosign-older.key", "cosign.pub"),
    ("ed25519.key", "ed25519.pub"),
    ("openssl.pem", "openssl.pub"),
    ("openssl-sec1.pem", "openssl.pub"),
    ("openssl-encrypted.pem", "openssl.pub"),
]


@pytest.mark.parametrize(("private", "public"), PAIRS)
def test_what_a_private_key_signs_its_public_key_confirms(private: str, public: str) -> None:
    signing, checking = (
        read_private(VECTORS / private, "secret"),
        read_public(VECTORS / public),
    )
    signature = signing.sign(b"bytes")
    assert checking.verifies(signature, b"bytes")
    assert not checking.verifies(signature, b"other bytes")
    assert not checking.verifies(b"no signature", b"bytes")
    assert signing.public.hint == checking.hint


def test_the_hint_is_the_one_that_cosign_writes() -> None:
    bundle = json.loads((VECTORS / "bundle.json").read_bytes())
    hint = bundle["verificationMaterial"]["publicKey"]["hint"]
    assert read_public(VECTORS / "cosign.pub").hint == hint


def test_what_another_key_signed_is_not_confirmed() -> None:
    signature = read_private(VECTORS / "openssl.pem", None).sign(b"bytes")
    assert not read_public(VECTORS / "cosign.pub").verifies(signature, b"bytes")
    assert not read_public(VECTORS / "ed25519.pub").verifies(signature, b"bytes")


@pytest.mark.parametrize("name", ["cosign.key", "ed25519.key", "openssl-encrypted.pem"])
def test_a_password_is_asked_for_by_the_name_of_its_variable(name: str) -> None:
    with pytest.raises(UsageError, match=r"is encrypted; give its password in .*COSIGN_PASSWORD"):
        read_private(VECTORS / name, None)
    with pytest.raises(UsageError, match="COSIGN_PASSWORD"):
        read_private(VECTORS / name, "wrong")


def test_a_key_of_the_wrong_half_is_named() -> None:
    with pytest.raises(UsageError, match="holds a public key; name the file with the private one"):
        read_private(VECTORS / "cosign.pub", "secret")
    with pytest.raises(UsageError, match="holds a private key; name the file with the public one"):
        read_public(VECTORS / "cosign.key")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no key",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        "-----BEGIN PUBLIC KEY-----\nAAA\n-----END PUBLIC KEY-----\n",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "-----BEGIN PUBLIC KEY-----\n" + "A" * 70_000 + "\n-----END PUBLIC KEY-----\n",
    ],
)
def test_what_is_no_key_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "cosign.pub"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"cosign\.pub"):
        read_public(path)
    with pytest.raises(UsageError, match=r"cosign\.pub"):
        read_private(path, "secret")


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_public(tmp_path / "none.pub")


@pytest.mark.parametrize("kind", ["rsa", "p384"])
def test_keys_of_other_kinds_are_refused(kind: str, tmp_path: Path) -> None:
    key = (
        rsa.generate_private_key(65537, 2048)
        if kind == "rsa"
        else ec.generate_private_key(ec.SECP384R1())
    )
    private, public = tmp_path / "a.key", tmp_path / "a.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    with pytest.raises(UsageError, match="an unsupported kind of key"):
        read_private(private, None)
    with pytest.raises(UsageError, match="an unsupported kind of key"):
        read_public(public)


@pytest.mark.parametrize(
    "change",
    [
        {"kdf": {"name": "scrypt", "params": {"N": 1 << 30, "r": 8, "p": 1}, "salt": "AAAA"}},
        {"kdf": {"name": "scrypt", "params": {"N": 65536, "r": 1 << 20, "p": 1}, "salt": "AAAA"}},
        {"kdf": {"name": "argon2", "params": {"N": 65536, "r": 8, "p": 1}, "salt": "AAAA"}},
        {"cipher": {"name": "none", "nonce": "AAAA"}},
        {"cipher": {"name": "nacl/secretbox", "nonce": "AAAA"}},
        {"ciphertext": "AAAA"},
    ],
)
def test_an_encrypted_key_cannot_make_the_reader_work_for_long(
    change: dict[str, object], tmp_path: Path
) -> None:
    body = "".join((VECTORS / "cosign.key").read_text().splitlines()[1:-1])
    held = json.loads(base64.b64decode(body)) | change
    text = base64.b64encode(json.dumps(held).encode()).decode()
    label = "ENCRYPTED SIGSTORE PRIVATE KEY"
    path = tmp_path / "cosign.key"
    path.write_text(f"-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
    with pytest.raises(UsageError, match=r"cosign\.key"):
        read_private(path, "secret")


def test_the_package_is_imported_without_the_libraries() -> None:
    modules = [f"buildmatrix.signing.{path.stem}" for path in ATTESTATION.glob("[a-z]*.py")]
    asked = "print('nacl' in sys.modules, 'cryptography' in sys.modules)"
    script = f"import sys, {', '.join(modules)}; {asked}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False False\n", done
