"""A stand-in for Sigstore's services on loopback: Fulcio, Rekor, and the tokens of a CI system.

    with SigstoreServices() as services:
        services.in_github(monkeypatch)
        services.trust_root(folder / "trust.json")

Its authority, its log of certificates and its transparency log have keys of their own, made anew,
and what it writes has the form that the public services write (bundles and certificates of
2026 were looked at). It believes whatever a token says: who signs is the test's to say.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier
from loopback import LoopbackServer, Request, Response

from buildmatrix.base.data import replace

GITHUB = "https://token.actions.githubusercontent.com"
WORKFLOW = "https://github.com/acme/inferno/.github/workflows/release.yml@refs/tags/1.4.0"
_SCTS = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_ALGORITHM = "PKIX_ECDSA_P256_SHA_256"


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _spki(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _signed(key: ec.EllipticCurvePrivateKey, data: bytes) -> bytes:
    return key.sign(data, ec.ECDSA(hashes.SHA256()))


def _canonical(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()


def token(issuer: str, audience: str = "sigstore", seconds: int = 600, **claims: str) -> str:
    """An identity token; nobody checks its signature but the services, and these do not."""
    now = int(datetime.now(UTC).timestamp())
    held = {"iss": issuer, "aud": audience, "iat": now, "exp": now + seconds, "sub": "a", **claims}
    parts = [{"alg": "RS256", "typ": "JWT"}, held]
    texts = [base64.urlsafe_b64encode(_canonical(part)).decode().rstrip("=") for part in parts]
    return ".".join([*texts, "c2lnbmF0dXJl"])


class SigstoreServices(LoopbackServer):
    """The services; starts with `with`.

    `life`: how long a certificate is good. `late`: how long the log takes to write an entry.
    `ago`: how long their clocks are behind.
    """

    def __init__(
        self,
        life: timedelta = timedelta(minutes=10),
        late: timedelta = timedelta(),
        ago: timedelta = timedelta(),
    ) -> None:
        super().__init__()
        self.life, self.late, self.ago = life, late, ago
        self._keys = {
            name: ec.generate_private_key(ec.SECP256R1())
            for name in ("root", "issuer", "certificates", "log")
        }
        self.root = self._authority("root", "root")
        self.issuer = self._authority("issuer", "root")
        #: What the log holds.
        self.leaves: list[bytes] = []

    # For tests

    def in_github(self, monkeypatch: pytest.MonkeyPatch, **claims: str) -> None:
        """This process is a job of GitHub Actions, which has the right to an identity."""
        self.github_claims = {"job_workflow_ref": WORKFLOW.removeprefix("https://github.com/")}
        self.github_claims |= claims
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
        monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "request-secret")
        monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", f"{self.origin}/token?api=1")

    def trust_root(self, path: Path) -> Path:
        """Write the trust configuration of a client: addresses, and whom to trust."""
        document = {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": self._trusted_root(),
            "signingConfig": {
                "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
                "caUrls": [self._service()],
                "rekorTlogUrls": [self._service()],
                "rekorTlogConfig": {"selector": "ANY"},
                "tsaConfig": {"selector": "ANY"},
            },
        }
        path.write_text(json.dumps(document))
        return path

    def trusted_root(self, path: Path) -> Path:
        """Write whom to trust alone, as `cosign --trusted-root` takes it."""
        path.write_text(json.dumps(self._trusted_root()))
        return path

    def _service(self) -> dict[str, Any]:
        return {
            "url": self.origin,
            "majorApiVersion": 1,
            "validFor": {"start": "2022-01-01T00:00:00Z"},
            "operator": "loopback",
        }

    def _trusted_root(self) -> dict[str, Any]:
        chain = [self.issuer, self.root]
        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [self._log("log")],
            "certificateAuthorities": [
                {
                    "subject": {"organization": "loopback", "commonName": "loopback"},
                    "uri": self.origin,
                    "certChain": {
                        "certificates": [
                            {"rawBytes": _b64(item.public_bytes(serialization.Encoding.DER))}
                            for item in chain
                        ]
                    },
                    "validFor": {"start": "2022-01-01T00:00:00Z"},
                }
            ],
            "ctlogs": [self._log("certificates")],
            "timestampAuthorities": [],
        }

    def _log(self, name: str) -> dict[str, Any]:
        spki = _spki(self._keys[name])
        return {
            "baseUrl": self.origin,
            "hashAlgorithm": "SHA2_256",
            "publicKey": {
                "rawBytes": _b64(spki),
                "keyDetails": _ALGORITHM,
                "validFor": {"start": "2022-01-01T00:00:00Z"},
            },
            "logId": {"keyId": _b64(hashlib.sha256(spki).digest())},
        }

    # Answers

    def _serve(self, request: Request) -> Response:
        path = request.path.partition("?")[0]
        if path == "/token":
            if request.headers.get("authorization") != "bearer request-secret":
                return Response(403)
            audience = request.path.rpartition("audience=")[2]
            return _json({"value": token(GITHUB, audience, **self.github_claims)})
        document = json.loads(request.read(16 << 20))
        if path == "/api/v2/signingCert":
            claims = request.headers["authorization"].split(".")[1]
            held = json.loads(base64.urlsafe_b64decode(claims + "=="))
            chain = [self._certificate(_asked(document), held), self.issuer, self.root]
            texts = [item.public_bytes(serialization.Encoding.PEM).decode() for item in chain]
            return _json({"signedCertificateEmbeddedSct": {"chain": {"certificates": texts}}})
        if path == "/api/v1/log/entries":
            entry = self._entry(document["spec"]["proposedContent"])
            (name,) = entry
            location = f"{path}/{name}"
            return replace(_json(entry), status=201).having(etag=name, location=location)
        return Response(404)

    # Fulcio

    def _authority(self, name: str, issuer: str) -> x509.Certificate:
        def named(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"loopback {text}")])

        key, signer = self._keys[name], self._keys[issuer]
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named(issuer))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=365))
            .not_valid_after(now + timedelta(days=365))
            .add_extension(x509.BasicConstraints(True, int(name == "root")), critical=True)
            .add_extension(_usage(sign=False), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
        )
        if name != "root":
            usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING])
            builder = builder.add_extension(usage, critical=False)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        return builder.add_extension(identifier, critical=False).sign(signer, hashes.SHA256())

    def _certificate(
        self, key: ec.EllipticCurvePublicKey, claims: dict[str, str]
    ) -> x509.Certificate:
        now = datetime.now(UTC) - self.ago
        issuer = claims["iss"]
        if "job_workflow_ref" in claims:
            name: x509.GeneralName = x509.UniformResourceIdentifier(
                f"https://github.com/{claims['job_workflow_ref']}"
            )
        else:
            name = x509.RFC822Name(claims["sub"])
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(
            self._keys["issuer"].public_key()
        )
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.issuer.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(seconds=5))
            .not_valid_after(now + self.life)
            .add_extension(_usage(sign=True), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(identifier, critical=False)
            .add_extension(x509.SubjectAlternativeName([name]), critical=True)
            .add_extension(_text("1.3.6.1.4.1.57264.1.1", issuer.encode()), critical=False)
            .add_extension(
                _text("1.3.6.1.4.1.57264.1.8", b"\x0c" + bytes([len(issuer)]) + issuer.encode()),
                critical=False,
            )
        )
        milliseconds = int(now.timestamp() * 1000)

        def with_timestamp(signature: bytes) -> x509.Certificate:
            """RFC 6962, 3.3: a list of one, in an OCTET STRING."""
            log = hashlib.sha256(_spki(self._keys["certificates"])).digest()
            held = b"\0" + log + struct.pack("!QH", milliseconds, 0) + b"\4\3"
            held += struct.pack("!H", len(signature)) + signature
            listed = struct.pack("!HH", len(held) + 2, len(held)) + held
            # One byte says how long it is.
            assert len(listed) < 128
            value = b"\x04" + bytes([len(listed)]) + listed
            return builder.add_extension(
                x509.UnrecognizedExtension(_SCTS, value), critical=False
            ).sign(self._keys["issuer"], hashes.SHA256())

        # What the log signs is the certificate without its signature.
        body = with_timestamp(b"\0" * 70).tbs_precertificate_bytes
        key_hash = hashlib.sha256(_spki(self._keys["issuer"])).digest()
        entry = key_hash + len(body).to_bytes(3, "big") + body
        data = struct.pack("!BBQH", 0, 0, milliseconds, 1) + entry + struct.pack("!H", 0)
        return with_timestamp(_signed(self._keys["certificates"], data))

    # Rekor

    def _entry(self, proposed: dict[str, Any]) -> dict[str, Any]:
        envelope = json.loads(proposed["envelope"])
        body = {
            "apiVersion": "0.0.1",
            "kind": "dsse",
            "spec": {
                "envelopeHash": _sum(proposed["envelope"].encode()),
                "payloadHash": _sum(base64.b64decode(envelope["payload"])),
                "signatures": [
                    {"signature": envelope["signatures"][0]["sig"], "verifier": verifier}
                    for verifier in proposed["verifiers"]
                ],
            },
        }
        leaf = _canonical(body)
        with self._lock:
            self.leaves.append(leaf)
            leaves = list(self.leaves)
        index, log_id = len(leaves) - 1, hashlib.sha256(_spki(self._keys["log"])).digest()
        entry: dict[str, Any] = {
            "body": _b64(leaf),
            "integratedTime": int((datetime.now(UTC) - self.ago + self.late).timestamp()),
            "logID": log_id.hex(),
            "logIndex": index,
        }
        root = _root(leaves)
        note = f"loopback - 1\n{len(leaves)}\n{_b64(root)}\n"
        signature = log_id[:4] + _signed(self._keys["log"], note.encode())
        entry["verification"] = {
            "signedEntryTimestamp": _b64(_signed(self._keys["log"], _canonical(entry))),
            "inclusionProof": {
                "logIndex": index,
                "treeSize": len(leaves),
                "rootHash": root.hex(),
                "hashes": [item.hex() for item in _path(index, leaves)],
                "checkpoint": f"{note}\n\u2014 loopback {_b64(signature)}\n",
            },
        }
        return {hashlib.sha256(leaf).hexdigest(): entry}


def _asked(document: dict[str, Any]) -> ec.EllipticCurvePublicKey:
    """The key to be certified: as Python's client asks, or as cosign does."""
    if "certificateSigningRequest" in document:
        request = base64.b64decode(document["certificateSigningRequest"])
        key = x509.load_pem_x509_csr(request).public_key()
    else:
        text = document["publicKeyRequest"]["publicKey"]["content"]
        key = serialization.load_pem_public_key(text.encode())
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return key


def _json(document: object) -> Response:
    return Response(200, json.dumps(document).encode(), {"content-type": "application/json"})


def _sum(data: bytes) -> dict[str, str]:
    return {"algorithm": "sha256", "value": hashlib.sha256(data).hexdigest()}


def _text(oid: str, value: bytes) -> x509.UnrecognizedExtension:
    return x509.UnrecognizedExtension(ObjectIdentifier(oid), value)


def _usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=sign,
        key_cert_sign=not sign,
        crl_sign=not sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


# Merkle trees of RFC 6962, 2.1


def _split(count: int) -> int:
    return 1 << (count - 1).bit_length() - 1


def _root(leaves: Sequence[bytes]) -> bytes:
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    at = _split(len(leaves))
    return hashlib.sha256(b"\1" + _root(leaves[:at]) + _root(leaves[at:])).digest()


def _path(index: int, leaves: Sequence[bytes]) -> list[bytes]:
    if len(leaves) == 1:
        return []
    at = _split(len(leaves))
    if index < at:
        return [*_path(index, leaves[:at]), _root(leaves[at:])]
    return [*_path(index - at, leaves[at:]), _root(leaves[:at])]
