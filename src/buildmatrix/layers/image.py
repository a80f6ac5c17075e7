"""An image, wherever it lies: its configuration, its layers, and its inventory.

One way for all of them. Facts are kept under the digest that was computed over all bytes of a layer
while they passed by: what a name, a manifest or a configuration claims is never enough.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import msgspec

from buildmatrix.inventory.archive import PACKAGES
from buildmatrix.inventory.listing import RecordedLookups
from buildmatrix.inventory.model import SCHEMA, Inventory
from buildmatrix.inventory.workers import trim_heap
from buildmatrix.layers.merging import inventory_of
from buildmatrix.layers.model import LAYER_FACTS, LayerFacts
from buildmatrix.layers.reading import read_layer
from buildmatrix.layers.resting import RestingBlocks
from buildmatrix.layers.saved_image import Configuration
from buildmatrix.progress import Progress, Silent
from buildmatrix.store.cache import DAY, Cache, code
from buildmatrix.store.facts import FactCache
from buildmatrix.store.python_answers import PythonAnswers
from buildmatrix.trees.archive_layers import MOST_ENTRIES
from buildmatrix.trees.base import Unreadable

#: Bytes of the facts of all layers together. Those of a layer with torch have 20 MB.
LIMIT = 4_000_000_000
_TEXT = msgspec.msgpack.Decoder(str)


@dataclass(frozen=True, slots=True)
class LayerBlob:
    """A layer as the image's place has it, maybe compressed."""

    #: `sha256:...` of its bytes; empty where nothing says it.
    digest: str
    #: Bytes.
    size: int
    #: All of its bytes.
    open: Callable[[], AbstractContextManager[Iterator[bytes]]]


#: What progress calls the layers of an image.
STEP = "layers"


class LayerReader:
    """Reads layers that are not known yet. Without a cache, it knows those that it read itself.

    With `names_only`, no file of a layer is looked at, and nothing is kept. `progress` is opened
    when the first byte is read.
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
        #: Bytes that have passed by, and those that will have; None where nobody knows.
        self._passed = 0
        self._total: int | None = None
        self._started = time.monotonic()
        version = f"{SCHEMA} {code(*PACKAGES, 'store', 'layers')}"
        self._store = cache.store("layers", version, limit=LIMIT, age=90 * DAY, by_use=True)
        self._answers = PythonAnswers(cache)
        #: Digest of the uncompressed bytes → facts; digest of a blob → that digest.
        self._layers: dict[str, LayerFacts] = {}
        self._resting = RestingBlocks()
        self._digests: dict[str, str] = {}
        #: Bytes that were read, and the digests of the layers that they were of.
        self.bytes_read = 0
        self._fresh: set[str] = set()

    def known(self, digest: str) -> LayerFacts | None:
        """The facts of the layer with the blob `digest`, if it was read before."""
        if not digest:
            return None
        inner = self.inner(digest)
        if inner is None:
            return None
        layer = self._layers.get(inner)
        if layer is None:
            layer = self._store.load(f"layer {inner}", LAYER_FACTS)
            if layer is None:
                return None
            layer = self._resting.put(layer)
        self._layers[inner] = layer
        return layer

    def inner(self, digest: str) -> str | None:
        """Digest of the uncompressed bytes of the blob `digest`, if it was read before."""
        inner = self._digests.get(digest) or self._store.load(f"blob {digest}", _TEXT)
        if inner is not None:
            self._digests[digest] = inner
        return inner

    def has(self, blob: LayerBlob) -> bool:
        """Whether a layer is known, as far as one can tell without its facts."""
        if not blob.digest:
            return False
        inner = self.inner(blob.digest)
        return inner is not None and (inner in self._layers or self._store.has(f"layer {inner}"))

    def read(
        self, blob: LayerBlob, also: Collection[int] = frozenset(), room: int = MOST_ENTRIES
    ) -> LayerFacts:
        """Read a layer, known or not. Raises `Unreadable`, and what opening it raises.

        `room`: see `read_layer`.
        """
        with blob.open() as chunks:
            layer = read_layer(
                self._counted(chunks),
                blob.size,
                blob.digest,
                also,
                names_only=self._names_only,
                room=room,
            )
        self.bytes_read += blob.size
        self._fresh.add(layer.digest)
        if layer.is_final:
            self._store.save(f"layer {layer.digest}", layer)
        layer = self._layers[layer.digest] = self._resting.put(layer)
        trim_heap()
        for digest in {layer.blob, layer.digest}:
            self._digests[digest] = layer.digest
            if layer.is_final:
                self._store.save(f"blob {digest}", layer.digest)
        return layer

    def _counted(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        progress = self._progress()
        for chunk in chunks:
            self._passed += len(chunk)
            progress.part(STEP, self._passed, self._total, "bytes")
            yield chunk

    def facts(self, blob: LayerBlob, room: int = MOST_ENTRIES) -> LayerFacts:
        """The facts of one layer. Raises `Unreadable`, and what opening it raises.

        `room`: see `read_layer`.
        """
        return self.known(blob.digest) or self.read(blob, room=max(0, room))

    def layers(self, blobs: Sequence[LayerBlob]) -> list[LayerFacts]:
        """The facts of all layers. Raises `Unreadable`, and what opening one raises."""
        layers: list[LayerFacts] = []
        unknown = sum(blob.size for blob in blobs if self.known(blob.digest) is None)
        self._total = self._passed + unknown
        room = MOST_ENTRIES
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
        """The inventory of an image; `facts` keeps it under the digests of its layers.

        Without it, `asked` takes what was looked for among its names.

        Raises `Unreadable`, and what opening a layer raises.
        """
        layers = self.layers(blobs)

        def merged() -> Inventory:
            return inventory_of(
                layers,
                configuration,
                lambda index, also: self.read(blobs[index], also),
                [index for index, layer in enumerate(layers) if layer.digest in self._fresh],
                self._answers,
                asked,
            )

        if facts is None:
            inventory = merged()
        else:
            inventory = facts.inventory(_key(configuration, layers), merged)
        seconds = round(time.monotonic() - self._started, 3)
        stats = replace(inventory.stats, bytes_read=self.bytes_read, seconds=seconds)
        return replace(inventory, stats=stats)


def _key(configuration: Configuration, layers: Sequence[LayerFacts]) -> str:
    """Names all that an inventory depends on."""
    whole = (
        [layer.digest for layer in layers],
        sorted(configuration.environment.items()),
        sorted(configuration.labels.items()),
        configuration.digests,
        configuration.instructions,
        code("layers"),
    )
    return f"image {hashlib.sha256(msgspec.msgpack.encode(whole)).hexdigest()}"
