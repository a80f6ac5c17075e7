"""Layers of images saved in a file or a folder, or exported by an engine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from buildmatrix.layers.image import LayerBlob, LayerReader
from buildmatrix.layers.saved_image import (
    Configuration,
    SavedImage,
    digest_from_path,
    find_image,
    iter_archive_files,
)
from buildmatrix.oci.documents import MAX_DOCUMENT
from buildmatrix.progress import Progress, Silent
from buildmatrix.trees.archive import MemorySource, Slice, is_compressed, safe_path
from buildmatrix.trees.base import Unreadable
from buildmatrix.trees.forward import ENDLESS, ForwardSource
from buildmatrix.trees.tar import TarMember

#: Bytes of all documents of an export: an image has three, an index some dozens.
MAX_DOCUMENT_BYTES = 64 << 20
#: Offset and content of the magic in a tar header (POSIX pax, "ustar Interchange Format").
_TAR_MAGIC = (257, b"ustar")

#: Starts an export of an image, from its first byte.
Export = Callable[[], AbstractContextManager[Iterator[bytes]]]


def read_saved_layers(
    image: SavedImage, progress: Callable[[], Progress] = Silent
) -> list[LayerBlob]:
    """Return the layers of a saved image, with computed digests: names cannot be trusted.

    `progress` is opened by the first byte read. Raises `Unreadable` for a layer whose digest
    differs from its name.
    """
    layers = []
    blobs = list(image.layers())
    total, passed = sum(blob.size for _, blob in blobs), 0

    def counted(chunks: Iterator[bytes]) -> Iterator[bytes]:
        nonlocal passed
        for chunk in chunks:
            passed += len(chunk)
            progress().part("digests", passed, total, "bytes")
            yield chunk

    for name, blob in blobs:
        digest = f"sha256:{_sha256(counted(blob.chunks()))}"
        claimed = digest_from_path(name)
        if claimed.startswith("sha256:") and claimed != digest:
            raise Unreadable(f"{name} is damaged: its bytes have another digest")
        layers.append(LayerBlob(digest, blob.size, partial(_open_slice, blob)))
    return layers


def _sha256(chunks: Iterator[bytes]) -> str:
    hasher = hashlib.sha256()
    for chunk in chunks:
        hasher.update(chunk)
    return hasher.hexdigest()


@contextmanager
def _open_slice(blob: Slice) -> Iterator[Iterator[bytes]]:
    yield blob.chunks()


def read_export(export: Export, reader: LayerReader) -> tuple[Configuration, list[LayerBlob]]:
    """Return the image of an export, in one pass without storing it.

    An export may have its layers before the documents with their order. So each layer is read as it
    arrives, or, if `reader` has its facts, verified against its name. Raises `Unreadable`, and
    errors of `export`.
    """
    documents: dict[str, Slice] = {}
    layers: dict[str, LayerBlob] = {}
    links: dict[str, str] = {}
    total = 0
    with export() as chunks:
        for name, member in _iter_files(chunks):
            if member.kind == "symlink":
                folder = name.rpartition("/")[0]
                links[name] = safe_path(f"{folder}/{member.target}".lstrip("./")) or ""
            if member.data is None:
                continue
            if _is_document(member.data):
                total += member.data.size
                if total > MAX_DOCUMENT_BYTES:
                    raise Unreadable(f"its documents have more than {MAX_DOCUMENT_BYTES} bytes")
                content = member.data.read(0, member.data.size)
                documents[name] = Slice(MemorySource(content), 0, len(content))
            else:
                try:
                    layers[name] = _read_layer(export, name, member.data, reader)
                except Unreadable as error:
                    raise Unreadable(f"the layer {name} cannot be read: {error}") from error
    for name, target in links.items():
        if target in layers:
            layers.setdefault(name, layers[target])
    nothing = Slice(MemorySource(b""), 0, 0)
    image = find_image({**dict.fromkeys(layers, nothing), **documents})
    missing = [name for name in image.layers if name not in layers]
    if missing:
        raise Unreadable(f"{missing[0]} is missing from it: the image was not saved completely")
    return image.configuration, [layers[name] for name in image.layers]


def _iter_files(chunks: Iterator[bytes]) -> Iterator[tuple[str, TarMember]]:
    return iter_archive_files(Slice(ForwardSource(chunks), 0, ENDLESS))


def _read_layer(export: Export, name: str, data: Slice, reader: LayerReader) -> LayerBlob:
    """Read or verify a layer; its facts are cached afterwards."""

    @contextmanager
    def again() -> Iterator[Iterator[bytes]]:
        with export() as chunks:
            for other, member in _iter_files(chunks):
                if other == name and member.data is not None:
                    yield member.data.chunks()
                    return
        raise Unreadable(f"{name} is missing from the second export")

    claimed = digest_from_path(name)
    if reader.known(claimed) is not None:
        if f"sha256:{_sha256(data.chunks())}" != claimed:
            raise Unreadable("it is damaged: its bytes have another digest")
        return LayerBlob(claimed, data.size, again)
    layer = reader.read(LayerBlob(claimed, data.size, partial(_open_slice, data)))
    return LayerBlob(layer.blob, data.size, again)


def _is_document(data: Slice) -> bool:
    """Return True if a blob is not a layer; an empty layer is a tar archive of two empty blocks."""
    head = data.read(0, 512)
    at, magic = _TAR_MAGIC
    if head[at : at + len(magic)] == magic or is_compressed(data):
        return False
    return data.size <= MAX_DOCUMENT and bool(head.strip(b"\0"))
