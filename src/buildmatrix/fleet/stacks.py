"""Common lower layers (stacks) of thousands of images, judged once.

The upper layers of most images only add files that nothing depends on (`images.layers.adding`). The
layers below them are the stack. It is judged once, and an image on it has its results, plus the
sizes of the additions. Stacks are saved in the store, too.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from buildmatrix.base.threads import prepare_type
from buildmatrix.catalogue.leftovers import in_caches
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.names import matches_any
from buildmatrix.facts.inventory.folders import MOST_FOLDERS
from buildmatrix.facts.inventory.listing import RecordedLookups
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.fleet.judging import ImageQuestion, JudgedImage, add_image, add_layers, judge
from buildmatrix.images.layers.adding import BaseTreeIndex, PlainLayer, plain_layer
from buildmatrix.images.layers.image import LayerBlob, LayerReader
from buildmatrix.images.layers.layer_facts import compress, decompress
from buildmatrix.images.layers.saved_image import Configuration
from buildmatrix.images.store.cache import DAY, Cache, source_digest
from buildmatrix.reports.fleet.model import FleetResult
from buildmatrix.sources.images import ImageDocuments

#: Size limit of all stacks in a machine's folder (some 300 KB each), and of layers that may be on
#: them.
LIMIT = 1_000_000_000
#: Memory limit of all stacks in a process; each has some 100 KB.
MOST_BYTES = 10_000_000
MOST_LAYERS = 2_000
#: Variables that readers and rules know by name; others are in the catalogue.
_VARIABLES = frozenset(
    {"HOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "PYTHONNOUSERSITE", "PYTHONPATH",
     "PYTHONUSERBASE"}
)  # fmt: skip


class Stack(msgspec.Struct, frozen=True):
    """The lower layers of an image, judged as if they were all of it."""

    #: Empty if an image on it may differ.
    judged: tuple[JudgedImage, ...]
    below: BaseTreeIndex
    #: Relevant variables of the image: they may name caches.
    environment: Mapping[str, str]


class _KnownLayer(msgspec.Struct, frozen=True):
    """A layer's additions, if it only adds."""

    plain: PlainLayer | None


#: Created here, by one thread: msgspec 0.22 crashes if several meet a dataclass for the first time.
_STACK = msgspec.msgpack.Decoder(prepare_type(Stack))
_LAYER = msgspec.msgpack.Decoder(prepare_type(_KnownLayer))


class Stacks:
    """A process's stacks; thread-safe."""

    def __init__(self, cache: Cache) -> None:
        self._store = cache.store("stacks", source_digest(), limit=LIMIT, age=90 * DAY, by_use=True)
        self._lock = threading.Lock()
        self._stacks: OrderedDict[str, Stack] = OrderedDict()
        self._layers: OrderedDict[str, PlainLayer | None] = OrderedDict()

    def results(
        self,
        image: ImageDocuments,
        blobs: Sequence[LayerBlob],
        question: ImageQuestion,
        reader: LayerReader,
    ) -> tuple[FleetResult, ...]:
        """Return the results of an image on a stack; none if uncertain.

        Raises the errors of reading layers.
        """
        digests = [reader.diff_id(blob.digest) or reader.facts(blob).digest for blob in blobs]
        claimed = image.configuration.digests
        if any(claim not in ("", digest) for claim, digest in zip(claimed, digests, strict=True)):
            return ()
        above: list[PlainLayer] = []
        for blob, digest in zip(reversed(blobs), reversed(digests), strict=True):
            layer = self._make_layer(blob, digest, reader)
            if layer is None:
                break
            above.insert(0, layer)
        height = len(blobs) - len(above)
        if not above or not height:
            return ()
        stack = self._stack(image.configuration, blobs[:height], digests, question, reader)
        if not stack.judged or not stack.below.accepts(
            above, in_caches(Inventory(environment=stack.environment), question.catalogue)
        ):
            return ()
        sizes = [layer.size for layer in above]
        return tuple(
            add_image(add_layers(item.result, sizes), image, question) for item in stack.judged
        )

    def _make_layer(self, blob: LayerBlob, digest: str, reader: LayerReader) -> PlainLayer | None:
        """Return a layer's additions, if it only adds."""
        with self._lock:
            if digest in self._layers:
                return self._layers[digest]
        key = f"layer {digest}"
        known = self._store.load(key, _LAYER)
        layer = known.plain if known is not None else plain_layer(reader.facts(blob))
        if known is None:
            self._store.save(key, _KnownLayer(layer))
        with self._lock:
            self._layers[digest] = layer
            while len(self._layers) > MOST_LAYERS:
                self._layers.popitem(last=False)
        return layer

    def _stack(
        self,
        whole: Configuration,
        blobs: Sequence[LayerBlob],
        digests: Sequence[str],
        question: ImageQuestion,
        reader: LayerReader,
    ) -> Stack:
        height, catalogue = len(blobs), question.catalogue
        configuration = replace(
            whole,
            environment={
                name: text
                for name, text in whole.environment.items()
                if is_relevant_variable(name, catalogue)
            },
            labels={
                name: text
                for name, text in whole.labels.items()
                if any(matches_any(row.entry.names, name) for row in catalogue.image_labels)
            },
            digests=whole.digests[:height],
            instructions=whole.instructions[:height],
        )
        about = msgspec.msgpack.encode(
            (
                digests[:height],
                configuration.instructions,
                sorted(configuration.environment.items()),
                sorted(configuration.labels.items()),
            )
        )
        name = f"stack {hashlib.sha256(about).hexdigest()}"
        key = question.make_key(name, whole.labels)
        with self._lock:
            stack = self._stacks.get(key)
            if stack is not None:
                self._stacks.move_to_end(key)
                return stack
        data = self._store.get(key)
        stack = _STACK.decode(decompress(data)) if data is not None else None
        if stack is None:
            stack = _make_stack(configuration, blobs, question, whole.labels, reader)
            self._store.put(key, compress(msgspec.msgpack.encode(stack)))
        with self._lock:
            self._stacks[key] = stack
            while sum(item.below.size for item in self._stacks.values()) > MOST_BYTES:
                self._stacks.popitem(last=False)
        return stack


def _make_stack(
    configuration: Configuration,
    blobs: Sequence[LayerBlob],
    question: ImageQuestion,
    labels: Mapping[str, str],
    reader: LayerReader,
) -> Stack:
    """Make the stack of these layers."""
    is_final = all(layer.is_final for layer in reader.layers(blobs))
    asked = RecordedLookups()
    inventory = reader.inventory(configuration, blobs, None, asked)
    judged = judge(inventory, labels, question)
    is_certain = is_final and len(inventory.folders) < MOST_FOLDERS // 2
    if not is_certain or not all(item.is_growing for item in judged):
        return Stack((), BaseTreeIndex(), {})
    sites = [item.path.rpartition("/")[0] for item in inventory.distributions]
    return Stack(judged, BaseTreeIndex.of(asked, sites), configuration.environment)


def is_relevant_variable(name: str, catalogue: Catalogue) -> bool:
    """True if a variable of an image is relevant to readers or rules."""
    return (
        name in _VARIABLES
        or bool(catalogue.environment.find(name))
        or any(name in row.entry.variables for row in catalogue.caches)
        or any(
            name in (row.entry.unless, row.entry.legacy) or matches_any(row.entry.variables, name)
            for row in catalogue.conditions
        )
    )
