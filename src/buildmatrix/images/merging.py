"""Merge the facts of an image's layers into its inventory, as if read from unpacked files.

`LayeredTree` stacks the layers, and `collect` reads the tree: facts and stored contents of files
come from their layer. If a link leads to a file whose content was not stored, its layer is read
again. Files that a later layer hides are listed by layer.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import nlargest

from msgspec import Struct, field

from buildmatrix.base.data import replace
from buildmatrix.facts.elf.model import SUFFIXES, strip_compression
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.file_facts import FileFacts
from buildmatrix.facts.inventory.listing import RecordedLookups, readable
from buildmatrix.facts.inventory.model import Inventory, Layer, ShadowedFiles
from buildmatrix.facts.python_imports.source import intern_outline, is_sourceless
from buildmatrix.facts.python_imports.statements import has_literals
from buildmatrix.facts.trees.archive import Slice, safe_path
from buildmatrix.facts.trees.archive_layers import HiddenFile, LayeredTree
from buildmatrix.facts.trees.base import File, Unreadable
from buildmatrix.facts.trees.tar import TarMember
from buildmatrix.images.layer_facts import KINDS, LayerFacts, decompress
from buildmatrix.images.saved_image import Configuration
from buildmatrix.images.store.cache import Cache
from buildmatrix.images.store.folder import PythonAnswers

# Layer of each fact, and hidden files


#: Listed groups of hidden files, and the least size of a group.
MOST_SHADOWED = 500
SMALLEST_SHADOWED = 64 << 10
#: Names listed per group.
MOST_NAMES = 12
#: Folder components that hidden files outside of any site-packages are grouped by.
_DEPTH = 3
#: Folders that name a distribution with its version; listed in any size.
_METADATA = (".dist-info", ".egg-info")
_SITES = frozenset({"site-packages", "dist-packages"})


def add_layers(
    inventory: Inventory, tree: LayeredTree, digests: Iterable[str], instructions: Iterable[str]
) -> Inventory:
    """Add to `inventory` the layers of its image.

    `digests` and `instructions` have one text for each layer of `tree`, empty if unknown.
    """
    hidden = list(tree.hidden_files())
    lost = [0] * len(tree.sizes)
    for item in hidden:
        lost[item.layer] += item.size
    return replace(
        inventory,
        layers=tuple(
            Layer(digest, readable(text), size, hidden_size)
            for digest, text, size, hidden_size in zip(
                digests, instructions, tree.sizes, lost, strict=True
            )
        ),
        origins=dict(sorted(_find_origins(inventory, tree))),
        buried=_group_shadowed(hidden),
    )


def layered_paths(inventory: Inventory) -> Iterator[str]:
    """Yield the paths of facts that get a layer in an inventory."""
    for facts in (
        inventory.binaries,
        inventory.artefacts,
        inventory.containers,
        inventory.folders,
        inventory.links,
        inventory.distributions,
        inventory.python_loads,
    ):
        for fact in facts:
            yield fact.path


def _find_origins(inventory: Inventory, tree: LayeredTree) -> Iterator[tuple[str, int]]:
    places = [(path, path) for path in layered_paths(inventory)]
    # Nested files lie where their container lies.
    places += [(item.path, item.container) for item in inventory.binaries if item.container]
    places += [(item.path, item.container) for item in inventory.artefacts if item.container]
    for path, place in places:
        layer = tree.origin(place)
        if layer is not None:
            yield path, layer


class _ShadowedGroup(Struct):
    files: int = 0
    size: int = 0
    names: list[tuple[int, str]] = field(default_factory=list)


def _group_shadowed(hidden: Iterable[HiddenFile]) -> tuple[ShadowedFiles, ...]:
    """Group hidden files by package or folder, layers, and manner, the largest first."""
    groups: dict[tuple[str, int, int, bool], _ShadowedGroup] = {}
    for item in hidden:
        key = _group_path(item.path), item.layer, item.by, item.replaced
        group = groups.setdefault(key, _ShadowedGroup())
        group.files += 1
        group.size += item.size
        name = item.path.rpartition("/")[2]
        if ".so" in name or "." not in name:
            group.names.append((item.size, name))
            if len(group.names) > 20 * MOST_NAMES:
                group.names = nlargest(MOST_NAMES, group.names)
    buried_groups = [
        ShadowedFiles(
            readable(path),
            group.files,
            group.size,
            layer,
            by,
            replaced,
            tuple(readable(name) for _, name in nlargest(MOST_NAMES, group.names)),
        )
        for (path, layer, by, replaced), group in groups.items()
        if group.size >= SMALLEST_SHADOWED or path.endswith(_METADATA)
    ]
    buried_groups.sort(
        key=lambda buried: (-buried.size, buried.path, buried.layer, buried.by, buried.replaced)
    )
    return tuple(buried_groups[:MOST_SHADOWED])


def _group_path(path: str) -> str:
    """Return the package folder of a file in site-packages, else the first folders of its path."""
    parts = path.split("/")
    for at, part in enumerate(parts[:-1]):
        if part in _SITES:
            return "/".join(parts[: at + 2])
    return "/".join(parts[:-1][:_DEPTH])


# Merge


#: Unpacked blocks of contents in memory.
_CACHED_BLOCKS = 8
#: Maximum rounds of reading again: a file that was missing can name others.
_MAX_ROUNDS = 3
_NO_FACTS = FileFacts()

#: Reads one layer again and stores the content of these entries.
RereadLayer = Callable[[int, Collection[int]], LayerFacts]


def merge_inventory(
    layers: Sequence[LayerFacts],
    configuration: Configuration,
    reread: RereadLayer,
    fresh: Collection[int] = (),
    answers: PythonAnswers | None = None,
    asked: RecordedLookups | None = None,
) -> Inventory:
    """Return the inventory of the image with these layers, bottom layer first.

    Args:
        layers: facts of the layers.
        configuration: of the image.
        reread: reads a layer again, by its index, and stores the content of the entries given.
        fresh: indexes of layers read in this run: their files do not count as cached.
        answers: earlier results about distributions.
        asked: records the lookups.

    Raises `Unreadable` if the configuration is that of other layers, and errors of `reread`.
    """
    for number, layer in enumerate(layers):
        _check_diff_id(configuration, number, layer)
    layers = list(layers)
    asked_for: dict[int, frozenset[int]] = {}
    for _ in range(_MAX_ROUNDS):
        wanted = _MissingContents(layers)
        inventory = _collect_inventory(layers, configuration, wanted, fresh, answers, asked)
        missing = wanted.entries()
        if not missing:
            break
        for number, entries in missing.items():
            asked_for[number] = asked_for.get(number, frozenset()) | entries
            layers[number] = reread(number, asked_for[number])
            _check_diff_id(configuration, number, layers[number])
    return inventory


def _check_diff_id(configuration: Configuration, number: int, layer: LayerFacts) -> None:
    """Raise `Unreadable` if the configuration states another diff ID."""
    digest = configuration.digests[number]
    if digest and layer.digest and digest != layer.digest:
        raise Unreadable(
            f"layer {number + 1} of {len(configuration.digests)} is another one than the "
            f"configuration says, {layer.digest}: no engine runs such an image"
        )


def _collect_inventory(
    layers: Sequence[LayerFacts],
    configuration: Configuration,
    wanted: _MissingContents,
    fresh: Collection[int],
    answers: PythonAnswers | None,
    asked: RecordedLookups | None,
) -> Inventory:
    tree = MergedTree(layers, wanted)
    memory = _LayerFactMemory(tree, fresh, answers or PythonAnswers(Cache(None)))
    inventory = collect(
        tree, configuration.environment, memory, memory, configuration.labels, asked=asked
    )
    inventory = replace(inventory, stats=replace(inventory.stats, cached=memory.recalled))
    digests = [
        layer.digest or digest for layer, digest in zip(layers, configuration.digests, strict=True)
    ]
    return add_layers(inventory, tree, digests, configuration.instructions)


def merge_layers(layers: Sequence[LayerFacts]) -> MergedTree:
    """Return the merged tree of these layers; few files have their content."""
    return MergedTree(layers, _MissingContents(layers))


class _MissingContents:
    """Entries whose content is wanted but was not stored.

    Uses memory shared with forked processes, which read parts of the tree.
    """

    def __init__(self, layers: Sequence[LayerFacts]) -> None:
        self._starts = [0]
        for layer in layers:
            self._starts.append(self._starts[-1] + layer.count)
        self._marks = mmap.mmap(-1, self._starts[-1] + 1)

    def mark(self, layer: int, entry: int) -> None:
        """Record that the content of this entry is wanted."""
        self._marks[self._starts[layer] + entry] = 1

    def entries(self) -> dict[int, frozenset[int]]:
        """Return the entries by layer, both as indexes."""
        wanted: dict[int, set[int]] = {}
        at = self._marks.find(b"\1")
        while at >= 0:
            layer = next(n for n, start in enumerate(self._starts) if start > at) - 1
            wanted.setdefault(layer, set()).add(at - self._starts[layer])
            at = self._marks.find(b"\1", at + 1)
        return {layer: frozenset(entries) for layer, entries in wanted.items()}


class _LayerFile:
    """A file of a layer: its facts, and its content if stored."""

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
    """Tree of an image, merged from the facts of its layers. Raises `Unreadable`."""

    def __init__(self, layers: Sequence[LayerFacts], wanted: _MissingContents) -> None:
        self.wanted = wanted

        @lru_cache(_CACHED_BLOCKS)
        def block(layer: int, number: int) -> bytes:
            return decompress(layers[layer].blocks[number])

        self.block = block
        super().__init__([self._members(number, layer) for number, layer in enumerate(layers)])

    def _members(self, number: int, layer: LayerFacts) -> Iterator[TarMember]:
        for index, entry in enumerate(layer.unpack()):
            name = os.fsdecode(entry.name)
            data = None
            if entry.size is not None:
                facts = entry.facts or _NO_FACTS
                if facts.outline is not None:
                    facts = replace(facts, outline=intern_outline(facts.outline))
                file = _LayerFile(self, number, index, name, entry.sha256, entry.place, facts)
                data = Slice(file, 0, entry.size)
            yield TarMember(name, KINDS[entry.kind], data, os.fsdecode(entry.target))

    def file(self, path: str) -> _LayerFile:
        """Return the layer's file at `path`. Raises OSError."""
        data = self.data(path)
        if data is None or not isinstance(data.source, _LayerFile):
            raise Unreadable("no file of a layer")
        return data.source

    def sha256(self, path: str) -> bytes | None:
        """See `Tree.sha256`."""
        return self.file(path).sha256 or None


