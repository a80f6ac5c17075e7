"""Attestations under the tag `sha256-<digest>.att`, where cosign 2 looks for them.

The form is that of cosign 3.1.1 (`WriteAttestations` in `pkg/oci/remote/write.go`, and the
annotations in `pkg/oci/static/options.go`). A tag has one writer at a time and no lock: whoever
writes may take out what somebody else put there a moment before. What is attached here is
therefore announced first, as a manifest that refers to the image, and whoever wrote the tag last
finds there what he took out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO

import msgspec

from buildmatrix.attestation import bundle
from buildmatrix.errors import UndecidedError
from buildmatrix.http.failures import RequestError
from buildmatrix.oci.documents import (
    CONFIGURATION,
    MANIFEST,
    Descriptor,
    HistoryStep,
    ImageConfiguration,
    Manifest,
    RootFileSystem,
    encode,
    manifest_of,
)
from buildmatrix.registry.client import Registry
from buildmatrix.registry.reference import Reference

#: Media type of an envelope that lies in a registry by itself.
ENVELOPE = "application/vnd.dsse.envelope.v1+json"
#: Annotation of a layer that cosign reads: the type of its predicate.
LAYER_PREDICATE_TYPE = "predicateType"
#: When something was attached, in UTC: `2026-11-22T15:04:26Z`.
CREATED = "org.opencontainers.image.created"
#: Ours: what was attached for a target before makes room for what is attached now.
TARGET = "dev.buildmatrix.target"
#: Ours: the manifest that holds the bundle of the same envelope.
_BUNDLE = "dev.buildmatrix.bundle"
_SIGNATURE = "dev.cosignproject.cosign/signature"
#: Envelopes of other tools that a tag may hold beside ours.
_MOST_LAYERS = 64
#: Times that the tag is written again after somebody else wrote it at the same moment.
_TRIES = 8


def tag_of(image: Reference) -> Reference:
    """The tag under which cosign 2 keeps attestations of an image."""
    return image.tagged(image.digest.replace(":", "-") + ".att")


def is_missing(error: UndecidedError) -> bool:
    """Whether a registry said that there is no such thing."""
    return isinstance(error, RequestError) and error.status in (404, 410)


def layers_under(registry: Registry, tag: Reference) -> tuple[Descriptor, ...]:
    """The envelopes under the tag that `tag_of` names; none where there is no such tag."""
    try:
        held = registry.manifest(tag)
    except UndecidedError as error:
        if is_missing(error):
            return ()
        raise
    return manifest_of(held.data, str(tag)).layers


def push_data(registry: Registry, image: Reference, data: bytes, media_type: str) -> Descriptor:
    """Have a small blob beside an image."""
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    descriptor = Descriptor(media_type=media_type, digest=digest, size=len(data))
    registry.push_blob(image, descriptor, lambda: BytesIO(data))
    return descriptor


def add_to_tag(registry: Registry, image: Reference, attached: Descriptor) -> None:
    """Add what was attached to what is under the tag; what others wrote there stays.

    Raises `UndecidedError` where the registry does not keep it.

    Args:
        registry: that of the image.
        image: with its digest.
        attached: the manifest that refers to the image, with its annotations.
    """
    own = _Attached(attached)
    held = {own: _layer(registry, image, own)}
    for attempt in range(_TRIES):
        # In this order: what is under the tag was on the list before.
        layers = layers_under(registry, tag_of(image))
        listed = registry.referrers(image, image.digest)
        lost = [
            item
            for item in _newest((own, *filter(None, map(_attached, listed))))
            # Of two verdicts of one second the last counts.
            if not item.is_in(layers) or (item == own and attempt == 0)
        ]
        for item in lost:
            if item not in held:
                held[item] = _others_layer(registry, image, item)
        added = {item: layer for item in lost if (layer := held[item]) is not None}
        if added:
            _write(registry, image, layers, added)
        elif not _list_again(registry, image, layers, {item.digest for item in listed}):
            return
    if not added:
        # What registries list may be some seconds old.
        return
    raise UndecidedError(
        f"{tag_of(image)} is written by others at the same time, and does not keep what was added"
    )


class _Attached:
    """A manifest of ours that refers to an image, as what lists it describes it."""

    def __init__(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self.target = descriptor.annotations[TARGET]
        self.predicate_type = descriptor.annotations[bundle.PREDICATE_TYPE]
        self.created = descriptor.annotations.get(CREATED, "")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Attached) and self.descriptor.digest == other.descriptor.digest

    def __hash__(self) -> int:
        return hash(self.descriptor.digest)

    @property
    def key(self) -> tuple[str, str]:
        """What only one under the tag has: its target, and what it says of it."""
        return self.target, self.predicate_type

    def is_key_of(self, layer: Descriptor) -> bool:
        """Whether an envelope is for the same target and of the same kind."""
        annotations = layer.annotations
        return self.key == (annotations.get(TARGET), annotations.get(LAYER_PREDICATE_TYPE))

    def is_in(self, layers: Iterable[Descriptor]) -> bool:
        """Whether it, or what was attached later in its place, is under the tag."""
        return any(
            self.is_key_of(layer) and layer.annotations.get(CREATED, "") >= self.created
            for layer in layers
        )


def _attached(descriptor: Descriptor) -> _Attached | None:
    """What is ours of what is listed."""
    annotations = descriptor.annotations
    is_ours = {TARGET, bundle.PREDICATE_TYPE} <= annotations.keys()
    return _Attached(descriptor) if is_ours else None


def _newest(items: Iterable[_Attached]) -> list[_Attached]:
    """The last of each kind, the oldest first."""
    newest: dict[tuple[str, str], _Attached] = {}
    for item in items:
        before = newest.get(item.key)
        if before is None or before.created < item.created:
            newest[item.key] = item
    # No more than are read; what anybody may have put into the list is read in part.
    return sorted(newest.values(), key=lambda item: item.created)[-_MOST_LAYERS:]


def _write(
    registry: Registry,
    image: Reference,
    layers: Sequence[Descriptor],
    added: Mapping[_Attached, Descriptor],
) -> None:
    tag = tag_of(image)
    others = [layer for layer in layers if not any(item.is_key_of(layer) for item in added)]
    if len(others) + len(added) > _MOST_LAYERS:
        raise UndecidedError(
            f"{tag} has {len(others)} attestations already, more than are read; delete that tag"
        )
    layers = (*others, *added.values())
    configuration = ImageConfiguration(
        architecture="",
        os="",
        created="0001-01-01T00:00:00Z",
        history=tuple(HistoryStep(created="0001-01-01T00:00:00Z") for _ in layers),
        rootfs=RootFileSystem(diff_ids=tuple(item.digest for item in layers)),
    )
    manifest = Manifest(
        schema_version=2,
        media_type=MANIFEST,
        config=push_data(registry, image, encode(configuration), CONFIGURATION),
        layers=layers,
    )
    registry.push_manifest(tag, encode(manifest), MANIFEST)


def _layer(registry: Registry, image: Reference, item: _Attached) -> Descriptor | None:
    """The envelope in a bundle, as cosign 2 has it; None where cosign 2 has no form for it.

    Raises `UndecidedError`, also for what is no bundle.
    """
    where = image.at(item.descriptor.digest)
    manifest = manifest_of(registry.manifest(where).data, str(where))
    if len(manifest.layers) != 1 or manifest.layers[0].size > bundle.LARGEST:
        raise UndecidedError(f"{where} holds no bundle, or a larger one than is read")
    with registry.blob(image, manifest.layers[0]) as chunks:
        try:
            loose = bundle.loose(b"".join(chunks))
        except ValueError as error:
            raise UndecidedError(f"{where} holds no bundle: {error}") from error
    if loose is None:
        return None
    layer = push_data(registry, image, loose.envelope, ENVELOPE)
    annotations = {
        _SIGNATURE: "",
        LAYER_PREDICATE_TYPE: item.predicate_type,
        TARGET: item.target,
        CREATED: item.created,
        _BUNDLE: item.descriptor.digest,
        **loose.annotations,
    }
    return msgspec.structs.replace(layer, annotations=annotations)


def _others_layer(registry: Registry, image: Reference, item: _Attached) -> Descriptor | None:
    """The same for what anybody may have put into the list: what cannot be read is left out."""
    try:
        return _layer(registry, image, item)
    except UndecidedError as error:
        if isinstance(error, RequestError) and not is_missing(error):
            raise
        return None


def _list_again(
    registry: Registry, image: Reference, layers: Iterable[Descriptor], listed: set[str]
) -> bool:
    """List what somebody took off the list, which may be under a tag, too; whether there was any.

    What was deleted since stays so.
    """
    again = False
    for layer in layers:
        digest = layer.annotations.get(_BUNDLE, "")
        if digest and digest not in listed:
            try:
                data = registry.manifest(image.at(digest)).data
            except UndecidedError as error:
                if not is_missing(error):
                    raise
            else:
                registry.push_referrer(image, data)
                again = True
    return again
