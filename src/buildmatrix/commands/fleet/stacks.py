"""Thousands of images on a few stacks: what is known of a stack serves all that lies on it.

The uppermost layers of most images only add files that nothing depends on (`layers.adding`). The
layers below them are the stack. It is judged once, and an image on it has its results, with the
sizes of what was added. What is known of a stack stands in the store as well.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from buildmatrix.catalogue.leftovers import in_caches
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.names import matches_any
from buildmatrix.commands.fleet.judging import Judged, Question, grown, judge, of_image
from buildmatrix.inventory.folders import MOST_FOLDERS
from buildmatrix.inventory.listing import RecordedLookups
from buildmatrix.inventory.model import Inventory
from buildmatrix.layers.adding import Below, PlainLayer, plain_layer
from buildmatrix.layers.image import LayerBlob, LayerReader
from buildmatrix.layers.model import packed, unpacked
from buildmatrix.layers.saved_image import Configuration
from buildmatrix.reports.fleet.model import FleetResult
from buildmatrix.sources.registry import ImageDocuments
from buildmatrix.store.cache import DAY, Cache, code

#: Bytes of all stacks in the folder of one machine, some 300 KB each; and of what is known of
#: layers that may lie on them.
LIMIT = 1_000_000_000
#: Bytes of all stacks that a process has in memory together; one has some 100 KB.
MOST_BYTES = 10_000_000
MOST_LAYERS = 2_000
#: Variables that readers and rules know by their names; others are the catalogue's.
_VARIABLES = frozenset(
    {"HOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "PYTHONNOUSERSITE", "PYTHONPATH",
     "PYTHONUSERBASE"}
)  # fmt: skip


class Stack(msgspec.Struct, frozen=True):
    """The lower layers of an image, judged as if they were all of it."""

    #: None where an image on it may be something else.
    judged: tuple[Judged, ...]
    below: Below
    #: Variables of the image, as far as they count: they may name caches.
    environment: Mapping[str, str]


class _KnownLayer(msgspec.Struct, frozen=True):
    """What is known of a layer: what it adds, where that is all that it does."""

    plain: PlainLayer | None


#: Made here, by one thread: msgspec 0.22 crashes where several meet a dataclass for the first time.
_STACK = msgspec.msgpack.Decoder(Stack)
_LAYER = msgspec.msgpack.Decoder(_KnownLayer)


class Stacks:
    """What a process knows of stacks; for all threads at once."""

    def __init__(self, cache: Cache) -> None:
        self._store = cache.store("stacks", code(), limit=LIMIT, age=90 * DAY, by_use=True)
        self._lock = threading.Lock()
        self._stacks: OrderedDict[str, Stack] = OrderedDict()
        self._layers: OrderedDict[str, PlainLayer | None] = OrderedDict()

    def results(
        self,
        image: ImageDocuments,
        blobs: Sequence[LayerBlob],
        question: Question,
        reader: LayerReader,
    ) -> tuple[FleetResult, ...]:
        """The results of an image that lies on a stack; none where that is not sure.

        Raises what reading layers raises.
        """
        digests = [reader.inner(blob.digest) or reader.facts(blob).digest for blob in blobs]
        claimed = image.configuration.digests
        if any(claim not in ("", digest) for claim, digest in zip(claimed, digests, strict=True)):
            return ()
        above: list[PlainLayer] = []
        for blob, digest in zip(reversed(blobs), reversed(digests), strict=True):
            layer = self._layer(blob, digest, reader)
            if layer is None:
                break
            above.insert(0, layer)
        height = len(blobs) - len(above)
        if not above or not height:
            return ()
        stack = self._stack(image.configuration, blobs[:height], digests, question, reader)
        if not stack.judged or not stack.below.takes(
            above, in_caches(Inventory(environment=stack.environment), question.catalogue)
        ):
            return ()
        sizes = [layer.size for layer in above]
        return tuple(of_image(grown(item.result, sizes), image, question) for item in stack.judged)

    def _layer(self, blob: LayerBlob, digest: str, reader: LayerReader) -> PlainLayer | None:
        """What a layer adds, where that is all that it does."""
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
        question: Question,
        reader: LayerReader,
    ) -> Stack:
        height, catalogue = len(blobs), question.catalogue
        configuration = replace(
            whole,
            environment={
                name: text for name, text in whole.environment.items() if is_read(name, catalogue)
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
        key = question.key(name, whole.labels)
        with self._lock:
            stack = self._stacks.get(key)
            if stack is not None:
                self._stacks.move_to_end(key)
                return stack
        data = self._store.get(key)
        stack = _STACK.decode(unpacked(data)) if data is not None else None
        if stack is None:
            stack = _made(configuration, blobs, question, whole.labels, reader)
            self._store.put(key, packed(msgspec.msgpack.encode(stack)))
        with self._lock:
            self._stacks[key] = stack
            while sum(item.below.size for item in self._stacks.values()) > MOST_BYTES:
                self._stacks.popitem(last=False)
        return stack


def _made(
    configuration: Configuration,
    blobs: Sequence[LayerBlob],
    question: Question,
    labels: Mapping[str, str],
    reader: LayerReader,
) -> Stack:
    """The stack of these layers."""
    is_final = all(layer.is_final for layer in reader.layers(blobs))
    asked = RecordedLookups()
    inventory = reader.inventory(configuration, blobs, None, asked)
    judged = judge(inventory, labels, question)
    is_certain = is_final and len(inventory.folders) < MOST_FOLDERS // 2
    if not is_certain or not all(item.is_growing for item in judged):
        return Stack((), Below(), {})
    sites = [item.path.rpartition("/")[0] for item in inventory.distributions]
    return Stack(judged, Below.of(asked, sites), configuration.environment)


def is_read(name: str, catalogue: Catalogue) -> bool:
    """Whether a variable of an image means something to readers or rules."""
    return (
        name in _VARIABLES
        or bool(catalogue.environment.find(name))
        or any(name in row.entry.variables for row in catalogue.caches)
        or any(
            name in (row.entry.unless, row.entry.legacy) or matches_any(row.entry.variables, name)
            for row in catalogue.conditions
        )
    )
