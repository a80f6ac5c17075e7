"""Layers that only add independent files: an application on top of a base.

Thousands of images differ only in such layers. All facts of the layers below then hold for all of
them, except sizes. The decision takes two steps: the layer's own entries (`plain_layer`), and the
lookups in the tree below (`BaseTreeIndex.accepts`). Both decline if in doubt. A test compares
inventories with and without such layers.
"""

from __future__ import annotations

import hashlib
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import msgspec

from buildmatrix.facts.inventory.collect import is_content_read
from buildmatrix.facts.inventory.file_facts import FileFacts
from buildmatrix.facts.inventory.listing import RecordedLookups, readable
from buildmatrix.facts.trees.archive import safe_path
from buildmatrix.facts.trees.archive_layers import WHITEOUT
from buildmatrix.images.layers.layer_facts import KINDS, LayerFacts
from buildmatrix.images.oci.layers import parent_folders

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
        # A folder may replace a file or a link, or have been looked for in vain.
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
