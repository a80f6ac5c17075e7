"""The layers of an image merged into one tree, in memory, as a container sees them.

Format: OCI image specification 1.1, "Image Layer Filesystem Changeset".
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from buildmatrix.trees.archive import Slice, plain
from buildmatrix.trees.base import File, RandomAccess, Symlink, Tree, Trouble, Unreadable, too_large
from buildmatrix.trees.tar import Attributes, TarMember, members

#: Prefix of a file that hides its namesake of the layers below, and the name that hides all of
#: them in its folder.
WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
#: Names that containers' tools keep for themselves.
_RESERVED = ".wh..wh."
#: Entries of all layers of an image; each takes some 0.8 kB of memory. A desktop has 300,000.
MOST_ENTRIES = 1_000_000
#: Links that the folders of one name may lead through, as in the kernel (path_resolution(7)).
MOST_LINKS = 40
#: Deeper names are reported and left out.
DEEPEST = 128
#: Components that a name may have with the links in it; PATH_MAX allows half of them.
MOST_COMPONENTS = 4096
#: Of a folder that no layer has an entry for, and of what was read without them.
_FOLDER = Attributes(0o755)
_FILE = Attributes(0o644)


@dataclass(eq=False, slots=True)
class _StoredFile:
    """The bytes of a file; hard links share one."""

    #: None for a sparse file, which is not read.
    data: Slice | None
    #: Index of the layer that brought it.
    layer: int
    #: How many names it has, counted when the tree is complete.
    names: int = 0
    #: A number of its own.
    number: int = 0
    attributes: Attributes = _FILE


@dataclass(eq=False, slots=True)
class _LayerLink:
    target: str
    layer: int
    attributes: Attributes = _FILE


@dataclass(eq=False, slots=True)
class _LayerFolder:
    entries: dict[str, _LayerFolder | _StoredFile | _LayerLink] = field(default_factory=dict)
    attributes: Attributes = _FOLDER


@dataclass(frozen=True, slots=True)
class MergedEntry:
    """An entry of the merged layers, as one would unpack it."""

    path: str
    kind: Literal["file", "folder", "symlink"]
    attributes: Attributes
    #: Target of a link, as stored.
    target: str = ""
    #: The same number for all names of one file.
    number: int = 0


@dataclass(frozen=True, slots=True)
class Hidden:
    """A file of one layer that no container sees, because of a later layer."""

    path: str
    size: int
    #: Indexes of the layer that holds it and of the one that deleted or replaced it.
    layer: int
    by: int
    #: Whether the later layer put something else in its place.
    replaced: bool


def at_most(room: int, layer: Iterable[TarMember]) -> Iterator[TarMember]:
    """Yield entries of a layer. Raises `Unreadable` where an image has no `room` for one more."""
    for member in layer:
        room -= 1
        if room < 0:
            raise Unreadable(f"an image of more than {MOST_ENTRIES:,} entries is not read")
        yield member


class LayeredTree(Tree):
    """Uncompressed layers, the lowest first, as one tree. Raises `Unreadable`.

    A layer may also be given by its entries alone: then it can be walked, and no file be opened.
    A symbolic link is its target; names with links in their folders land where a container's
    runtime puts them, always below the root.
    """

    def __init__(self, layers: Sequence[Slice | Iterable[TarMember]]) -> None:
        self._root = _LayerFolder()
        self._troubles: dict[str, str] = {}
        #: Index of the layer that is being put over the others.
        self._layer = 0
        #: Bytes of the files of each layer.
        self.sizes: list[int] = []
        #: Names that a later layer took away, with the file that they were one of.
        self._removed: list[tuple[str, _StoredFile, int, bool]] = []
        room = MOST_ENTRIES
        for number, layer in enumerate(layers, 1):
            self._layer = number - 1
            self.sizes.append(0)
            try:
                found = list(at_most(room, members(layer) if isinstance(layer, Slice) else layer))
                room -= len(found)
                self._apply(found)
            except Unreadable as error:
                position = f"layer {number} of {len(layers)}"
                raise Unreadable(f"{position} cannot be read: {error}") from error
        count = 0
        for _, entry in _entries(self._root, ""):
            if isinstance(entry, _StoredFile):
                entry.names += 1
                entry.number = count = count + 1

    # Building

    def _apply(self, layer: list[TarMember]) -> None:
        """Put one layer over those below; its whiteouts first, they hide nothing of its own."""
        additions: list[tuple[str, TarMember]] = []
        whiteouts: list[tuple[int, str]] = []
        for member in layer:
            path = plain(member.name)
            if path is None:
                self._troubles[member.name] = "a name inside of a layer that leads out of the image"
            elif path.count("/") >= DEEPEST:
                self._troubles[path] = f"folders nested more than {DEEPEST} deep"
            elif WHITEOUT in path and path.rpartition("/")[2].startswith(WHITEOUT):
                self._hide(path)
                whiteouts.append((len(additions), path))
            elif path:
                additions.append((path, member))
        if whiteouts:
            self._check_order([path for path, _ in additions], whiteouts)
        for path, member in additions:
            self._add(path, member)

    def _check_order(self, paths: Sequence[str], whiteouts: Iterable[tuple[int, str]]) -> None:
        """Report whiteouts of what the same layer brought before: engines keep or delete it."""
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

    def _hide(self, path: str) -> None:
        folder_path, _, name = path.rpartition("/")
        folder = self._folder(folder_path, make=False)
        if folder is None:
            return
        if name == OPAQUE:
            self._take(folder, folder_path, replaced=False)
            folder.entries.clear()
        elif not name.startswith(_RESERVED):
            name = name.removeprefix(WHITEOUT)
            hidden = f"{folder_path}/{name}".lstrip("/")
            self._take(folder.entries.pop(name, None), hidden, replaced=False)

    def _take(
        self, entry: _LayerFolder | _StoredFile | _LayerLink | None, path: str, *, replaced: bool
    ) -> None:
        """Remember that the entry `path`, and all that is below it, is no longer there."""
        if isinstance(entry, _StoredFile):
            self._removed.append((path, entry, self._layer, replaced))
        elif isinstance(entry, _LayerFolder):
            for below, inner in _entries(entry, f"{path}/".lstrip("/")):
                self._take(inner, below, replaced=False)

    def _add(self, path: str, member: TarMember) -> None:
        folder_path, _, name = path.rpartition("/")
        folder = self._folder(folder_path, make=True)
        if folder is None:
            self._troubles[path] = "its folder is a file, or a link that leads nowhere"
            return
        present = folder.entries.get(name)
        if member.kind == "device" and self._is_below(present):
            self._troubles[path] = "a device over a file, which rootless engines leave as it is"
            return
        if member.kind == "folder" and isinstance(present, _LayerFolder):
            present.attributes = member.attributes or _FOLDER
            return
        attributes = member.attributes or _FILE
        if member.kind != "hardlink":
            self._take(folder.entries.get(name), path, replaced=member.kind == "file")
        if member.kind == "folder":
            folder.entries[name] = _LayerFolder(attributes=member.attributes or _FOLDER)
        elif member.kind == "symlink":
            folder.entries[name] = _LayerLink(member.target, self._layer, attributes)
        elif member.kind == "file":
            folder.entries[name] = _StoredFile(member.data, self._layer, attributes=attributes)
            self.sizes[-1] += member.data.size if member.data is not None else 0
        elif member.kind == "hardlink":
            self._add_link(path, member.target, folder, name)
        else:
            # A device or a FIFO: no part of a tree, but it hides what was there.
            folder.entries.pop(name, None)

    def _is_below(self, entry: _LayerFolder | _StoredFile | _LayerLink | None) -> bool:
        """Whether a layer below brought the entry, or something in it."""
        if isinstance(entry, _LayerFolder):
            return any(self._is_below(inner) for inner in entry.entries.values())
        return entry is not None and entry.layer < self._layer

    def _add_link(self, path: str, target: str, folder: _LayerFolder, name: str) -> None:
        place = plain(target)
        linked = self._find(place) if place else None
        if isinstance(linked, _LayerFolder) or linked is None:
            self._troubles[path] = f"a hard link to {target}, which is no file of the image"
        elif linked is not folder.entries.get(name):
            self._take(folder.entries.get(name), path, replaced=True)
            folder.entries[name] = linked

    def _find(self, path: str) -> _LayerFolder | _StoredFile | _LayerLink | None:
        folder_path, _, name = path.rpartition("/")
        folder = self._folder(folder_path, make=False)
        return None if folder is None else folder.entries.get(name)

    def _folder(self, path: str, *, make: bool) -> _LayerFolder | None:
        """The folder that `path` leads to through links, made where it is missing if asked for."""
        trail = [self._root]
        ahead = path.split("/")[::-1] if path else []
        passed = 0
        while ahead:
            name = ahead.pop()
            if name in ("", "."):
                continue
            if name == "..":
                # Above the root there is the root.
                if len(trail) > 1:
                    trail.pop()
                continue
            entry = trail[-1].entries.get(name)
            if isinstance(entry, _LayerLink):
                passed += 1
                ahead += entry.target.split("/")[::-1]
                if passed > MOST_LINKS or len(ahead) > MOST_COMPONENTS:
                    return None
                if entry.target.startswith("/"):
                    del trail[1:]
                continue
            if entry is None and make and len(trail) <= DEEPEST:
                entry = trail[-1].entries[name] = _LayerFolder()
            if not isinstance(entry, _LayerFolder):
                return None
            trail.append(entry)
        return trail[-1]

    # Reading

    def entries(self) -> Iterator[MergedEntry]:
        """Every folder, file and link; a folder comes before what is in it.

        The folder of each path is a folder of the tree, and no link. Files that cannot be opened
        are among them; devices, which are no part of a tree, are not.
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
        for path, entry in _entries(self._root, ""):
            if isinstance(entry, _LayerLink):
                yield Symlink(path, entry.target)
            elif entry.data is None:
                yield Trouble(path, "a sparse file, which is not read")
            else:
                identity = (0, entry.number) if entry.names > 1 else None
                yield File(path, entry.data.size, identity)

    @contextmanager
    def open(self, path: str) -> Iterator[RandomAccess]:
        """See `Tree.open`; follows no link, as `walk` names every file itself."""
        stored = self._at(path)
        if not isinstance(stored, _StoredFile):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if stored.data is None:
            raise Unreadable("a sparse file, which is not read")
        # A source of its own counts the bytes of this reader.
        yield Slice(stored.data.source, stored.data.offset, stored.data.size)

    def read_bytes(self, path: str, limit: int) -> bytes:
        """See `Tree.read_bytes`; the size is known before."""
        data = self.data(path)
        if data is not None and data.size > limit:
            raise too_large(limit)
        return super().read_bytes(path, limit)

    def data(self, path: str) -> Slice | None:
        """Where the bytes of the file `path` lie, as its layer gave it."""
        stored = self._at(path)
        return stored.data if isinstance(stored, _StoredFile) else None

    def _at(self, path: str) -> _LayerFolder | _StoredFile | _LayerLink | None:
        folder: _LayerFolder | _StoredFile | _LayerLink | None = self._root
        for name in path.split("/"):
            folder = folder.entries.get(name) if isinstance(folder, _LayerFolder) else None
        return folder

    # Layers

    def origin(self, path: str) -> int | None:
        """Index of the layer that brought the file or link `path`, as `walk` spelled it.

        Of a folder that of the first file in it. None for what is not in the tree.
        """
        folder = self._at(path)
        if isinstance(folder, _LayerFolder):
            folder = next((entry for _, entry in _entries(folder, "")), None)
        return None if folder is None or isinstance(folder, _LayerFolder) else folder.layer

    def hidden(self) -> Iterator[Hidden]:
        """Files that a later layer deleted or replaced, the last one first.

        A file with several names is hidden when the last of them is gone.
        """
        reported: set[int] = set()
        for path, stored, by, replaced in reversed(self._removed):
            if stored.names == 0 and id(stored) not in reported and stored.layer < by:
                reported.add(id(stored))
                size = stored.data.size if stored.data is not None else 0
                yield Hidden(path, size, stored.layer, by, replaced)


def _entries(folder: _LayerFolder, prefix: str) -> Iterator[tuple[str, _StoredFile | _LayerLink]]:
    for name, entry in sorted(folder.entries.items(), key=lambda item: item[0]):
        if isinstance(entry, _LayerFolder):
            yield from _entries(entry, f"{prefix}{name}/")
        else:
            yield prefix + name, entry
