"""Common lower layers (stacks) of thousands of images, judged once.

The upper layers of most images only add files that nothing depends on (`fleet.stacks`). The
layers below them are the stack. It is judged once, and an image on it has its results, plus the
sizes of the additions. Stacks are saved in the store, too.

Thousands of images differ only in such layers. All facts of the layers below then hold for all of
them, except sizes. The decision takes two steps: the layer's own entries (`plain_layer`), and the
lookups in the tree below (`BaseTreeIndex.accepts`). Both decline if in doubt. A test compares
inventories with and without such layers.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from buildmatrix.base.data import replace
from buildmatrix.base.threads import prepare_type
from buildmatrix.catalogue.leftovers import in_caches
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.model import matches_any
from buildmatrix.facts.inventory.collect import is_content_read
from buildmatrix.facts.inventory.file_facts import FileFacts
from buildmatrix.facts.inventory.folders import MOST_FOLDERS
from buildmatrix.facts.inventory.listing import RecordedLookups, readable
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.trees.archive import safe_path
from buildmatrix.facts.trees.archive_layers import WHITEOUT
from buildmatrix.fleet.judging import ImageQuestion, JudgedImage, add_image, add_layers, judge
from buildmatrix.images.image import LayerBlob, LayerReader
from buildmatrix.images.layer_facts import KINDS, LayerFacts, compress, decompress
from buildmatrix.images.layers import parent_folders
from buildmatrix.images.saved_image import Configuration
from buildmatrix.images.store.cache import DAY, Cache, source_digest
from buildmatrix.reports.fleet import FleetResult
from buildmatrix.sources.images import ImageDocuments

#: Entries per layer; merging a larger one takes as long.
MAX_ENTRIES = 20_000
#: Maximum depth: `read_layer` reports deeper paths, and folders are counted down to a depth.
_MAX_DEPTH = 64
#: Path components that readers look for by name, and suffixes of others.
_PARTS = frozenset({"site-packages", "dist-packages", "conda-meta", "node_modules"})
_PART_ENDS = (".dist-info", ".egg-info", ".egg", ".data")
_LOOKED_FOR = re.compile(r"\.so(\.|$)|(?:^|/)bin/python[0-9.]*$")
_NO_FACTS = FileFacts()
#: Bytes per path in `PathHashes`.
_HASH_BYTES = 8


class PlainLayer(msgspec.Struct, frozen=True):
    """A layer that only adds files and folders without meaning to other readers."""

    #: Paths, decoded as the reader does, and sizes in bytes.
    files: tuple[tuple[str, int], ...]
    folders: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Total bytes of its files."""
        return sum(size for _, size in self.files)


def plain_layer(layer: LayerFacts) -> PlainLayer | None:
    """Return `layer` as a plain one; None if it may do more.

    Python sources only matter beside distributions, which `BaseTreeIndex` decides.
    """
    if not layer.is_final or layer.count > MAX_ENTRIES:
        return None
    files: dict[str, int] = {}
    folders: list[str] = []
    for entry in layer.unpack():
        path = safe_path(os.fsdecode(entry.name))
        kind = KINDS[entry.kind]
        if path is None or readable(path) != path or path.count("/") > _MAX_DEPTH:
            return None
        if path.rpartition("/")[2].startswith(WHITEOUT):
            return None
        if kind == "folder":
            if path:
                folders.append(path)
            continue
        facts = entry.facts or _NO_FACTS
        if kind != "file" or entry.size is None or not path or path in files:
            return None
        if replace(facts, outline=None, stated=None, bytes_read=0) != _NO_FACTS:
            return None
        if _is_looked_for(path):
            return None
        files[path] = entry.size
    return PlainLayer(tuple(files.items()), tuple(folders))


def _is_looked_for(path: str) -> bool:
    """Return True if a reader looks for files of this name in any folder."""
    parts = path.split("/")
    return (
        not _PARTS.isdisjoint(parts)
        or any(part.endswith(_PART_ENDS) for part in parts)
        or _LOOKED_FOR.search(path) is not None
        or (is_content_read(path, 0) and not path.endswith(".py"))
    )


