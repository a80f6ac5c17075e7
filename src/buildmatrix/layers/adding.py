"""Layers that only add files on which nothing depends: an application on top of a stack.

Thousands of images differ in such layers alone. What is known of the layers below holds for all of
them then, but for sizes. Whether a layer is of this kind is seen in two steps: in its own entries
(`plain_layer`), and in what the readers of the tree below asked for (`Below.takes`). Both say no
where they are not sure. A test holds inventories with and without such layers against one another.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import msgspec

from buildmatrix.inventory.file_facts import FileFacts
from buildmatrix.inventory.listing import RecordedLookups
from buildmatrix.inventory.names import readable
from buildmatrix.inventory.own_files import is_content_read
from buildmatrix.layers.model import KINDS, LayerFacts
from buildmatrix.layers.path_hashes import PathHashes
from buildmatrix.trees.archive import plain
from buildmatrix.trees.archive_layers import WHITEOUT

#: Entries of such a layer; one with more takes as long as merging it.
MOST_ENTRIES = 20_000
#: `layers.reading` has deeper ones as trouble, and folders are counted down to some depth.
_DEEPEST = 64
#: Parts of paths that readers look for by their names, and ends of paths that they do.
_PARTS = frozenset({"site-packages", "dist-packages", "conda-meta"})
_PART_ENDS = (".dist-info", ".egg-info", ".data")
_LOOKED_FOR = re.compile(r"\.so(\.|$)|(?:^|/)bin/python[0-9.]*$")
_NOTHING = FileFacts()


class PlainLayer(msgspec.Struct, frozen=True):
    """A layer that only adds files and folders, whose bytes mean nothing where nobody asks."""

    #: Paths, as they are read, and bytes.
    files: tuple[tuple[str, int], ...]
    folders: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(size for _, size in self.files)


def plain_layer(layer: LayerFacts) -> PlainLayer | None:
    """`layer` as one that only adds what means nothing; None where it may do more.

    Python sources mean something where distributions are, which is seen later.
    """
    if not layer.is_final or layer.count > MOST_ENTRIES:
        return None
    files: dict[str, int] = {}
    folders: list[str] = []
    for entry in layer.unpack():
        path = plain(os.fsdecode(entry.name))
        kind = KINDS[entry.kind]
        if path is None or readable(path) != path or path.count("/") > _DEEPEST:
            return None
        if path.rpartition("/")[2].startswith(WHITEOUT):
            return None
        if kind == "folder":
            if path:
                folders.append(path)
            continue
        facts = entry.facts or _NOTHING
        if kind != "file" or entry.size is None or not path or path in files:
            return None
        if replace(facts, outline=None, stated=None, bytes_read=0) != _NOTHING:
            return None
        if _is_looked_for(path):
            return None
        files[path] = entry.size
    return PlainLayer(tuple(files.items()), tuple(folders))


def _is_looked_for(path: str) -> bool:
    """Whether some reader looks for files of this name, wherever they lie."""
    parts = path.split("/")
    return (
        not _PARTS.isdisjoint(parts)
        or any(part.endswith(_PART_ENDS) for part in parts)
        or _LOOKED_FOR.search(path) is not None
        or (is_content_read(path, 0) and not path.endswith(".py"))
    )


class Below(msgspec.Struct, frozen=True):
    """A tree that such layers may lie on, and what its readers asked it for.

    Every set counts against a layer that has a path of it, so a hash that two paths share makes the
    tree take less than it could, and nothing else.
    """

    #: Files and links, and what has some of them below it.
    names: PathHashes = PathHashes()
    folders: PathHashes = PathHashes()
    #: What was looked for, and is none of these.
    absent: PathHashes = PathHashes()
    listed: PathHashes = PathHashes()
    #: Folders of which everything below counts: those of distributions among them.
    whole: tuple[str, ...] = ()

    @classmethod
    def of(cls, asked: RecordedLookups, sites: Sequence[str]) -> Below:
        """The tree whose readers `asked` this; `sites` are folders that hold distributions."""
        folders = {above for name in asked.names for above in _above(name)}
        return cls(
            names=PathHashes.of(asked.names),
            folders=PathHashes.of(folders),
            absent=PathHashes.of(asked.absent - folders),
            listed=PathHashes.of(asked.listed),
            whole=tuple(sorted({*asked.below, *sites})),
        )

    def takes(self, layers: Sequence[PlainLayer], is_counted: Callable[[str], bool]) -> bool:
        """Whether all that is known of the tree still holds with these layers on it.

        `is_counted` says of a folder whether its bytes have a meaning.
        """
        files = [path for layer in layers for path, _ in layer.files]
        folders = {path for layer in layers for path in layer.folders}
        for path in (*files, *folders):
            folders.update(_above(path))
        if len(set(files)) < len(files) or not folders.isdisjoint(files):
            return False  # One of them replaces what another one brought.
        return not any(map(is_counted, folders)) and not (
            any(map(self._is_changed, files)) or any(map(self._is_in_the_way, folders))
        )

    def _is_changed(self, path: str) -> bool:
        """Whether a new file changes what somebody has found."""
        folder = path.rpartition("/")[0]
        return (
            path in self.names
            or path in self.folders
            or path in self.absent
            or folder in self.listed
            or any(not whole or f"{path}/".startswith(f"{whole}/") for whole in self.whole)
        )

    def _is_in_the_way(self, folder: str) -> bool:
        """Whether a folder takes the place of a file or a link, or was looked for before it was."""
        return folder in self.names or folder in self.absent

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        hashes = (self.names, self.folders, self.absent, self.listed)
        return sum(len(item.data) for item in hashes)


def _above(path: str) -> Iterator[str]:
    """The folders above a path."""
    while path := path.rpartition("/")[0]:
        yield path
