"""Conversion of a `docker save` archive to an image layout that registries accept."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import msgspec

from buildmatrix.errors import UndecidedError
from buildmatrix.layers.saved_image import digest_from_path
from buildmatrix.oci.compression import BlockWriter
from buildmatrix.oci.documents import (
    DOCKER_LAYER,
    DOCKER_LAYER_GZIP,
    LAYER,
    LAYER_GZIP,
    MAX_DOCUMENT,
    Descriptor,
    encode,
    index_of,
)
from buildmatrix.oci.layout import OciLayout
from buildmatrix.trees.archive import Slice, safe_path
from buildmatrix.trees.base import Unreadable
from buildmatrix.trees.forward import ENDLESS, ForwardSource
from buildmatrix.trees.tar import members

#: Media types of layers in Docker's older store → after compression.
_COMPRESSED = {LAYER: LAYER_GZIP, DOCKER_LAYER: DOCKER_LAYER_GZIP}


def lay_down(archive: Iterable[bytes], folder: Path) -> OciLayout:
    """Create a layout in `folder` of the image in `archive`, with verified blobs and an index.

    Such archives exist since Docker 25, along with an older format, which is ignored (OCI image
    specification 1.1, image-layout.md). With containerd's store, the image is the same as in
    registries. The older store has neither compressed layers nor a manifest: its layers are
    compressed reproducibly, and its configuration is kept.

    Raises OSError, and `UndecidedError` for an archive that is invalid or in another format.
    """
    layout = OciLayout(folder)
    index = _blobs(archive, layout)
    if index is None:
        raise UndecidedError(
            "the daemon saved an image that is not an OCI image layout; Docker 25 or newer does"
        )
    # An image with several names is listed once for each.
    images = {image.digest: image for image in index_of(index, "its index.json").manifests}
    if len(images) != 1:
        raise UndecidedError(f"the daemon saved {len(images)} images in place of one")
    (image,) = images.values()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        layout.publish(_compressed(layout, image, pool))
    return layout


def _blobs(archive: Iterable[bytes], layout: OciLayout) -> bytes | None:
    """Store all blobs of an archive; return its index, if any."""
    index: bytes | None = None
    try:
        for member in members(Slice(ForwardSource(archive), 0, ENDLESS)):
            if member.data is None:
                continue
            name = safe_path(member.name) or ""
            if digest := digest_from_path(name):
                named = Descriptor(media_type="", digest=digest, size=member.data.size)
                layout.take(named, member.data.chunks())
            elif name == "index.json" and member.data.size <= MAX_DOCUMENT:
                index = member.data.read(0, member.data.size)
    except Unreadable as error:
        raise UndecidedError(f"the daemon saved an image that cannot be read: {error}") from error
    return index


def _compressed(layout: OciLayout, image: Descriptor, pool: Executor) -> Descriptor:
    """Return the image with all layers compressed."""
    manifest = layout.manifest(image)
    layers = tuple(_compressed_layer(layout, layer, pool) for layer in manifest.layers)
    if layers == manifest.layers:
        return image
    document = encode(msgspec.structs.replace(manifest, layers=layers))
    return layout.put(document, image.media_type)


def _compressed_layer(layout: OciLayout, layer: Descriptor, pool: Executor) -> Descriptor:
    if layer.media_type not in _COMPRESSED:
        return layer
    with layout.writer() as blob, layout.blob(layer) as chunks:
        blocks = BlockWriter("gzip", pool, blob.write)
        for chunk in chunks:
            blocks.write(chunk)
        blocks.finish()
    return msgspec.structs.replace(
        layer, media_type=_COMPRESSED[layer.media_type], digest=blob.digest, size=blob.size
    )
