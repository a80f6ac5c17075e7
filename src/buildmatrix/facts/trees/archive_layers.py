"""Layers of an image, merged in memory into the tree that a container sees.

Format: OCI image specification 1.1, "Image Layer Filesystem Changeset".
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from buildmatrix.facts.trees.archive import Slice, safe_path
from buildmatrix.facts.trees.base import (
    File,
    RandomAccess,
    Symlink,
    Tree,
    Trouble,
    Unreadable,
    too_large,
)
from buildmatrix.facts.trees.tar import Attributes, TarMember, members

#: Prefix of an entry that deletes a file of lower layers, and the name that deletes the whole
#: content of its folder.
WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
#: Prefix reserved for container tools.
_RESERVED = ".wh..wh."
#: Entries per image; each takes about 0.8 kB of memory. A desktop has 300,000.
MAX_ENTRIES = 1_000_000
#: Links to follow per path, as in the kernel (path_resolution(7)).
MAX_LINKS = 40
#: Maximum depth; deeper names are reported and skipped.
MAX_DEPTH = 128
#: Maximum components of a path with its links expanded; PATH_MAX allows half of them.
MAX_COMPONENTS = 4096
#: Attributes of implicit folders, and of files read without attributes.
_FOLDER_ATTRIBUTES = Attributes(0o755)
_FILE_ATTRIBUTES = Attributes(0o644)


@dataclass(eq=False, slots=True)
class _StoredFile:
    """A file's content; shared by its hard links."""

    #: None for a sparse file, which is not read.
    data: Slice | None
    #: Index of the layer that contains it.
    layer: int
    #: Number of names, counted once the tree is complete.
    names: int = 0
    #: Unique number.
    number: int = 0
    attributes: Attributes = _FILE_ATTRIBUTES


@dataclass(eq=False, slots=True)
class _LayerLink:
    target: str
    layer: int
    attributes: Attributes = _FILE_ATTRIBUTES


@dataclass(eq=False, slots=True)
class _LayerFolder:
    entries: dict[str, _Entry] = field(default_factory=dict)
    attributes: Attributes = _FOLDER_ATTRIBUTES


_Entry = _LayerFolder | _StoredFile | _LayerLink


@dataclass(frozen=True, slots=True)
class MergedEntry:
    """An entry of the merged layers, as it would be unpacked."""

    path: str
    kind: Literal["file", "folder", "symlink"]
    attributes: Attributes
    #: Target of a link, as stored.
    target: str = ""
    #: Equal for all names of one file.
    number: int = 0


@dataclass(frozen=True, slots=True)
class HiddenFile:
    """A file of one layer that a later layer deleted or replaced."""

    path: str
    size: int
    #: Indexes of the layer that contains it and of the one that deleted or replaced it.
    layer: int
    by: int
    #: True if the later layer put something else in its place.
    replaced: bool


def limit_entries(room: int, layer: Iterable[TarMember]) -> Iterator[TarMember]:
    """Yield entries of a layer. Raises `Unreadable` if there are more than `room`."""
    for member in layer:
        room -= 1
        if room < 0:
            raise Unreadable(f"an image of more than {MAX_ENTRIES:,} entries is not read")
        yield member


