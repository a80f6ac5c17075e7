"""Download and notes of a base image's layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from buildmatrix.engines.oci.base_files import LayerNotes, read_layer
from buildmatrix.engines.oci.model import BaseImage, BuiltLayer
from buildmatrix.engines.oci.store import ImageStore
from buildmatrix.errors import UndecidedError
from buildmatrix.oci.documents import (
    DOCKER_LAYER,
    DOCKER_LAYER_GZIP,
    DOCKER_LAYER_ZSTD,
    LAYER,
    LAYER_GZIP,
    LAYER_ZSTD,
    Descriptor,
)
from buildmatrix.progress import Progress
from buildmatrix.threads import side_by_side

#: Layers to fetch and read concurrently.
_FETCHES: Final = 4
_OCI_TYPES: Final = {
    DOCKER_LAYER: LAYER,
    DOCKER_LAYER_GZIP: LAYER_GZIP,
    DOCKER_LAYER_ZSTD: LAYER_ZSTD,
}


def bring_layers(
    base: BaseImage, target: str, store: ImageStore, progress: Progress
) -> tuple[list[BuiltLayer], Sequence[LayerNotes]]:
    """Fetch the layers of `base` to `store`; return them with their notes.

    Raises UndecidedError for a layer that cannot be fetched or has another digest.
    """

    def bring(blob: Descriptor) -> LayerNotes:
        with store.once(blob.digest):
            if not store.layout.has(blob):
                progress.step(target, f"layer of {base.reference}")
                with base.blob(blob) as chunks:
                    store.layout.take(blob, chunks)
            return read_layer(store.layout, blob, store.notes)

    blobs = base.manifest.layers
    diff_ids = base.configuration.rootfs.diff_ids
    if len(blobs) != len(diff_ids):
        raise UndecidedError(
            f"{base.reference}: its manifest has {len(blobs)} layers, and its configuration "
            f"{len(diff_ids)}"
        )
    layers = []
    notes = side_by_side(bring, blobs, _FETCHES, "base")
    for blob, diff_id, noted in zip(blobs, diff_ids, notes, strict=True):
        if noted.diff_id != diff_id:
            raise UndecidedError(
                f"{base.reference}: the layer {blob.digest} is not the one that its "
                "configuration names"
            )
        media_type = _OCI_TYPES.get(blob.media_type, blob.media_type)
        plain = Descriptor(media_type=media_type, digest=blob.digest, size=blob.size)
        layers.append(BuiltLayer(plain, diff_id, "base"))
    return layers, notes
