"""in-toto statements: of which artifact something is said, and what.

Format: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md. cosign still writes
those of version 0.1, which differ in the type alone; both are read.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from buildmatrix.strict_json import decode_json

TYPE = "https://in-toto.io/Statement/v1"
_TYPES = (TYPE, "https://in-toto.io/Statement/v0.1")


class ResourceDescriptor(msgspec.Struct, frozen=True):
    """An artifact, known by its digests: algorithm → hexadecimal sum."""

    digest: Mapping[str, str]
    name: str = ""


class Statement(msgspec.Struct, frozen=True, rename="camel"):
    """Something that is said of artifacts."""

    subject: tuple[ResourceDescriptor, ...]
    #: URI of what the predicate means.
    predicate_type: str
    predicate: msgspec.Raw
    type: str = msgspec.field(name="_type", default=TYPE)

    def is_about(self, digest: str) -> bool:
        """Whether it is about the content with a digest, `sha256:...`."""
        algorithm, _, value = digest.partition(":")
        return any(item.digest.get(algorithm) == value for item in self.subject)


def statement(name: str, digest: str, predicate_type: str, predicate: bytes) -> bytes:
    """A statement about the image `name` (without a tag) that has this digest."""
    algorithm, _, value = digest.partition(":")
    subject = (ResourceDescriptor({algorithm: value}, name),)
    return msgspec.json.encode(Statement(subject, predicate_type, msgspec.Raw(predicate)))


def parse(data: bytes) -> Statement:
    """A statement. Raises `ValueError` for what is none."""
    held = decode_json(data, Statement)
    if held.type not in _TYPES:
        raise ValueError(f"it is of the type {held.type[:100]!r}, which is no in-toto statement")
    return held