class _LayerFactMemory:
    """`FactMemory` of the layers' facts, and `PythonMemory`."""

    seal = None

    def __init__(self, tree: MergedTree, fresh: Collection[int], answers: PythonAnswers) -> None:
        self.recall_python = answers.recall_python
        self.keep_python = answers.keep_python
        self._tree = tree
        self._fresh = fresh
        #: Number of files from cached layers.
        self.recalled = 0

    def recall(self, file: File) -> FileFacts | None:
        """See `FactMemory.recall`. Declines a link whose name implies something else."""
        stored = self._tree.file(file.path)
        name = safe_path(stored.name) or ""
        if name == file.path:
            stored.name = file.path  # One string for both: an image has some 50,000.
        if name == file.path or _name_implications(name, stored.facts) == _name_implications(
            file.path, stored.facts
        ):
            self.recalled += stored.layer not in self._fresh
            return stored.facts
        return None

    def earlier(self, file: File) -> None:
        """See `FactMemory.earlier`."""

    def content(self, file: File) -> bytes | None:
        """See `PythonMemory.content`."""
        return self._tree.sha256(file.path)

    def keep(self, file: File, facts: FileFacts) -> None:
        """See `FactMemory.keep`."""


def _name_implications(path: str, facts: FileFacts) -> tuple[object, ...]:
    """Return what the name implies for a file (`collect.look`, and the opening of containers)."""
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
