"""in-toto statements: a predicate about artifacts.

Format: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md. cosign still writes
version 0.1, which differs only in its type; both are accepted.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from buildmatrix.strict_json import decode_json

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


def parse(data: bytes) -> Statement:
    """Parse a statement. Raises `ValueError`."""
    held = decode_json(data, Statement)
    if held.type not in _TYPES:
        raise ValueError(f"it has the type {held.type[:100]!r}, not that of an in-toto statement")
    return held
