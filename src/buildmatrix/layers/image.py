"""Images from any source: configuration, layers and inventory.

Facts are cached under a digest computed over all bytes of a layer: claims of names, manifests and
configurations are never trusted.
"""

from __future__ import annotations

import hashlib
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import overload

import msgspec

from buildmatrix.inventory.archive import PACKAGES
from buildmatrix.inventory.listing import RecordedLookups
from buildmatrix.inventory.model import SCHEMA, Inventory
from buildmatrix.inventory.workers import trim_heap
from buildmatrix.layers.merging import merge_inventory
from buildmatrix.layers.model import LAYER_FACTS, LayerFacts
from buildmatrix.layers.reading import read_layer
from buildmatrix.layers.saved_image import Configuration
from buildmatrix.progress import Progress, Silent
from buildmatrix.store.cache import DAY, Cache, source_digest
from buildmatrix.store.facts import FactCache
from buildmatrix.store.python_answers import PythonAnswers
from buildmatrix.trees.archive import Slice, Spool
from buildmatrix.trees.archive_layers import MAX_ENTRIES
from buildmatrix.trees.base import Unreadable

#: Bytes of all cached facts. Those of a layer with torch take 20 MB.
MAX_CACHED_BYTES = 4_000_000_000
_STR_DECODER = msgspec.msgpack.Decoder(str)


@dataclass(frozen=True, slots=True)
class LayerBlob:
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
        return _SpilledBlocks(self, [self._spool.kept(iter((block,))) for block in blocks])


class _SpilledBlocks(Sequence[bytes]):
    """Blocks of bytes, read from the file on access; usable in forked processes."""

    def __init__(self, owner: LayerSpillFile, places: Sequence[Slice]) -> None:
        self._owner = owner
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        place = self._places[index]
        return place.read(0, place.size)


class LayerReader:
    """Reader of layers and cache of their facts; without a disk cache, for this run only.

    With `names_only`, files are not inspected and nothing is cached. `progress` is opened by the
    first byte read.
    """

    def __init__(
        self,
        cache: Cache,
        *,
        names_only: bool = False,
        progress: Callable[[], Progress] = Silent,
    ) -> None:
        cache = Cache(None) if names_only else cache
        self._names_only = names_only
        self._progress = progress
        #: Bytes read so far, and in total; None if unknown.
        self._passed = 0
        self._total: int | None = None
        self._started = time.monotonic()
        version = f"{SCHEMA} {source_digest(*PACKAGES, 'store', 'layers')}"
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
        source_digest("layers"),
    )
    return f"image {hashlib.sha256(msgspec.msgpack.encode(whole)).hexdigest()}"