class PathHashes(msgspec.Struct, frozen=True):
    """Set of paths, stored as hashes that are equal on every machine.

    Every member is found; one in about 10^13 other paths is found by collision. Use it only where
    that merely costs time.
    """

    #: Sorted BLAKE2b hashes of 8 bytes (RFC 7693).
    data: bytes = b""

    @classmethod
    def of(cls, paths: Iterable[str]) -> PathHashes:
        """Create the set of these paths."""
        return cls(b"".join(sorted(set(map(_hash, paths)))))

    def __contains__(self, path: str) -> bool:
        wanted = _hash(path)
        at = bisect_left(range(len(self.data) // _HASH_BYTES), wanted, key=self._at)
        return self._at(at) == wanted

    def _at(self, number: int) -> bytes:
        return self.data[number * _HASH_BYTES : (number + 1) * _HASH_BYTES]


def _hash(path: str) -> bytes:
    return hashlib.blake2b(os.fsencode(path), digest_size=_HASH_BYTES).digest()


class BaseTreeIndex(msgspec.Struct, frozen=True):
    """Tree below plain layers, indexed by what its readers looked for.

    A layer with a path in any set is declined: a hash collision declines a layer needlessly, and is
    harmless otherwise.
    """

    #: Files and links, and folders above them.
    names: PathHashes = PathHashes()
    folders: PathHashes = PathHashes()
    #: Lookups that found nothing.
    absent: PathHashes = PathHashes()
    listed: PathHashes = PathHashes()
    #: Folders whose whole content matters, including those of distributions.
    whole: tuple[str, ...] = ()

    @classmethod
    def of(cls, asked: RecordedLookups, sites: Sequence[str]) -> BaseTreeIndex:
        """Index a tree by the lookups `asked`; `sites` are folders with distributions."""
        folders = {above for name in asked.names for above in parent_folders(name)}
        return cls(
            names=PathHashes.of(asked.names),
            folders=PathHashes.of(folders),
            absent=PathHashes.of(asked.absent - folders),
            listed=PathHashes.of(asked.listed),
            whole=tuple(sorted({*asked.below, *sites})),
        )

    def accepts(self, layers: Sequence[PlainLayer], is_counted: Callable[[str], bool]) -> bool:
        """Return True if all facts of the tree still hold with these layers on top.

        `is_counted` returns True for folders whose bytes have a meaning.
        """
        files = [path for layer in layers for path, _ in layer.files]
        folders = {path for layer in layers for path in layer.folders}
        for path in (*files, *folders):
            folders.update(parent_folders(path))
        if len(set(files)) < len(files) or not folders.isdisjoint(files):
            return False  # One layer replaces a file of another.
        # A folder may replace a file or a link, or be where an earlier search found nothing.
        return not any(map(is_counted, folders)) and not (
            any(map(self._is_changed, files))
            or any(path in self.names or path in self.absent for path in folders)
        )

    def _is_changed(self, path: str) -> bool:
        """Return True if a new file changes the result of a lookup."""
        folder = path.rpartition("/")[0]
        return (
            path in self.names
            or path in self.folders
            or path in self.absent
            or folder in self.listed
            or any(not whole or f"{path}/".startswith(f"{whole}/") for whole in self.whole)
        )

    @property
    def size(self) -> int:
        """Approximate bytes in memory."""
        hashes = (self.names, self.folders, self.absent, self.listed)
        return sum(len(item.data) for item in hashes)


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
        if data is None:
            # Workers begin with images of the same few stacks: one makes a stack, the others wait.
            with self._store.making(key):
                data = self._store.get(key)
                if data is None:
                    made = _make_stack(configuration, blobs, question, whole.labels, reader)
                    data = compress(msgspec.msgpack.encode(made))
                    self._store.put(key, data)
        stack = _STACK.decode(decompress(data))
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
