"""A tree that was walked once: what the readers of an inventory look things up in."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

from buildmatrix.inventory.model import Unread
from buildmatrix.inventory.names import readable
from buildmatrix.inventory.paths import LinkedPaths
from buildmatrix.trees.base import File, Symlink, Tree, defect, reason

Result = TypeVar("Result")


class Listing:
    """Files and links of `tree` by readable path, and all that could not be read so far.

    Raises OSError when the root itself cannot be listed.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.files: dict[str, File] = {}
        #: Symbolic links and their targets.
        self.links: dict[str, str] = {}
        self.unread: list[Unread] = []
        self.bytes_read = 0
        for entry in tree.walk():
            path = readable(entry.path)
            if path in self.files or path in self.links:
                self.note(path, "another name of the tree reads the same; this one was left out")
            elif isinstance(entry, File):
                self.files[path] = entry
            elif isinstance(entry, Symlink):
                self.links[path] = readable(entry.target)
            else:
                self.note(path, entry.why)
        self.paths = LinkedPaths(self.files, self.links)

    @cached_property
    def _names(self) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {}
        for path in sorted((*self.files, *self.links)):
            folder, _, name = path.rpartition("/")
            names.setdefault(folder, []).append(name)
        return names

    def names_in(self, folder: str) -> list[str]:
        """Names of the files and links in `folder`, which links may lead to, sorted."""
        resolved = self.paths.folder(folder)
        return [] if resolved is None else self._names.get(resolved, [])

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.files)

    def below(self, folder: str) -> list[str]:
        """Paths of all files below `folder`, sorted."""
        # "0" is what follows "/".
        first, end = (bisect_left(self._sorted, f"{folder}{last}") for last in "/0")
        return self._sorted[first:end]

    def note(self, path: str, why: str) -> None:
        """Remember that `path` could not be read, and why."""
        self.unread.append(Unread(path, why))

    def attempt(self, path: str, work: Callable[[], Result], otherwise: Result) -> Result:
        """What `work` makes of the file or folder `path`; `otherwise` after noting why it failed.

        Whatever hostile bytes make it raise, the rest of the tree is read.
        """
        try:
            return work()
        except Exception as error:
            self.note(path, defect(error))
            return otherwise

    def read(self, path: str, limit: int) -> bytes | None:
        """A whole file of at most `limit` bytes; None after noting why it cannot be had."""
        try:
            data = self.tree.read_bytes(self.files[path].path, limit)
        except OSError as error:
            self.note(path, reason(error))
            return None
        self.bytes_read += len(data)
        return data
