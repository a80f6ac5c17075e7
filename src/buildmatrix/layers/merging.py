"""The facts of all layers of an image → its inventory, the same as of its unpacked files.

The layers are put over one another by `LayeredTree`, and `collect` reads the tree: what a file is
comes from the facts of its layer, and so do the bytes of what is read for what it says itself.
Links can lead to a file whose bytes nobody kept. Then its layer is read again, for those alone.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from buildmatrix.device_code.suffixes import SUFFIXES, strip_compression
from buildmatrix.inventory.collect import collect
from buildmatrix.inventory.file_facts import FileFacts
from buildmatrix.inventory.layers import add_layers
from buildmatrix.inventory.listing import RecordedLookups
from buildmatrix.inventory.model import Inventory
from buildmatrix.layers.model import KINDS, LayerFacts, unpacked
from buildmatrix.layers.saved_image import Configuration
from buildmatrix.python_imports.source import intern_outline, is_sourceless
from buildmatrix.python_imports.statements import has_literals
from buildmatrix.store.cache import Cache
from buildmatrix.store.python_answers import PythonAnswers
from buildmatrix.trees.archive import Slice, plain
from buildmatrix.trees.archive_layers import LayeredTree
from buildmatrix.trees.base import File, Unreadable
from buildmatrix.trees.tar import TarMember

#: Blocks of kept files that are unpacked at once.
_BLOCKS = 8
#: Times that layers are read again: a file that was missing can name others.
_AGAIN = 3
_NOTHING = FileFacts()

#: Reads one layer again, of which the files among these entries are wanted.
ReadAgain = Callable[[int, Collection[int]], LayerFacts]


def inventory_of(
    layers: Sequence[LayerFacts],
    configuration: Configuration,
    again: ReadAgain,
    fresh: Collection[int] = (),
    answers: PythonAnswers | None = None,
    asked: RecordedLookups | None = None,
) -> Inventory:
    """The inventory of the image that has these layers, the lowest first.

    Those with an index in `fresh` were read just now: their files do not count as recalled. `again`
    reads a layer again, by its index, and keeps the bytes of the files among the entries
    that it is given. `answers` has what was worked out about distributions before; `asked` takes
    what was looked for. Raises `Unreadable` where the configuration is that of other layers, and
    what `again` raises.
    """
    for number, layer in enumerate(layers):
        _check(configuration, number, layer)
    layers = list(layers)
    asked_for: dict[int, frozenset[int]] = {}
    for _ in range(_AGAIN):
        wanted = _Wanted(layers)
        inventory = _collected(layers, configuration, wanted, fresh, answers, asked)
        missing = wanted.entries()
        if not missing:
            break
        for number, entries in missing.items():
            asked_for[number] = asked_for.get(number, frozenset()) | entries
            layers[number] = again(number, asked_for[number])
            _check(configuration, number, layers[number])
    return inventory


def _check(configuration: Configuration, number: int, layer: LayerFacts) -> None:
    """Raises `Unreadable` for another layer than the configuration says."""
    digest = configuration.digests[number]
    if digest and layer.digest and digest != layer.digest:
        raise Unreadable(
            f"layer {number + 1} of {len(configuration.digests)} is another one than the "
            f"configuration says, {layer.digest}: no engine runs such an image"
        )


def _collected(
    layers: Sequence[LayerFacts],
    configuration: Configuration,
    wanted: _Wanted,
    fresh: Collection[int],
    answers: PythonAnswers | None,
    asked: RecordedLookups | None,
) -> Inventory:
    tree = MergedTree(layers, wanted)
    memory = _Memory(tree, fresh, answers or PythonAnswers(Cache(None)))
    inventory = collect(
        tree, configuration.environment, memory, memory, configuration.labels, asked=asked
    )
    inventory = replace(inventory, stats=replace(inventory.stats, cached=memory.recalled))
    digests = [
        layer.digest or digest for layer, digest in zip(layers, configuration.digests, strict=True)
    ]
    return add_layers(inventory, tree, digests, configuration.instructions)


def merged(layers: Sequence[LayerFacts]) -> MergedTree:
    """The files of the image that has these layers; of few of them the bytes are there."""
    return MergedTree(layers, _Wanted(layers))


class _Wanted:
    """Which entries are wanted and were not kept.

    In memory that forked processes share: parts of a tree are read in copies of this one.
    """

    def __init__(self, layers: Sequence[LayerFacts]) -> None:
        self._starts = [0]
        for layer in layers:
            self._starts.append(self._starts[-1] + layer.count)
        self._marks = mmap.mmap(-1, self._starts[-1] + 1)

    def mark(self, layer: int, entry: int) -> None:
        """Remember that the bytes of this entry are wanted."""
        self._marks[self._starts[layer] + entry] = 1

    def entries(self) -> dict[int, frozenset[int]]:
        """Index of a layer → indexes of its entries."""
        wanted: dict[int, set[int]] = {}
        at = self._marks.find(b"\1")
        while at >= 0:
            layer = next(n for n, start in enumerate(self._starts) if start > at) - 1
            wanted.setdefault(layer, set()).add(at - self._starts[layer])
            at = self._marks.find(b"\1", at + 1)
        return {layer: frozenset(entries) for layer, entries in wanted.items()}


class _LayerFile:
    """The bytes of a file in a layer, as far as they were kept, and what is known of it."""

    __slots__ = ("bytes_read", "entry", "facts", "layer", "name", "place", "sha256", "tree")

    def __init__(
        self,
        tree: MergedTree,
        layer: int,
        entry: int,
        name: str,
        sha256: bytes,
        place: tuple[int, int] | None,
        facts: FileFacts,
    ) -> None:
        self.tree = tree
        self.layer = layer
        self.entry = entry
        self.name = name
        self.sha256 = sha256
        self.place = place
        self.facts = facts
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `RandomAccess.read`."""
        if self.place is None:
            self.tree.wanted.mark(self.layer, self.entry)
            raise Unreadable("its bytes were not kept when its layer was read")
        block, start = self.place
        return self.tree.block(self.layer, block)[start + offset : start + offset + length]


