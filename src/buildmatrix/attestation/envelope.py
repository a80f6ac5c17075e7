"""DSSE envelopes: a payload with signatures of it (https://github.com/secure-systems-lab/dsse).

What is signed is not the payload alone but its type with it, each with its length (PAE), so that
no signature can be carried over to bytes that mean something else.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from buildmatrix.attestation.keys import PrivateKey, PublicKey

#: What the payload is: an in-toto statement.
IN_TOTO = "application/vnd.in-toto+json"
#: Signatures of one envelope that are looked at.
_MOST_SIGNATURES = 16


class EnvelopeSignature(msgspec.Struct, frozen=True, omit_defaults=True):
    """One signature of an envelope."""

    sig: bytes
    #: Whatever the signer wrote: no reason to trust a key.
    keyid: str = ""


class Envelope(msgspec.Struct, frozen=True, rename="camel"):
    """A payload, what it is, and who signed both."""

    payload: bytes
    payload_type: str
    signatures: tuple[EnvelopeSignature, ...] = ()

    @classmethod
    def signed(cls, payload: bytes, key: PrivateKey) -> Envelope:
        """An in-toto statement, signed."""
        return cls(payload, IN_TOTO, (EnvelopeSignature(key.sign(_encoded(IN_TOTO, payload))),))

    def signer(self, keys: Sequence[PublicKey]) -> PublicKey | None:
        """The first of the keys that signed it; None where none did."""
        data = _encoded(self.payload_type, self.payload)
        for signature in self.signatures[:_MOST_SIGNATURES]:
            for key in keys:
                if key.signed(signature.sig, data):
                    return key
        return None


def _encoded(payload_type: str, payload: bytes) -> bytes:
    """The "pre-authentication encoding": what is signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
