"""The fact cache: what was read once is not read again.

Two grains, each where it fits:

- A wheel, a saved image and an image of an engine are addressed by the SHA-256 of their content and
  never change. The whole inventory is the entry. To hash a wheel costs a tenth of inflating it.
- A folder changes file by file, and hashing it would cost more than scanning it. Its files have
  stamps (device, inode, size, mtime, ctime), as in git's index. The digest of all names and stamps
  addresses the inventory of the whole. Where that is a miss, one entry per folder holds the
  facts of each of its files: a changed file is read again, the others are not. Of what depends on
  several files, the Python of a distribution is followed again where one of its own changed (see
  `store.python_answers`), and the rest (who owns what) every time.

Facts know no vendor, so a new catalogue changes nothing in here. Another scanner does.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from buildmatrix.inventory.archive import PACKAGES
from buildmatrix.inventory.codec import encode
from buildmatrix.inventory.model import SCHEMA, Inventory
from buildmatrix.inventory.workers import Watch, ignore_progress
from buildmatrix.store.cache import DAY, Cache, code
from buildmatrix.store.inventories import INVENTORY
from buildmatrix.trees.base import File, RandomAccess, Symlink, Tree, Trouble
from buildmatrix.trees.directory import changed_ns

#: Bytes of all entries together; the least recently used ones go first.
LIMIT = 1_000_000_000
#: A file that changed so shortly before it was read could change again without another ctime: the
#: kernel's clock for files ticks every 1 to 10 ms.
SETTLED_NS = 100_000_000
_CHUNK = 1 << 20


def digest(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal. Raises OSError."""
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
    return hasher.hexdigest()


class FactCache:
    """The facts that a cache keeps of trees, at most about `limit` bytes.

    `now_ns` returns the time in nanoseconds since 1970, by the clock that stamps files.
    """

    def __init__(
        self, cache: Cache, limit: int = LIMIT, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self.cache = cache
        self._now_ns = now_ns
        version = f"{SCHEMA} {code(*PACKAGES, 'store')}"
        self._store = cache.store("facts", version, limit=limit, age=90 * DAY, by_use=True)

    def inventory(self, content: str, read: Callable[[], Inventory]) -> Inventory:
        """The inventory of what never changes and is named by `content`, or what `read` returns.

        Only a complete inventory is kept: what could not be read may be readable next time.
        """
        key = f"inventory:{content}"
        started = time.monotonic()
        cached_inventory = self._store.load(key, INVENTORY)
        if cached_inventory is not None:
            seconds = round(time.monotonic() - started, 3)
            cached = cached_inventory.stats.files
            stats = replace(cached_inventory.stats, bytes_read=0, seconds=seconds, cached=cached)
            return replace(cached_inventory, stats=stats)
        inventory = read()
        if not inventory.unread:
            self._store.put(key, encode(inventory))
        return inventory

    def folder(self, root: Path, tree: Tree, watch: Watch = ignore_progress) -> Inventory:
        """The inventory of `tree`, which is the folder `root`; what did not change is not read.

        Raises OSError, as `collect` does.
        """
        settled_ns = self._now_ns() - SETTLED_NS
        walked = _Walked(tree)

        def read() -> Inventory:
            # The whole scan core comes with it: an unchanged folder need not wait for that.
            from buildmatrix.inventory.collect import collect
            from buildmatrix.store.folder import FILES, FolderMemory
            from buildmatrix.store.python_answers import PythonAnswers

            key = f"folder:{os.fspath(root.resolve())}"
            recalled = self._store.load(key, FILES) or {}
            memory = FolderMemory(recalled, settled_ns, PythonAnswers(self.cache))
            inventory = collect(walked, memory=memory, python_memory=memory, watch=watch)
            if memory.changed:
                self._store.save(key, memory.files)
            return inventory

        content = walked.content(settled_ns)
        return read() if content is None else self.inventory(f"folder {content}", read)


class _Walked(Tree):
    """A tree that was listed once: its address and its scan speak of the same moment."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._entries = tuple(tree.walk())

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        return iter(self._entries)

    def open(self, path: str) -> AbstractContextManager[RandomAccess]:
        return self._tree.open(path)

    def content(self, settled_ns: int) -> str | None:
        """Names all bytes of the tree; None when a file changed too recently to be sure of."""
        hasher = hashlib.sha256()
        for entry in self._entries:
            if isinstance(entry, File):
                if entry.stamp is None or changed_ns(entry.stamp) >= settled_ns:
                    return None
                kind, detail = b"f", entry.stamp
            elif isinstance(entry, Symlink):
                kind, detail = b"l", os.fsencode(entry.target)
            else:
                return None
            # No name and no target holds a NUL, and all stamps have one length.
            hasher.update(b"%s%s\0%s\0" % (kind, os.fsencode(entry.path), detail))
        return hasher.hexdigest()