class MergedTree(LayeredTree):
    """The files of an image, merged from the facts of its layers. Raises `Unreadable`."""

    def __init__(self, layers: Sequence[LayerFacts], wanted: _Wanted) -> None:
        self.wanted = wanted

        @lru_cache(_BLOCKS)
        def block(layer: int, number: int) -> bytes:
            return unpacked(layers[layer].kept[number])

        self.block = block
        super().__init__([self._members(number, layer) for number, layer in enumerate(layers)])

    def _members(self, number: int, layer: LayerFacts) -> Iterator[TarMember]:
        for index, entry in enumerate(layer.unpack()):
            name = os.fsdecode(entry.name)
            data = None
            if entry.size is not None:
                facts = entry.facts or _NOTHING
                if facts.outline is not None:
                    facts = replace(facts, outline=intern_outline(facts.outline))
                file = _LayerFile(self, number, index, name, entry.sha256, entry.place, facts)
                data = Slice(file, 0, entry.size)
            yield TarMember(name, KINDS[entry.kind], data, os.fsdecode(entry.target))

    def file(self, path: str) -> _LayerFile:
        """What is known of the file `path`. Raises OSError."""
        data = self.data(path)
        if data is None or not isinstance(data.source, _LayerFile):
            raise Unreadable("no file of a layer")
        return data.source

    def sha256(self, path: str) -> bytes | None:
        """See `Tree.sha256`."""
        return self.file(path).sha256 or None


class _Memory:
    """A `FactMemory`, what was seen of each file when its layer passed by; and a `PythonMemory`."""

    def __init__(self, tree: MergedTree, fresh: Collection[int], answers: PythonAnswers) -> None:
        self.recall_python = answers.recall_python
        self.keep_python = answers.keep_python
        self._tree = tree
        self._fresh = fresh
        #: Files of layers that were read before.
        self.recalled = 0

    def recall(self, file: File) -> FileFacts | None:
        """See `FactMemory.recall`. A link may have a name that says something else."""
        stored = self._tree.file(file.path)
        name = plain(stored.name) or ""
        if name == file.path:
            stored.name = file.path  # One string for both: an image has some 50,000.
        if name == file.path or _meaning(name, stored.facts) == _meaning(file.path, stored.facts):
            self.recalled += stored.layer not in self._fresh
            return stored.facts
        return None

    def content(self, file: File) -> bytes | None:
        """See `PythonMemory.content`."""
        return self._tree.sha256(file.path)

    def keep(self, file: File, facts: FileFacts) -> None:
        """See `FactMemory.keep`."""


def _meaning(path: str, facts: FileFacts) -> tuple[object, ...]:
    """What the name of a file says of it (`collect.look`, and how its container is opened)."""
    if facts.elf is not None and facts.contents is None:
        return ()
    name = path.rpartition("/")[2]
    suffix = strip_compression(name).rpartition(".")[2].lower()
    return (
        path.endswith((".py", ".pth")),
        has_literals(path, 0),
        is_sourceless(path),
        suffix if suffix in SUFFIXES else "",
        name if facts.contents is not None else "",
    )
