"""A tree walked once, for lookups by the readers of an inventory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from buildmatrix.inventory.model import Unread
from buildmatrix.inventory.names import readable
from buildmatrix.inventory.paths import LinkedPaths
from buildmatrix.trees.base import File, Symlink, Tree, defect, reason

Result = TypeVar("Result")


@dataclass(slots=True)
class RecordedLookups:
    """Lookups of readers in a tree, beside file contents; see `layers.adding`."""

    #: Every file and link, including unreadable ones.
    names: set[str] = field(default_factory=set)
    #: Files and folders that were looked up and do not exist.
    absent: set[str] = field(default_factory=set)
    #: Folders whose names were listed; folders with all files below them listed.
    listed: set[str] = field(default_factory=set)
    below: set[str] = field(default_factory=set)


class _WatchedFiles(dict[str, File]):
    """Files, with a record of lookups that found nothing."""

    def __init__(self, files: Mapping[str, File], absent: set[str]) -> None:
        super().__init__(files)
        self._absent = absent

    def __contains__(self, path: object) -> bool:
        is_there = super().__contains__(path)
        if not is_there and isinstance(path, str):
            self._absent.add(path)
        return is_there


class Listing:
    """Files and links of `tree` by readable path, and all paths that could not be read so far.

    Lookups are recorded in `asked`. Raises OSError if the root itself cannot be listed.
    """

    def __init__(self, tree: Tree, asked: RecordedLookups | None = None) -> None:
        self.tree = tree
        self._asked = asked
        self.files: dict[str, File] = {}
        #: Symbolic links to their targets.
        self.links: dict[str, str] = {}
        self.unread: list[Unread] = []
        self.bytes_read = 0
        for entry in tree.walk():
            path = readable(entry.path)
            if asked is not None:
                asked.names.add(path)
            if path in self.files or path in self.links:
                self.note(path, "another name of the tree reads the same; this one was left out")
            elif isinstance(entry, File):
                self.files[path] = entry
            elif isinstance(entry, Symlink):
                self.links[path] = readable(entry.target)
            else:
                self.note(path, entry.why)
        if asked is not None:
            self.files = _WatchedFiles(self.files, asked.absent)
        self.paths = LinkedPaths(self.files, self.links)

    @cached_property
    def _names(self) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {}
        for path in sorted((*self.files, *self.links)):
            folder, _, name = path.rpartition("/")
            names.setdefault(folder, []).append(name)
        return names

    def names_in(self, folder: str) -> list[str]:
        """Return the names in `folder`, through links, sorted."""
        resolved = self.paths.folder(folder)
        if self._asked is not None and resolved is not None:
            self._asked.listed.add(resolved)
        return [] if resolved is None else self._names.get(resolved, [])

    @cached_property
    def _folders(self) -> set[str]:
        folders: set[str] = set()
        for path in (*self.files, *self.links):
            folder = path.rpartition("/")[0]
            while folder and folder not in folders:
                folders.add(folder)
                folder = folder.rpartition("/")[0]
        return folders

    def has_folder(self, path: str) -> bool:
        """True if a file or a link is below `path`, as spelled."""
        is_there = path in self._folders
        if self._asked is not None and not is_there:
            self._asked.absent.add(path)
        return is_there

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.files)

    def below(self, folder: str) -> list[str]:
        """Return the paths of all files below `folder`, sorted."""
        if self._asked is not None:
            self._asked.below.add(folder)
        # "0" is what follows "/".
        first, end = (bisect_left(self._sorted, f"{folder}{last}") for last in "/0")
        return self._sorted[first:end]

    def note(self, path: str, why: str) -> None:
        """Record that `path` could not be read, and why."""
        self.unread.append(Unread(path, why))

    def attempt(self, path: str, work: Callable[[], Result], otherwise: Result) -> Result:
        """Return the result of `work` on `path`; on failure, note it and return `otherwise`.

        The rest of the tree is read whatever exceptions hostile bytes cause.
        """
        try:
            return work()
        except Exception as error:
            self.note(path, defect(error))
            return otherwise

    def read(self, path: str, limit: int) -> bytes | None:
        """Read a whole file of at most `limit` bytes; None, with a note, if that fails."""
        try:
            data = self.tree.read_bytes(self.files[path].path, limit)
        except OSError as error:
            self.note(path, reason(error))
            return None
        self.bytes_read += len(data)
        return data
