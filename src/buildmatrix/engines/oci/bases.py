"""Base images from a registry, a layout or an archive, their layers, and the built image."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.progress import Progress
from buildmatrix.base.text import printable
from buildmatrix.base.threads import side_by_side
from buildmatrix.engines.oci.base_files import LayerNotes, read_layer
from buildmatrix.engines.oci.store import ImageStore
from buildmatrix.facts.trees.archive import CHUNK, OpenFile, Slice
from buildmatrix.facts.trees.base import reason
from buildmatrix.images.documents import (
    DOCKER_LAYER,
    DOCKER_LAYER_GZIP,
    DOCKER_LAYER_ZSTD,
    INDEXES,
    LAYER,
    LAYER_GZIP,
    LAYER_ZSTD,
    MANIFESTS,
    MAX_DOCUMENT,
    Descriptor,
    ImageConfiguration,
    Manifest,
    Platform,
    choose,
    configuration_of,
    images_in,
    index_of,
    manifest_of,
)
from buildmatrix.images.layers import StoredLayer
from buildmatrix.images.layout import IMAGE_NAME, REF_NAME, OciLayout, blob_path, verify_chunks
from buildmatrix.images.saved_image import check_saved, iter_archive_files
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Reference

#: Streams the bytes of a blob. Raises UndecidedError, also during reading.
Blob = Callable[[Descriptor], AbstractContextManager[Iterator[bytes]]]


class BaseImage(Struct):
    """A base image in any location."""

    #: Name in the specification.
    reference: str
    #: Its manifest for the target's platform.
    descriptor: Descriptor
    manifest: Manifest
    configuration: ImageConfiguration
    blob: Blob


class BuiltImage(Struct, frozen=True):
    """A complete image in the layout of its `ImageStore`."""

    #: Its manifest.
    descriptor: Descriptor
    manifest: Manifest
    configuration: ImageConfiguration
    #: Lowest first, including those of the base.
    layers: tuple[StoredLayer, ...]
    #: Reference and digest of the base.
    base: tuple[str, str]


# Base images


#: Prefixes of mirrors that are not registries.
LAYOUT, ARCHIVE = "oci:", "tar:"


class Bases:
    """Source of base images, each resolved once per run. Thread-safe.

    `mirror` is the prefix of each name, as in `FROM ${MIRROR}python:3.11`, or `oci:FOLDER` or
    `tar:FILE` with images of these names.
    """

    def __init__(self, registry: Registry, mirror: str) -> None:
        self._registry = registry
        self._mirror = mirror
        self._lock = threading.Lock()
        self._taken: dict[tuple[str, str], BaseImage] = {}

    def take(self, name: str, platform: str) -> BaseImage:
        """Return the base image `name` for a platform (`linux/arm64`).

        Raises `UndecidedError` if it is unreachable or not for that platform.
        """
        with self._lock:
            if (name, platform) not in self._taken:
                self._taken[name, platform] = self._take(name, Platform.parse(platform))
            return self._taken[name, platform]

    def _take(self, name: str, platform: Platform) -> BaseImage:
        if self._mirror.startswith((LAYOUT, ARCHIVE)):
            path = Path(self._mirror.partition(":")[2])
            is_layout = self._mirror.startswith(LAYOUT)
            entry, saved = (_find_in_layout if is_layout else _find_in_archive)(path, name)
            return _choose_image(name, entry, saved, platform, f"{self._mirror}: {name}")
        reference = Reference.parse(self._mirror + name)
        registry = self._registry
        descriptor = registry.resolve(reference)
        pinned = reference.at(descriptor.digest)

        @contextmanager
        def blob(wanted: Descriptor) -> Iterator[Iterator[bytes]]:
            if wanted.media_type in INDEXES | MANIFESTS:
                yield iter([registry.manifest(reference.at(wanted.digest)).data])
            else:
                with registry.blob(pinned, wanted) as chunks:
                    yield chunks

        return _choose_image(name, descriptor, blob, platform, str(reference))


def _choose_image(
    name: str, entry: Descriptor, blob: Blob, platform: Platform, where: str
) -> BaseImage:
    """Return the image for `platform` in `entry`, a manifest or an index."""
    if entry.media_type in INDEXES:
        index = index_of(_read_document(entry, blob, where), where)
        chosen = choose(index.manifests, platform, where)
        if chosen is None:
            platforms = {printable(str(image.platform)) for image in images_in(index.manifests)}
            there = ", ".join(sorted(platforms)) or "none"
            raise UndecidedError(f"{where} has no image for {platform}, only for {there}")
        entry = chosen
    manifest = manifest_of(_read_document(entry, blob, where), where)
    configuration = configuration_of(_read_document(manifest.config, blob, where), where)
    if not platform.runs(configuration.platform):
        described = printable(str(configuration.platform)) or "no platform"
        raise UndecidedError(f"{where} is an image for {described}, not {platform}")
    return BaseImage(name, entry, manifest, configuration, blob)


def _read_document(descriptor: Descriptor, blob: Blob, where: str) -> bytes:
    """Read a small blob, whose digest is checked by its source. Its stated size is untrusted."""
    if descriptor.size > MAX_DOCUMENT:
        raise UndecidedError(f"{where}: {descriptor.digest} is too large for a document")
    with blob(descriptor) as chunks:
        return b"".join(chunks)


def _find_in_layout(folder: Path, name: str) -> tuple[Descriptor, Blob]:
    """Find the image `name` in a layout."""
    layout = OciLayout(folder)
    return _find_entry(layout.images(), name, f"{LAYOUT}{folder}"), layout.blob


def _find_in_archive(path: Path, name: str) -> tuple[Descriptor, Blob]:
    """Find the image `name` in an archive of Docker 25 and newer, podman or skopeo."""
    try:
        with path.open("rb") as file:
            source = OpenFile(file.fileno())
            files = {
                name: (member.data.offset, member.data.size)
                for name, member in iter_archive_files(Slice(source, 0, source.size))
                if member.data is not None
            }
            if "index.json" not in files:
                raise UndecidedError(
                    f"{ARCHIVE}{path} has no index.json: save it with Docker 25 or newer, or with "
                    f"`skopeo copy ... oci-archive:{path}`"
                )
            offset, size = files["index.json"]
            index = index_of(source.read(offset, min(size, MAX_DOCUMENT + 1)), str(path))
            check_saved({name: Slice(source, *place) for name, place in files.items()})
    except OSError as error:
        raise UndecidedError(f"{ARCHIVE}{path} cannot be read: {reason(error)}") from error

    @contextmanager
    def blob(descriptor: Descriptor) -> Iterator[Iterator[bytes]]:
        place = files.get(blob_path(descriptor.digest))
        if place is None:
            raise UndecidedError(f"{ARCHIVE}{path} has no blob {descriptor.digest}")
        with path.open("rb") as file:
            data = Slice(OpenFile(file.fileno()), *place)
            chunks = (data.read(offset, CHUNK) for offset in range(0, data.size, CHUNK))
            yield verify_chunks(chunks, descriptor, f"{ARCHIVE}{path}")

    return _find_entry(index.manifests, name, f"{ARCHIVE}{path}"), blob


def _find_entry(entries: Sequence[Descriptor], name: str, where: str) -> Descriptor:
    """Return the index entry of an image, by any form of its name."""
    wanted = Reference.parse(name)
    names = []
    found: dict[str, Descriptor] = {}
    for entry in entries:
        written = {entry.annotations.get(key) for key in (IMAGE_NAME, REF_NAME)} - {None}
        names += sorted(filter(None, written))
        for text in filter(None, written):
            with suppress(UndecidedError):  # `latest`, a tag alone, is a name as well
                reference = Reference.parse(text)
                is_same = reference.name == wanted.name and reference.version == wanted.version
                if is_same or (wanted.digest and wanted.digest == entry.digest):
                    found.setdefault(entry.digest, entry)
    if len(found) > 1:
        raise UndecidedError(f"{where} has {len(found)} images of the name {name}")
    for entry in found.values():
        return entry
    has = f"; it has {', '.join(dict.fromkeys(names))}" if names else ""
    raise UndecidedError(f"{where} has no image of the name {name}{has}")


# Layers


#: Layers to fetch and read concurrently.
_FETCHES: Final = 4
_OCI_TYPES: Final = {
    DOCKER_LAYER: LAYER,
    DOCKER_LAYER_GZIP: LAYER_GZIP,
    DOCKER_LAYER_ZSTD: LAYER_ZSTD,
}


def bring_layers(
    base: BaseImage, target: str, store: ImageStore, progress: Progress
) -> tuple[list[StoredLayer], Sequence[LayerNotes]]:
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
        layers.append(StoredLayer(plain, diff_id))
    return layers, notes
