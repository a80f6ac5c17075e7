"""The layers of an image that is saved in a file or a folder, or that an engine exports."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from buildmatrix.layers.image import LayerBlob, LayerReader
from buildmatrix.layers.saved_image import (
    Configuration,
    SavedImage,
    archive_files,
    digest_in,
    image_in,
)
from buildmatrix.oci.documents import MAX_DOCUMENT
from buildmatrix.progress import Progress, Silent
from buildmatrix.trees.archive import Slice, is_compressed, plain
from buildmatrix.trees.base import RandomAccess, Unreadable
from buildmatrix.trees.forward import ENDLESS, ForwardSource
from buildmatrix.trees.tar import TarMember

#: Bytes of all documents of an export: an image has three, an index some dozens.
MOST_DOCUMENTS = 64 << 20
#: Where a tar header says that it is one (POSIX pax, "ustar Interchange Format").
_TAR_MAGIC = (257, b"ustar")

#: Begins to export an image, from its first byte.
Export = Callable[[], AbstractContextManager[Iterator[bytes]]]


def layers_of_saved(
    image: SavedImage, progress: Callable[[], Progress] = Silent
) -> list[LayerBlob]:
    """The layers of a saved image. Their digests are computed: their writer chose their names.

    `progress` is opened when the first byte is read. Raises `Unreadable` where one has another
    digest than its name says.
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
        claimed = digest_in(name)
        if claimed.startswith("sha256:") and claimed != digest:
            raise Unreadable(f"{name} is damaged: its bytes have another digest")
        layers.append(LayerBlob(digest, blob.size, partial(_opened, blob)))
    return layers


def _sha256(chunks: Iterator[bytes]) -> str:
    hasher = hashlib.sha256()
    for chunk in chunks:
        hasher.update(chunk)
    return hasher.hexdigest()


@contextmanager
def _opened(blob: Slice) -> Iterator[Iterator[bytes]]:
    yield blob.chunks()


def layers_of_export(export: Export, reader: LayerReader) -> tuple[Configuration, list[LayerBlob]]:
    """The image in an export, which is read once, from front to back, and never stored.

    The order of an export's files is its writer's: layers come before the documents that say which
    of them is the lowest. So each is read as it comes, unless `reader` knows it: then its bytes are
    held against its name. Raises `Unreadable`, and what `export` raises.
    """
    documents: dict[str, Slice] = {}
    layers: dict[str, LayerBlob] = {}
    links: dict[str, str] = {}
    total = 0
    with export() as chunks:
        for name, member in _files(chunks):
            if member.kind == "symlink":
                folder = name.rpartition("/")[0]
                links[name] = plain(f"{folder}/{member.target}".lstrip("./")) or ""
            if member.data is None:
                continue
            if _is_document(member.data):
                total += member.data.size
                if total > MOST_DOCUMENTS:
                    raise Unreadable(f"its documents have more than {MOST_DOCUMENTS} bytes")
                content = member.data.read(0, member.data.size)
                documents[name] = Slice(_Held(content), 0, len(content))
            else:
                try:
                    layers[name] = _passing(export, name, member.data, reader)
                except Unreadable as error:
                    raise Unreadable(f"the layer {name} cannot be read: {error}") from error
    for name, target in links.items():
        if target in layers:
            layers.setdefault(name, layers[target])
    nothing = Slice(_Held(b""), 0, 0)
    image = image_in({**dict.fromkeys(layers, nothing), **documents})
    missing = [name for name in image.layers if name not in layers]
    if missing:
        raise Unreadable(f"{missing[0]} is missing from it: the image was not saved completely")
    return image.configuration, [layers[name] for name in image.layers]


def _files(chunks: Iterator[bytes]) -> Iterator[tuple[str, TarMember]]:
    return archive_files(Slice(ForwardSource(chunks), 0, ENDLESS))


def _passing(export: Export, name: str, data: Slice, reader: LayerReader) -> LayerBlob:
    """A layer that passes by, and is known afterwards."""

    @contextmanager
    def again() -> Iterator[Iterator[bytes]]:
        with export() as chunks:
            for other, member in _files(chunks):
                if other == name and member.data is not None:
                    yield member.data.chunks()
                    return
        raise Unreadable(f"{name} is missing from the second export")

    claimed = digest_in(name)
    if reader.known(claimed) is not None:
        if f"sha256:{_sha256(data.chunks())}" != claimed:
            raise Unreadable("it is damaged: its bytes have another digest")
        return LayerBlob(claimed, data.size, again)
    layer = reader.read(LayerBlob(claimed, data.size, partial(_opened, data)))
    return LayerBlob(layer.blob, data.size, again)


def _is_document(data: Slice) -> bool:
    """Whether a blob is no layer; an empty layer is a tar archive of two empty blocks."""
    head = data.read(0, 512)
    at, magic = _TAR_MAGIC
    if head[at : at + len(magic)] == magic or is_compressed(data):
        return False
    return data.size <= MAX_DOCUMENT and bool(head.strip(b"\0"))


class _Held(RandomAccess):
    """A document in memory."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `RandomAccess.read`."""
        return self._content[offset : offset + length]
