"""Images from any source: configuration, layers and inventory.

Facts are cached under a digest computed over all bytes of a layer: claims of names, manifests and
configurations are never trusted.
"""

from __future__ import annotations

import hashlib
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.progress import Progress, Silent
from buildmatrix.facts.inventory.archive import PACKAGES
from buildmatrix.facts.inventory.listing import RecordedLookups
from buildmatrix.facts.inventory.model import SCHEMA, Inventory
from buildmatrix.facts.inventory.workers import trim_heap
from buildmatrix.facts.trees.archive import BytesSource, Slice, Spool, is_compressed, safe_path
from buildmatrix.facts.trees.archive_layers import MAX_ENTRIES
from buildmatrix.facts.trees.base import Unreadable
from buildmatrix.facts.trees.decompression import ENDLESS, ForwardSource
from buildmatrix.facts.trees.tar import TarMember
from buildmatrix.images.documents import MAX_DOCUMENT
from buildmatrix.images.layer_facts import LAYER_FACTS, LayerFacts, read_layer
from buildmatrix.images.merging import merge_inventory
from buildmatrix.images.saved_image import (
    Configuration,
    SavedImage,
    digest_from_path,
    find_image,
    iter_archive_files,
)
from buildmatrix.images.store.cache import DAY, Cache, source_digest
from buildmatrix.images.store.facts import FactCache
from buildmatrix.images.store.folder import PythonAnswers

#: Bytes of all cached facts. Those of a layer with torch take 20 MB.
MAX_CACHED_BYTES = 4_000_000_000
_STR_DECODER = msgspec.msgpack.Decoder(str)


class LayerBlob(Struct, frozen=True):
    """A layer as stored, compressed or not."""

    #: `sha256:...` of its bytes; empty if unknown.
    digest: str
    #: Bytes.
    size: int
    #: Opens all of its bytes.
    open: Callable[[], AbstractContextManager[Iterator[bytes]]]


#: Name of the layers' progress step.
STEP = "layers"


class LayerSpillFile:
    """Temporary file for layers' packed bytes, freed with the last layer that uses it.

    An image of 4 GB has 60 MB of them. All layers are merged at once, but little is read at a time.
    """

    def __init__(self) -> None:
        self._spool = Spool()
        weakref.finalize(self, self._spool.close)

    def put(self, layer: LayerFacts) -> LayerFacts:
        """Move the packed bytes of `layer` to the file; return it unchanged if the disk is full."""
        with suppress(OSError):
            entries, blocks = self._spill(layer.entries), self._spill(layer.blocks)
            return msgspec.structs.replace(layer, entries=entries, blocks=blocks)
        return layer

    def _spill(self, blocks: Sequence[bytes]) -> Sequence[bytes]:
        return _SpilledBlocks(self, [self._spool.store(iter((block,))) for block in blocks])


class _SpilledBlocks(Sequence[bytes]):
    """Blocks of bytes, read from the file on access; usable in forked processes."""

    def __init__(self, owner: LayerSpillFile, places: Sequence[Slice]) -> None:
        self._owner = owner
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        """Return one block; nothing slices them."""
        place = self._places[index]
        return place.read(0, place.size)


