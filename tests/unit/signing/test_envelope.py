"""Envelopes, bundles and statements, against what cosign wrote and what securesystemslib reads."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from buildmatrix.signing import documents
from buildmatrix.signing.documents import (
    IN_TOTO,
    Envelope,
    EnvelopeSignature,
    read_private,
    read_public,
)

VECTORS = Path(__file__).parent / "vectors"
DIGEST = "sha256:" + "ab" * 32
PAYLOAD = documents.encode_statement(
    "registry.example.com/demo", DIGEST, "urn:example:1", b'{"a": 1}'
)


@pytest.mark.parametrize("name", ["cosign", "ed25519"])
def test_securesystemslib_agrees_with_a_signed_envelope(name: str) -> None:
    from securesystemslib.dsse import Envelope as OtherEnvelope
    from securesystemslib.exceptions import VerificationError
    from securesystemslib.signer import SSlibKey

    envelope = Envelope.sign(PAYLOAD, read_private(VECTORS / f"{name}.key", "secret"))
    plain = json.loads(msgspec.json.encode(envelope))
    plain["signatures"] = [{"keyid": "a", "sig": plain["signatures"][0]["sig"]}]
    other = OtherEnvelope.from_dict(plain)
    public = load_pem_public_key((VECTORS / f"{name}.pub").read_bytes())
    key = SSlibKey.from_crypto(public, keyid="a")
    assert list(other.verify([key], threshold=1)) == ["a"]
    changed = OtherEnvelope(other.payload + b" ", other.payload_type, other.signatures)
    with pytest.raises(VerificationError):
        changed.verify([key], threshold=1)


def test_an_envelope_of_cosign_is_read_and_confirmed() -> None:
    held = documents.parse_bundle((VECTORS / "bundle.json").read_bytes())
    key = read_public(VECTORS / "cosign.pub")
    assert held.dsse_envelope is not None
    assert held.dsse_envelope.find_signer([read_public(VECTORS / "ed25519.pub"), key]) is key
    assert held.verification_material.public_key.hint == key.hint
    said = documents.parse_statement(held.dsse_envelope.payload)
    assert said.predicate_type == "https://buildmatrix.dev/verdict/v1"
    assert bytes(said.predicate) == b'{"x":1}'


def test_a_bundle_has_the_form_that_cosign_gives_it() -> None:
    key = read_private(VECTORS / "cosign.key", "secret")
    ours = json.loads(documents.encode_bundle(Envelope.sign(PAYLOAD, key), key.public.hint))
    theirs = json.loads((VECTORS / "bundle.json").read_bytes())

    def shape(value: object) -> object:
        if isinstance(value, dict):
            return {name: shape(item) for name, item in value.items()}
        return [shape(item) for item in value] if isinstance(value, list) else type(value)

    assert shape(ours) == shape(theirs)
    assert ours["mediaType"] == theirs["mediaType"]


@pytest.mark.parametrize("part", ["payload", "payload_type", "sig", "none"])
def test_a_changed_envelope_has_no_signer(part: str) -> None:
    key = read_private(VECTORS / "cosign.key", "secret")
    envelope = Envelope.sign(PAYLOAD, key)
    assert envelope.find_signer([key.public]) is key.public
    sig = envelope.signatures[0].sig
    changed = {
        "payload": msgspec.structs.replace(envelope, payload=PAYLOAD + b" "),
        "payload_type": msgspec.structs.replace(envelope, payload_type=IN_TOTO + " "),
        "sig": msgspec.structs.replace(
            envelope, signatures=(EnvelopeSignature(sig[:-1] + bytes([sig[-1] ^ 1])),)
        ),
        "none": msgspec.structs.replace(envelope, signatures=()),
    }[part]
    assert changed.find_signer([key.public]) is None


def test_lengths_are_part_of_what_is_signed() -> None:
    """A type and a payload cannot be cut elsewhere: the signature is of both with their lengths."""
    key = read_private(VECTORS / "cosign.key", "secret")
    one = Envelope(b"c", "a b", (EnvelopeSignature(key.sign(b"DSSEv1 3 a b 1 c")),))
    assert one.find_signer([key.public]) is not None
    assert Envelope(b"b c", "a", one.signatures).find_signer([key.public]) is None


def test_a_second_signature_may_be_the_one() -> None:
    first = Envelope.sign(PAYLOAD, read_private(VECTORS / "openssl.pem", None))
    key = read_private(VECTORS / "cosign.key", "secret")
    both = (*first.signatures, *Envelope.sign(PAYLOAD, key).signatures)
    envelope = msgspec.structs.replace(first, signatures=both)
    assert envelope.find_signer([key.public]) is key.public


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'"' + b"\xff" * 10,
        b"[" * 100_000,
        b'{"dsseEnvelope": ' * 10_000,
        b'{"dsseEnvelope": {"payload": "!", "payloadType": "a"}}',
        b'{"dsseEnvelope": {"payload": 7, "payloadType": "a"}}',
        b'{"dsseEnvelope": {"payload": "AAAA"}}',
        b'{"dsseEnvelope": {"payload": "", "payloadType": "a", "signatures": [{"sig": null}]}}',
        b'{"verificationMaterial": {"publicKey": {"hint": {}}}}',
    ],
)
def test_hostile_bundles_are_refused_with_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        documents.parse_bundle(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b'{"_type": "https://in-toto.io/Statement/v2", "subject": [], "predicateType": "", '
        b'"predicate": {}}',
        b'{"_type": "https://in-toto.io/Statement/v1", "subject": [{"digest": {"sha256": 7}}], '
        b'"predicateType": "", "predicate": {}}',
        b'{"_type": "https://in-toto.io/Statement/v1", "subject": {}, "predicateType": "", '
        b'"predicate": {}}',
    ],
)
def test_hostile_statements_are_refused_with_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        documents.parse_statement(data)


def test_a_statement_is_about_the_digests_of_its_subjects() -> None:
    said = documents.parse_statement(PAYLOAD)
    assert said.is_about(DIGEST)
    assert not said.is_about("sha512:" + "ab" * 32)
    assert not said.is_about("sha256:" + "cd" * 32)
    assert not said.is_about("")
    assert json.loads(PAYLOAD)["_type"] == "https://in-toto.io/Statement/v1"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"subject":', b'"Subject":[],"subject":'),
        (b'"subject":', b'"subject":[],"subject":'),
        (b'"sha256":', b'"sha256":"0","sha256":'),
        (b'"digest":', b'"DIGEST":{},"digest":'),
    ],
)
def test_a_statement_that_cosign_would_read_otherwise_is_refused(old: bytes, new: bytes) -> None:
    """Go's decoder takes the last of two keys, and one in other letters for the same."""
    assert old in PAYLOAD
    with pytest.raises(ValueError, match=r"comes twice|in case only"):
        documents.parse_statement(PAYLOAD.replace(old, new, 1))


def test_a_bundle_with_two_envelopes_is_refused() -> None:
    data = (VECTORS / "bundle.json").read_bytes()
    for key in (b"dsseEnvelope", b"DsseEnvelope", b"dsseenvelope"):
        changed = data.replace(b'"dsseEnvelope"', b'"%b":null,"dsseEnvelope"' % key, 1)
        with pytest.raises(ValueError, match=r"comes twice|in case only"):
            documents.parse_bundle(changed)