class LayeredTree(Tree):
    """Uncompressed layers, bottom layer first, as one tree. Raises `Unreadable`.

    A layer may also be given as its entries: then it can be walked, but files cannot be opened if
    their content is missing. Links in folder names are followed as by a container's runtime, always
    below the root.
    """

    def __init__(self, layers: Sequence[Slice | Iterable[TarMember]]) -> None:
        self._root = _LayerFolder()
        self._troubles: dict[str, str] = {}
        #: Index of the layer being merged.
        self._layer = 0
        #: Total bytes of files per layer.
        self.sizes: list[int] = []
        #: Removed names: path, file, index of the removing layer, and True if replaced.
        self._removed: list[tuple[str, _StoredFile, int, bool]] = []
        room = MAX_ENTRIES
        for number, layer in enumerate(layers, 1):
            self._layer = number - 1
            self.sizes.append(0)
            try:
                found = list(
                    limit_entries(room, members(layer) if isinstance(layer, Slice) else layer)
                )
                room -= len(found)
                self._apply(found)
            except Unreadable as error:
                position = f"layer {number} of {len(layers)}"
                raise Unreadable(f"{position} cannot be read: {error}") from error
        count = 0
        for _, entry in _walk_entries(self._root, ""):
            if isinstance(entry, _StoredFile):
                entry.names += 1
                entry.number = count = count + 1

    # Building

    def _apply(self, layer: list[TarMember]) -> None:
        """Merge one layer; its whiteouts first, as they do not affect its own entries."""
        additions: list[tuple[str, TarMember]] = []
        whiteouts: list[tuple[int, str]] = []
        for member in layer:
            path = safe_path(member.name)
            if path is None:
                self._troubles[member.name] = "a name inside of a layer that leads out of the image"
            elif path.count("/") >= MAX_DEPTH:
                self._troubles[path] = f"folders nested more than {MAX_DEPTH} deep"
            elif WHITEOUT in path and path.rpartition("/")[2].startswith(WHITEOUT):
                self._apply_whiteout(path)
                whiteouts.append((len(additions), path))
            elif path:
                additions.append((path, member))
        if whiteouts:
            self._check_order([path for path, _ in additions], whiteouts)
        for path, member in additions:
            self._add(path, member)

    def _check_order(self, paths: Sequence[str], whiteouts: Iterable[tuple[int, str]]) -> None:
        """Report whiteouts of entries in the same layer: some engines keep the entry."""
        seen: set[str] = set()
        done = 0
        for count, whiteout in whiteouts:
            for added in paths[done:count]:
                path = added
                while path and path not in seen:
                    seen.add(path)
                    path = path.rpartition("/")[0]
            done = count
            folder, _, name = whiteout.rpartition("/")
            hidden = f"{folder}/{name.removeprefix(WHITEOUT)}".lstrip("/")
            if hidden in seen:
                self._troubles[hidden] = "its own layer deletes it, and some engines keep it"

    def _apply_whiteout(self, path: str) -> None:
        folder_path, _, name = path.rpartition("/")
        folder = self._resolve_folder(folder_path, make=False)
        if folder is None:
            return
        if name == OPAQUE:
            self._record_removed(folder, folder_path, replaced=False)
            folder.entries.clear()
        elif not name.startswith(_RESERVED):
            name = name.removeprefix(WHITEOUT)
            hidden = f"{folder_path}/{name}".lstrip("/")
            self._record_removed(folder.entries.pop(name, None), hidden, replaced=False)

    def _record_removed(self, entry: _Entry | None, path: str, *, replaced: bool) -> None:
        """Record that the entry `path`, and everything below it, was removed."""
        if isinstance(entry, _StoredFile):
            self._removed.append((path, entry, self._layer, replaced))
        elif isinstance(entry, _LayerFolder):
            for below, inner in _walk_entries(entry, f"{path}/".lstrip("/")):
                self._record_removed(inner, below, replaced=False)

    def _add(self, path: str, member: TarMember) -> None:
        folder_path, _, name = path.rpartition("/")
        folder = self._resolve_folder(folder_path, make=True)
        if folder is None:
            self._troubles[path] = "its folder is a file, or a link that leads nowhere"
            return
        present = folder.entries.get(name)
        if member.kind == "device" and self._is_from_below(present):
            self._troubles[path] = "a device over a file, which rootless engines leave as it is"
            return
        if member.kind == "folder" and isinstance(present, _LayerFolder):
            present.attributes = member.attributes or _FOLDER_ATTRIBUTES
            return
        attributes = member.attributes or _FILE_ATTRIBUTES
        if member.kind != "hardlink":
            self._record_removed(folder.entries.get(name), path, replaced=member.kind == "file")
        if member.kind == "folder":
            folder.entries[name] = _LayerFolder(attributes=member.attributes or _FOLDER_ATTRIBUTES)
        elif member.kind == "symlink":
            folder.entries[name] = _LayerLink(member.target, self._layer, attributes)
        elif member.kind == "file":
            folder.entries[name] = _StoredFile(member.data, self._layer, attributes=attributes)
            self.sizes[-1] += member.data.size if member.data is not None else 0
        elif member.kind == "hardlink":
            self._add_link(path, member.target, folder, name)
        else:
            # A device or FIFO is not part of a tree, but replaces what was there.
            folder.entries.pop(name, None)

    def _is_from_below(self, entry: _Entry | None) -> bool:
        """Return True if the entry, or something in it, comes from a lower layer."""
        if isinstance(entry, _LayerFolder):
            return any(self._is_from_below(inner) for inner in entry.entries.values())
        return entry is not None and entry.layer < self._layer

    def _add_link(self, path: str, target: str, folder: _LayerFolder, name: str) -> None:
        place = safe_path(target)
        linked = self._resolve(place) if place else None
        if isinstance(linked, _LayerFolder) or linked is None:
            self._troubles[path] = f"a hard link to {target}, which is not a file of the image"
        elif linked is not folder.entries.get(name):
            self._record_removed(folder.entries.get(name), path, replaced=True)
            folder.entries[name] = linked

    def _resolve(self, path: str) -> _Entry | None:
        folder_path, _, name = path.rpartition("/")
        folder = self._resolve_folder(folder_path, make=False)
        return None if folder is None else folder.entries.get(name)

    def _resolve_folder(self, path: str, *, make: bool) -> _LayerFolder | None:
        """Return the folder at `path`, following links; create missing folders if `make`."""
        trail = [self._root]
        ahead = path.split("/")[::-1] if path else []
        passed = 0
        while ahead:
            name = ahead.pop()
            if name in ("", "."):
                continue
            if name == "..":
                # The parent of the root is the root.
                if len(trail) > 1:
                    trail.pop()
                continue
            entry = trail[-1].entries.get(name)
            if isinstance(entry, _LayerLink):
                passed += 1
                ahead += entry.target.split("/")[::-1]
                if passed > MAX_LINKS or len(ahead) > MAX_COMPONENTS:
                    return None
                if entry.target.startswith("/"):
                    del trail[1:]
                continue
            if entry is None and make and len(trail) <= MAX_DEPTH:
                entry = trail[-1].entries[name] = _LayerFolder()
            if not isinstance(entry, _LayerFolder):
                return None
            trail.append(entry)
        return trail[-1]

    # Reading

    def entries(self) -> Iterator[MergedEntry]:
        """Yield every folder, file and link; a folder precedes its content.

        Folders in paths are real folders, never links. Includes files that cannot be opened, but
        no devices, which are not part of a tree.
        """
        yield MergedEntry("", "folder", self._root.attributes)
        ahead = [("", self._root)]
        while ahead:
            prefix, folder = ahead.pop()
            for name, entry in sorted(folder.entries.items(), key=lambda item: item[0]):
                path = prefix + name
                if isinstance(entry, _LayerFolder):
                    ahead.append((f"{path}/", entry))
                    yield MergedEntry(path, "folder", entry.attributes)
                elif isinstance(entry, _LayerLink):
                    yield MergedEntry(path, "symlink", entry.attributes, entry.target)
                else:
                    yield MergedEntry(path, "file", entry.attributes, number=entry.number)

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        """See `Tree.walk`: depth first, the names of each folder sorted."""
        for path, why in sorted(self._troubles.items()):
            yield Trouble(path, why)
        for path, entry in _walk_entries(self._root, ""):
            if isinstance(entry, _LayerLink):
                yield Symlink(path, entry.target)
            elif entry.data is None:
                yield Trouble(path, "a sparse file, which is not read")
            else:
                identity = (0, entry.number) if entry.names > 1 else None
                yield File(path, entry.data.size, identity)

    @contextmanager
    def open(self, path: str) -> Iterator[RandomAccess]:
        """See `Tree.open`; follows no links, as `walk` yields every file itself."""
        stored = self._lookup(path)
        if not isinstance(stored, _StoredFile):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if stored.data is None:
            raise Unreadable("a sparse file, which is not read")
        # Each reader has a source of its own, which counts its bytes.
        yield Slice(stored.data.source, stored.data.offset, stored.data.size)

    def read_bytes(self, path: str, limit: int) -> bytes:
        """See `Tree.read_bytes`; checks the size first."""
        data = self.data(path)
        if data is not None and data.size > limit:
            raise too_large(limit)
        return super().read_bytes(path, limit)

    def data(self, path: str) -> Slice | None:
        """Return the content of the file `path`, as given by its layer."""
        stored = self._lookup(path)
        return stored.data if isinstance(stored, _StoredFile) else None

    def _lookup(self, path: str) -> _Entry | None:
        folder: _Entry | None = self._root
        for name in path.split("/"):
            folder = folder.entries.get(name) if isinstance(folder, _LayerFolder) else None
        return folder

    # Layers

    def origin(self, path: str) -> int | None:
        """Return the index of the layer with the file or link `path`, as spelled by `walk`.

        For a folder, that of the first file in it. None if the path does not exist.
        """
        folder = self._lookup(path)
        if isinstance(folder, _LayerFolder):
            folder = next((entry for _, entry in _walk_entries(folder, "")), None)
        return None if folder is None or isinstance(folder, _LayerFolder) else folder.layer

    def hidden_files(self) -> Iterator[HiddenFile]:
        """Yield files that a later layer deleted or replaced, the last one first.

        A file with several names is yielded when all of them are gone.
        """
        reported: set[int] = set()
        for path, stored, by, replaced in reversed(self._removed):
            if stored.names == 0 and id(stored) not in reported and stored.layer < by:
                reported.add(id(stored))
                size = stored.data.size if stored.data is not None else 0
                yield HiddenFile(path, size, stored.layer, by, replaced)


def _walk_entries(
    folder: _LayerFolder, prefix: str
) -> Iterator[tuple[str, _StoredFile | _LayerLink]]:
    for name, entry in sorted(folder.entries.items(), key=lambda item: item[0]):
        if isinstance(entry, _LayerFolder):
            yield from _walk_entries(entry, f"{prefix}{name}/")
        else:
            yield prefix + name, entry
