"""Envelopes attached to an image in its registry; none of them is trusted yet.

Number and bytes are limited, whatever the registry returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from buildmatrix.attestation import bundle
from buildmatrix.attestation.bundle import MAX_BYTES, PREDICATE_TYPE
from buildmatrix.attestation.envelope import IN_TOTO, Envelope
from buildmatrix.attestation.tagged import (
    CREATED,
    ENVELOPE,
    LAYER_PREDICATE_TYPE,
    attestation_tag,
    is_missing,
    list_tagged_layers,
)
from buildmatrix.errors import UndecidedError
from buildmatrix.http.failures import RequestError
from buildmatrix.oci.documents import EMPTY, Descriptor, manifest_of
from buildmatrix.registry.client import Registry
from buildmatrix.registry.reference import Reference
from buildmatrix.strict_json import decode_json

#: Maximum manifests, envelopes per manifest, and total bytes.
_MAX_MANIFESTS = 64
_MAX_LAYERS = 64
_MAX_TOTAL_BYTES = 64 << 20
#: Types of referrers that may contain an envelope. For a registry without a referrers API, the list
#: may have the type of the (empty) configuration instead.
_TYPES = ("", EMPTY, IN_TOTO, ENVELOPE)


@dataclass(frozen=True, slots=True)
class AttachedEnvelope:
    """An envelope attached to an image, or the reason why it is unusable."""

    #: Digest of its manifest, or its tag.
    place: str
    envelope: Envelope | None = None
    #: `PublicKey.hint` of the key in its bundle; empty if unknown.
    hint: str = ""
    #: The whole bundle, if it was signed by an identity instead of a key.
    certified: bytes = b""
    #: `gone`: listed, but missing in the registry. `unreadable`: invalid, or above a limit.
    trouble: Literal["", "gone", "unreadable"] = ""
    #: One sentence about the trouble.
    why: str = ""


class AttestationReader:
    """Reader of what is attached to `image`, which has a digest, for one type of predicate.

    Raises `UndecidedError` if the registry cannot be reached.
    """

    def __init__(self, registry: Registry, image: Reference, predicate_type: str) -> None:
        self._registry = registry
        self._image = image
        self._type = predicate_type
        self._left = _MAX_TOTAL_BYTES

    def referrers(self) -> Iterator[AttachedEnvelope]:
        """Yield envelopes in manifests that refer to the image, except those of another type.

        The latest come first, by their annotations: an image may be attested every day, and the
        number is limited.
        """
        listed = [
            item
            for item in self._registry.referrers(self._image, self._image.digest)
            if item.annotations.get(PREDICATE_TYPE, self._type) == self._type
            and (
                item.artifact_type in _TYPES
                or item.artifact_type.startswith(bundle.MEDIA_TYPE_PREFIX)
            )
        ]
        listed.sort(key=lambda item: item.annotations.get(CREATED, ""), reverse=True)
        for item in listed[:_MAX_MANIFESTS]:
            try:
                held = self._registry.manifest(self._image.at(item.digest))
                manifest = manifest_of(held.data, item.digest)
            except UndecidedError as error:
                yield _unusable_envelope(item.digest, error)
                continue
            if manifest.annotations.get(PREDICATE_TYPE, self._type) == self._type:
                yield from self._read_envelopes(item.digest, manifest.layers)
        if len(listed) > _MAX_MANIFESTS:
            yield _unread_envelopes(
                self._image.digest, f"{len(listed)} attestations", _MAX_MANIFESTS
            )

    def tagged(self) -> Iterator[AttachedEnvelope]:
        """Yield the envelopes under the tag of cosign 2."""
        tag = attestation_tag(self._image)
        yield from self._read_envelopes(tag.tag, list_tagged_layers(self._registry, tag))

    def _read_envelopes(
        self, place: str, layers: tuple[Descriptor, ...]
    ) -> Iterator[AttachedEnvelope]:
        envelopes = [
            layer
            for layer in layers
            if (
                layer.media_type == ENVELOPE
                or layer.media_type.startswith(bundle.MEDIA_TYPE_PREFIX)
            )
            and layer.annotations.get(LAYER_PREDICATE_TYPE, self._type) == self._type
        ]
        # New envelopes are appended.
        for layer in envelopes[: -_MAX_LAYERS - 1 : -1]:
            try:
                data = self._read_layer(layer)
                if layer.media_type == ENVELOPE:
                    yield AttachedEnvelope(place, decode_json(data, Envelope))
                    continue
                held = bundle.parse(data)
            except UndecidedError as error:
                yield _unusable_envelope(place, error)
            except ValueError as error:
                why = f"its envelope is damaged: {error}"
                yield AttachedEnvelope(place, trouble="unreadable", why=why)
            else:
                hint = held.verification_material.public_key.hint
                if held.dsse_envelope is not None:
                    certified = data if held.is_by_identity else b""
                    yield AttachedEnvelope(place, held.dsse_envelope, hint, certified)
        if len(envelopes) > _MAX_LAYERS:
            yield _unread_envelopes(place, f"{len(envelopes)} envelopes", _MAX_LAYERS)

    def _read_layer(self, layer: Descriptor) -> bytes:
        if layer.size > min(MAX_BYTES, self._left):
            raise ValueError(f"it has {layer.size} bytes, more than are read")
        self._left -= layer.size
        with self._registry.blob(self._image, layer) as chunks:
            return b"".join(chunks)


def _unusable_envelope(place: str, error: UndecidedError) -> AttachedEnvelope:
    """Return an unusable entry; raises errors of an unreachable registry."""
    if is_missing(error):
        return AttachedEnvelope(place, trouble="gone", why=error.message)
    if isinstance(error, RequestError):
        raise error
    return AttachedEnvelope(place, trouble="unreadable", why=error.message)


def _unread_envelopes(place: str, many: str, most: int) -> AttachedEnvelope:
    why = f"there are {many}, of which {most} were looked at"
    return AttachedEnvelope(place, trouble="unreadable", why=why)
