"""The layers of an image merged into one tree, in memory, as a container sees them.

Format: OCI image specification 1.1, "Image Layer Filesystem Changeset".
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from buildmatrix.trees.archive import Member, Slice, members, plain
from buildmatrix.trees.base import File, Source, Symlink, Tree, Trouble, Unreadable

#: Prefix of a file that hides its namesake of the layers below, and the name that hides all of
#: them in its folder.
WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
#: Names that containers' tools keep for themselves.
_RESERVED = ".wh..wh."
#: Links that the folders of one name may lead through, as in the kernel (path_resolution(7)).
MOST_LINKS = 40
#: Deeper names are reported and left out.
DEEPEST = 128
#: Components that a name may have with the links in it; PATH_MAX allows half of them.
MOST_COMPONENTS = 4096


@dataclass(eq=False, slots=True)
class _Stored:
    """The bytes of a file; hard links share one."""

    #: None for a sparse file, which is not read.
    data: Slice | None
    #: How many names it has, counted when the tree is complete.
    names: int = 0
    #: A number of its own.
    number: int = 0


@dataclass(eq=False, slots=True)
class _Folder:
    entries: dict[str, _Folder | _Stored | str] = field(default_factory=dict)


class LayeredTree(Tree):
    """Uncompressed layers, the lowest first, as one tree. Raises `Unreadable`.

    A symbolic link is its target; names with links in their folders land where a container's
    runtime puts them, always below the root.
    """

    def __init__(self, layers: Sequence[Slice]) -> None:
        self._root = _Folder()
        self._troubles: dict[str, str] = {}
        for number, layer in enumerate(layers, 1):
            try:
                self._apply(list(members(layer)))
            except Unreadable as error:
                which = f"layer {number} of {len(layers)}"
                raise Unreadable(f"{which} cannot be read: {error}") from error
        count = 0
        for _, entry in _entries(self._root, ""):
            if isinstance(entry, _Stored):
                entry.names += 1
                entry.number = count = count + 1

    # Building

    def _apply(self, layer: list[Member]) -> None:
        """Put one layer over those below; its whiteouts first, they hide nothing of its own."""
        additions: list[tuple[str, Member]] = []
        for member in layer:
            path = plain(member.name)
            if path is None:
                self._troubles[member.name] = "a name inside of a layer that leads out of the image"
            elif path.count("/") >= DEEPEST:
                self._troubles[path] = f"folders nested more than {DEEPEST} deep"
            elif WHITEOUT in path and path.rpartition("/")[2].startswith(WHITEOUT):
                self._hide(path)
            elif path:
                additions.append((path, member))
        for path, member in additions:
            self._add(path, member)

    def _hide(self, path: str) -> None:
        folder_path, _, name = path.rpartition("/")
        folder = self._folder(folder_path, make=False)
        if folder is None:
            return
        if name == OPAQUE:
            folder.entries.clear()
        elif not name.startswith(_RESERVED):
            folder.entries.pop(name.removeprefix(WHITEOUT), None)

    def _add(self, path: str, member: Member) -> None:
        folder_path, _, name = path.rpartition("/")
        folder = self._folder(folder_path, make=True)
        if folder is None:
            self._troubles[path] = "its folder is a file, or a link that leads nowhere"
            return
        if member.kind == "folder":
            if not isinstance(folder.entries.get(name), _Folder):
                folder.entries[name] = _Folder()
        elif member.kind == "symlink":
            folder.entries[name] = member.target
        elif member.kind == "file":
            folder.entries[name] = _Stored(member.data)
        elif member.kind == "hardlink":
            self._add_link(path, member.target, folder, name)
        else:
            # A device or a FIFO: no part of a tree, but it hides what was there.
            folder.entries.pop(name, None)

    def _add_link(self, path: str, target: str, folder: _Folder, name: str) -> None:
        place = plain(target)
        found = self._find(place) if place else None
        if isinstance(found, _Folder) or found is None:
            self._troubles[path] = f"a hard link to {target}, which is no file of the image"
        else:
            folder.entries[name] = found

    def _find(self, path: str) -> _Folder | _Stored | str | None:
        folder_path, _, name = path.rpartition("/")
        folder = self._folder(folder_path, make=False)
        return None if folder is None else folder.entries.get(name)

    def _folder(self, path: str, *, make: bool) -> _Folder | None:
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
            if isinstance(entry, str):
                passed += 1
                ahead += entry.split("/")[::-1]
                if passed > MOST_LINKS or len(ahead) > MOST_COMPONENTS:
                    return None
                if entry.startswith("/"):
                    del trail[1:]
                continue
            if entry is None and make and len(trail) <= DEEPEST:
                entry = trail[-1].entries[name] = _Folder()
            if not isinstance(entry, _Folder):
                return None
            trail.append(entry)
        return trail[-1]

    # Reading

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        """See `Tree.walk`: depth first, the names of each folder sorted."""
        for path, why in sorted(self._troubles.items()):
            yield Trouble(path, why)
        for path, entry in _entries(self._root, ""):
            if isinstance(entry, str):
                yield Symlink(path, entry)
            elif entry.data is None:
                yield Trouble(path, "a sparse file, which is not read")
            else:
                identity = (0, entry.number) if entry.names > 1 else None
                yield File(path, entry.data.size, identity)

    @contextmanager
    def open(self, path: str) -> Iterator[Source]:
        """See `Tree.open`; follows no link, as `walk` names every file itself."""
        found: _Folder | _Stored | str | None = self._root
        for name in path.split("/"):
            found = found.entries.get(name) if isinstance(found, _Folder) else None
        if not isinstance(found, _Stored):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if found.data is None:
            raise Unreadable("a sparse file, which is not read")
        # A source of its own counts the bytes of this reader.
        yield Slice(found.data.source, found.data.offset, found.data.size)


def _entries(folder: _Folder, prefix: str) -> Iterator[tuple[str, _Stored | str]]:
    for name, entry in sorted(folder.entries.items(), key=lambda item: item[0]):
        if isinstance(entry, _Folder):
            yield from _entries(entry, f"{prefix}{name}/")
        else:
            yield prefix + name, entry
