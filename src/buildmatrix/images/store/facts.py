"""The fact cache: nothing is read twice.

Two kinds of entries:

- Wheels, saved images and images of an engine never change and are addressed by the SHA-256 of
  their content. The entry is the whole inventory. Hashing a wheel takes a tenth of decompressing
  it.
- Folders change file by file, and hashing would take longer than scanning. Their files have stamps
  (device, inode, size, mtime, ctime), as in git's index. The digest of all names and stamps
  addresses the inventory. After a miss, one entry per folder has the facts of each of its files:
  only changed files are read again. Of these, Python files and binaries are recognized by their
  bytes: hard links change ctime. A new folder starts with the entry of the folder that has the most
  of its distributions. Of the results for several files, those about the Python of a distribution
  are recomputed if the bytes of one of its files changed (see `store.folder`), and others, such as
  ownership, every time.

Facts do not depend on vendors: a new catalogue does not invalidate them, another scanner does.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec

from buildmatrix.base.data import replace
from buildmatrix.base.threads import prepare_type
from buildmatrix.facts.inventory.archive import PACKAGES
from buildmatrix.facts.inventory.model import SCHEMA, Inventory, encode
from buildmatrix.facts.inventory.workers import Watch, ignore_progress
from buildmatrix.facts.trees.archive import changed_ns
from buildmatrix.facts.trees.base import File, RandomAccess, Symlink, Tree, Trouble
from buildmatrix.images.store import inventory_decoder
from buildmatrix.images.store.cache import DAY, Cache, Store, source_digest

#: Total bytes of all entries; the least recently used are removed first.
MAX_CACHED_BYTES = 1_000_000_000
#: A file that changed this recently before it was read could change again with the same ctime: the
#: kernel's clock for files ticks every 1 to 10 ms.
SETTLED_NS = 100_000_000
#: Folders whose facts a new folder can use.
MAX_RECENT = 16
#: RECORDs of a folder that count.
MAX_RECORDS = 2_000
#: Key of these: the key of each folder's facts, the last one scanned last, and its RECORDs.
_RECENT = "recent folders"
_RECENT_DECODER = msgspec.msgpack.Decoder(prepare_type(dict[bytes, frozenset[bytes]]))


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class FactCache:
    """Cache of trees' facts, of about `limit` bytes.

    `now_ns` returns the time in nanoseconds since 1970, by the clock of file stamps. With a secret
    `key` of 32 bytes, binaries in folders are recognized by their bytes.
    """

    def __init__(
        self,
        cache: Cache,
        limit: int = MAX_CACHED_BYTES,
        now_ns: Callable[[], int] = time.time_ns,
        key: bytes = b"",
    ) -> None:
        self.cache = cache
        self._key = key
        self._now_ns = now_ns
        version = f"{SCHEMA} {source_digest(*PACKAGES, 'images/store')}"
        make = partial(cache.store, "facts", version, limit=limit, age=90 * DAY, by_use=True)
        # Entries of folders are found by stamps of files, which each machine has of its own.
        self._store, self._folders = make(), make(is_shared=False)

    def inventory(self, content: str, read: Callable[[], Inventory]) -> Inventory:
        """Return the inventory of `content`, which never changes, from the cache or `read`.

        Only complete inventories are cached: unreadable files may be readable next time.
        """
        return self._recall(self._store, f"inventory:{content}", read)

    def _recall(self, store: Store, key: str, read: Callable[[], Inventory]) -> Inventory:
        started = time.monotonic()
        cached_inventory = store.load(key, inventory_decoder())
        if cached_inventory is not None:
            seconds = round(time.monotonic() - started, 3)
            cached = cached_inventory.stats.files
            stats = replace(cached_inventory.stats, bytes_read=0, seconds=seconds, cached=cached)
            return replace(cached_inventory, stats=stats)
        inventory = read()
        if not inventory.unread:
            store.put(key, encode(inventory))
        return inventory

    def folder(self, root: Path, tree: Tree, watch: Watch = ignore_progress) -> Inventory:
        """Return the inventory of `tree`, the folder `root`; unchanged files are not read.

        Raises OSError, as `collect` does.
        """
        settled_ns = self._now_ns() - SETTLED_NS
        walked = _TreeSnapshot(tree)

        def read() -> Inventory:
            # Imports the whole scan core, which an unchanged folder does not need.
            from buildmatrix.facts.inventory.collect import collect
            from buildmatrix.images.store.folder import FILES_DECODER, FolderMemory, PythonAnswers

            key = f"folder:{os.fspath(root.resolve())}"
            records = walked.records()
            own = self._folders.load(key, FILES_DECODER)
            similar = self._find_similar_folder(records) if own is None else None
            earlier = own if similar is None else self._folders.load(similar, FILES_DECODER)
            answers = PythonAnswers(self.cache, is_shared=False)
            memory = FolderMemory(earlier or {}, settled_ns, answers, self._key)
            inventory = collect(walked, memory=memory, python_memory=memory, watch=watch)
            if memory.files != own:
                self._folders.save(key, memory.files)
                self._remember_folder(key, records)
            return inventory

        content = walked.content_digest(settled_ns)
        return read() if content is None else self._recall(self._folders, content, read)

    def _find_similar_folder(self, records: frozenset[bytes]) -> str | None:
        """Return the key of the scanned folder that has the most of these `records`."""
        folders = self._folders.load(_RECENT, _RECENT_DECODER) or {}
        shared = {key: len(records & folders[key]) for key in reversed(folders)}
        best = max(shared, key=shared.__getitem__, default=b"")
        return os.fsdecode(best) if shared.get(best) else None

    def _remember_folder(self, key: str, records: frozenset[bytes]) -> None:
        folders = self._folders.load(_RECENT, _RECENT_DECODER) or {}
        folders.pop(os.fsencode(key), None)
        recent = [*folders.items(), (os.fsencode(key), records)]
        self._folders.save(_RECENT, dict(recent[-MAX_RECENT:]))


class _TreeSnapshot(Tree):
    """A tree that was listed once, so that its address and its scan see the same state."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._entries = tuple(tree.walk())

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        return iter(self._entries)

    def open(self, path: str) -> AbstractContextManager[RandomAccess]:
        return self._tree.open(path)

    def records(self) -> frozenset[bytes]:
        """Return the paths of RECORDs, with names and versions of distributions; the first ones."""
        paths = (entry.path for entry in self._entries if isinstance(entry, File))
        records = (os.fsencode(path) for path in paths if path.endswith(".dist-info/RECORD"))
        return frozenset(islice(records, MAX_RECORDS))

    def content_digest(self, settled_ns: int) -> str | None:
        """Return a digest of the tree; None if a file changed too recently to be certain."""
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
            # Names and targets contain no NUL, and all stamps have the same length.
            hasher.update(b"%s%s\0%s\0" % (kind, os.fsencode(entry.path), detail))
        return hasher.hexdigest()
