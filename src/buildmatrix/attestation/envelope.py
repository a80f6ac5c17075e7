"""DSSE envelopes: a payload with its signatures (https://github.com/secure-systems-lab/dsse).

Signatures cover the payload and its type, each with its length (PAE), so that they cannot be reused
for bytes with another meaning.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from buildmatrix.attestation.keys import PrivateKey, PublicKey

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