class LayerReader:
    """Reader of layers and cache of their facts; without a disk cache, for this run only.

    With `names_only`, files are not inspected and nothing is cached. `progress` is opened by the
    first byte read.
    """

    def __init__(
        self, cache: Cache, *, names_only: bool = False, progress: Callable[[], Progress] = Silent
    ) -> None:
        cache = Cache(None) if names_only else cache
        self._names_only = names_only
        self._progress = progress
        #: Bytes read so far, and in total; None if unknown.
        self._passed = 0
        self._total: int | None = None
        self._started = time.monotonic()
        version = f"{SCHEMA} {source_digest(*PACKAGES, 'images')}"
        self._store = cache.store(
            "layers", version, limit=MAX_CACHED_BYTES, age=90 * DAY, by_use=True
        )
        self._python_answers = PythonAnswers(cache)
        #: diff ID → facts; digest of a blob → diff ID.
        self._layers: dict[str, LayerFacts] = {}
        self._spill_file = LayerSpillFile()
        self._digests: dict[str, str] = {}
        #: Bytes read, and the diff IDs of the layers read.
        self.bytes_read = 0
        self._fresh: set[str] = set()

    def known(self, digest: str) -> LayerFacts | None:
        """Return the facts of the layer with the blob `digest`, if they are cached."""
        if not digest:
            return None
        diff_id = self.diff_id(digest)
        if diff_id is None:
            return None
        layer = self._layers.get(diff_id)
        if layer is None:
            layer = self._store.load(f"layer {diff_id}", LAYER_FACTS)
            if layer is None:
                return None
            layer = self._spill_file.put(layer)
        self._layers[diff_id] = layer
        return layer

    def diff_id(self, digest: str) -> str | None:
        """Return the diff ID of the blob `digest`, if it was read before."""
        diff_id = self._digests.get(digest) or self._store.load(f"blob {digest}", _STR_DECODER)
        if diff_id is not None:
            self._digests[digest] = diff_id
        return diff_id

    def has(self, blob: LayerBlob) -> bool:
        """Return True if the facts of a layer are probably cached; does not load them."""
        if not blob.digest:
            return False
        diff_id = self.diff_id(blob.digest)
        return diff_id is not None and (
            diff_id in self._layers or self._store.has(f"layer {diff_id}")
        )

    def read(
        self, blob: LayerBlob, extra: Collection[int] = frozenset(), room: int = MAX_ENTRIES
    ) -> LayerFacts:
        """Read a layer, cached or not. Raises `Unreadable`, and errors of opening it.

        `room`: see `read_layer`.
        """
        with blob.open() as chunks:
            layer = read_layer(
                self._report_progress(chunks),
                blob.size,
                blob.digest,
                extra,
                names_only=self._names_only,
                room=room,
            )
        self.bytes_read += blob.size
        self._fresh.add(layer.digest)
        if layer.is_final:
            self._store.save(f"layer {layer.digest}", layer)
        layer = self._layers[layer.digest] = self._spill_file.put(layer)
        trim_heap()
        for digest in {layer.blob, layer.digest}:
            self._digests[digest] = layer.digest
            if layer.is_final:
                self._store.save(f"blob {digest}", layer.digest)
        return layer

    def _report_progress(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        progress = self._progress()
        for chunk in chunks:
            self._passed += len(chunk)
            progress.part(STEP, self._passed, self._total, "bytes")
            yield chunk

    def facts(self, blob: LayerBlob, room: int = MAX_ENTRIES) -> LayerFacts:
        """Return the facts of one layer. Raises `Unreadable`, and errors of opening it.

        `room`: see `read_layer`.
        """
        return self.known(blob.digest) or self.read(blob, room=max(0, room))

    def layers(self, blobs: Sequence[LayerBlob]) -> list[LayerFacts]:
        """Return the facts of all layers. Raises `Unreadable`, and errors of opening one."""
        layers: list[LayerFacts] = []
        unknown = sum(blob.size for blob in blobs if self.known(blob.digest) is None)
        self._total = self._passed + unknown
        room = MAX_ENTRIES
        for number, blob in enumerate(blobs, 1):
            try:
                layers.append(self.facts(blob, room))
                room -= layers[-1].count
            except Unreadable as error:
                which = f"layer {number} of {len(blobs)}"
                raise Unreadable(f"{which} cannot be read: {error}") from error
        return layers

    def inventory(
        self,
        configuration: Configuration,
        blobs: Sequence[LayerBlob],
        facts: FactCache | None,
        asked: RecordedLookups | None = None,
    ) -> Inventory:
        """Return the inventory of an image; `facts` caches it under the digests of its layers.

        If it is not cached, `asked` records the lookups.

        Raises `Unreadable`, and errors of opening a layer.
        """
        layers = self.layers(blobs)

        def merged() -> Inventory:
            return merge_inventory(
                layers,
                configuration,
                lambda index, extra: self.read(blobs[index], extra),
                [index for index, layer in enumerate(layers) if layer.digest in self._fresh],
                self._python_answers,
                asked,
            )

        if facts is None:
            inventory = merged()
        else:
            inventory = facts.inventory(_inventory_key(configuration, layers), merged)
        seconds = round(time.monotonic() - self._started, 3)
        stats = replace(inventory.stats, bytes_read=self.bytes_read, seconds=seconds)
        return replace(inventory, stats=stats)


def _inventory_key(configuration: Configuration, layers: Sequence[LayerFacts]) -> str:
    """Return the cache key: all inputs of an inventory."""
    whole = (
        [layer.digest for layer in layers],
        sorted(configuration.environment.items()),
        sorted(configuration.labels.items()),
        configuration.digests,
        configuration.instructions,
        source_digest("images"),
    )
    return f"image {hashlib.sha256(msgspec.msgpack.encode(whole)).hexdigest()}"


# Images in a file or a folder, or exported by an engine


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
                documents[name] = Slice(BytesSource(content), 0, len(content))
            else:
                try:
                    layers[name] = _read_layer(export, name, member.data, reader)
                except Unreadable as error:
                    raise Unreadable(f"the layer {name} cannot be read: {error}") from error
    for name, target in links.items():
        if target in layers:
            layers.setdefault(name, layers[target])
    nothing = Slice(BytesSource(b""), 0, 0)
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
