"""Envelopes that lie beside an image in its registry; whoever put them there, nothing is trusted.

What is read is bounded in number and bytes, whatever the registry says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from buildmatrix.attestation import bundle
from buildmatrix.attestation.bundle import LARGEST, PREDICATE_TYPE
from buildmatrix.attestation.envelope import IN_TOTO, Envelope
from buildmatrix.attestation.tagged import (
    CREATED,
    ENVELOPE,
    LAYER_PREDICATE_TYPE,
    is_missing,
    layers_under,
    tag_of,
)
from buildmatrix.errors import UndecidedError
from buildmatrix.http.failures import RequestError
from buildmatrix.oci.documents import EMPTY, Descriptor, manifest_of
from buildmatrix.registry.client import Registry
from buildmatrix.registry.reference import Reference
from buildmatrix.strict_json import decode_json

#: Manifests that are looked at, envelopes of each, and bytes of all.
_MOST = 64
_MOST_LAYERS = 64
_LARGEST_TOTAL = 64 << 20
#: Types of referrers that can hold an envelope. What lists the referrers of a registry without an
#: API for them may say the type of the (empty) configuration instead.
_TYPES = ("", EMPTY, IN_TOTO, ENVELOPE)


@dataclass(frozen=True, slots=True)
class AttachedEnvelope:
    """An envelope beside an image, or why what is listed there is none."""

    #: What holds it: digest of a manifest, or a tag.
    place: str
    envelope: Envelope | None = None
    #: The key that it was stored with, as `PublicKey.hint`; empty where nothing says so.
    hint: str = ""
    #: The whole bundle, where an identity signed and no key.
    certified: bytes = b""
    #: `gone`: it is listed, and the registry does not have it. `unreadable`: it is no envelope, or
    #: more than anybody reads.
    trouble: Literal["", "gone", "unreadable"] = ""
    #: One sentence, where there is trouble.
    why: str = ""


class AttestationReader:
    """Reads what is attached to `image`, which has its digest, and may be of a predicate's type.

    Raises `UndecidedError` where the registry cannot be reached.
    """

    def __init__(self, registry: Registry, image: Reference, predicate_type: str) -> None:
        self._registry = registry
        self._image = image
        self._type = predicate_type
        self._left = _LARGEST_TOTAL

    def referrers(self) -> Iterator[AttachedEnvelope]:
        """Envelopes in manifests that refer to the image, but for those that name another type.

        The last that were attached first, as far as they say when: an image of the same digest may
        be attested each day, and not all are looked at.
        """
        listed = [
            item
            for item in self._registry.referrers(self._image, self._image.digest)
            if item.annotations.get(PREDICATE_TYPE, self._type) == self._type
            and (item.artifact_type in _TYPES or item.artifact_type.startswith(bundle.FAMILY))
        ]
        listed.sort(key=lambda item: item.annotations.get(CREATED, ""), reverse=True)
        for item in listed[:_MOST]:
            try:
                held = self._registry.manifest(self._image.at(item.digest))
                manifest = manifest_of(held.data, item.digest)
            except UndecidedError as error:
                yield _trouble(item.digest, error)
                continue
            if manifest.annotations.get(PREDICATE_TYPE, self._type) == self._type:
                yield from self._layers(item.digest, manifest.layers)
        if len(listed) > _MOST:
            yield _unread(self._image.digest, f"{len(listed)} attestations", _MOST)

    def tagged(self) -> Iterator[AttachedEnvelope]:
        """Envelopes under the tag of cosign 2."""
        tag = tag_of(self._image)
        yield from self._layers(tag.tag, layers_under(self._registry, tag))

    def _layers(self, place: str, layers: tuple[Descriptor, ...]) -> Iterator[AttachedEnvelope]:
        envelopes = [
            layer
            for layer in layers
            if (layer.media_type == ENVELOPE or layer.media_type.startswith(bundle.FAMILY))
            and layer.annotations.get(LAYER_PREDICATE_TYPE, self._type) == self._type
        ]
        # Who adds one writes it behind the others.
        for layer in envelopes[: -_MOST_LAYERS - 1 : -1]:
            try:
                data = self._data(layer)
                if layer.media_type == ENVELOPE:
                    yield AttachedEnvelope(place, decode_json(data, Envelope))
                    continue
                held = bundle.parse(data)
            except UndecidedError as error:
                yield _trouble(place, error)
            except ValueError as error:
                why = f"its envelope is damaged: {error}"
                yield AttachedEnvelope(place, trouble="unreadable", why=why)
            else:
                hint = held.verification_material.public_key.hint
                if held.dsse_envelope is not None:
                    certified = data if held.is_by_identity else b""
                    yield AttachedEnvelope(place, held.dsse_envelope, hint, certified)
        if len(envelopes) > _MOST_LAYERS:
            yield _unread(place, f"{len(envelopes)} envelopes", _MOST_LAYERS)

    def _data(self, layer: Descriptor) -> bytes:
        if layer.size > min(LARGEST, self._left):
            raise ValueError(f"it has {layer.size} bytes, more than are read")
        self._left -= layer.size
        with self._registry.blob(self._image, layer) as chunks:
            return b"".join(chunks)


def _trouble(place: str, error: UndecidedError) -> AttachedEnvelope:
    """What is wrong with what is listed; raises the error of a registry that cannot be asked."""
    if is_missing(error):
        return AttachedEnvelope(place, trouble="gone", why=error.message)
    if isinstance(error, RequestError):
        raise error
    return AttachedEnvelope(place, trouble="unreadable", why=error.message)


def _unread(place: str, many: str, most: int) -> AttachedEnvelope:
    why = f"there are {many}, of which {most} were looked at"
    return AttachedEnvelope(place, trouble="unreadable", why=why)
