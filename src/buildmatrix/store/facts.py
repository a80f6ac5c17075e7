"""The fact cache: what was read once is not read again.

Two grains, each where it fits:

- A wheel, a saved image and an image of an engine are addressed by the SHA-256 of their content and
  never change. The whole inventory is the entry. To hash a wheel costs a tenth of inflating it.
- A folder changes file by file, and hashing it would cost more than scanning it. Its files have
  stamps (device, inode, size, mtime, ctime), as in git's index. The digest of all names and stamps
  addresses the inventory of the whole. Where that is a miss, one entry per folder holds what was
  seen in each of its files: a changed file is read again, the others are not, and only what depends
  on several files (who owns what, which Python module loads what) is worked out anew.

Facts know no vendor, so a new catalogue changes nothing in here. Another scanner does: entries live
in a folder that is named after the bytes of the scan core.

No locks. An entry is written beside its place and renamed into it; its first 32 bytes are the
SHA-256 of the rest, so an entry that was cut short or damaged is a miss, and is removed. Of two
runs that write the same entry the last one wins, and both are right. A cache that cannot be read or
written never fails a scan: it is noted, and the scan reads everything.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from buildmatrix.errors import UndecidedError, UsageError
from buildmatrix.inventory.archive import scanner_archive
from buildmatrix.inventory.codec import encode
from buildmatrix.inventory.model import SCHEMA, Inventory
from buildmatrix.inventory.writing import write_atomically
from buildmatrix.store.inventories import decode
from buildmatrix.trees.base import File, Source, Symlink, Tree, Trouble, reason
from buildmatrix.trees.directory import changed_ns

if TYPE_CHECKING:
    from buildmatrix.store.folder import Kept

#: Bytes of all entries together; the least recently used ones go first.
LIMIT = 1_000_000_000
#: A file that changed so shortly before it was read could change again without another ctime: the
#: kernel's clock for files ticks every 1 to 10 ms.
SETTLED_NS = 100_000_000
#: Seconds after which an unfinished entry belongs to a run that was killed.
ABANDONED = 3600.0
_DIGEST = hashlib.sha256().digest_size
_CHUNK = 1 << 20


def default_folder(environment: Mapping[str, str]) -> Path:
    """Where the facts are kept: below BUILDMATRIX_CACHE, else XDG_CACHE_HOME, else `~/.cache`.

    Raises UsageError when there is no home folder either.
    """
    place = environment.get("BUILDMATRIX_CACHE")
    if not place:
        place = environment.get("XDG_CACHE_HOME", "")
        # The XDG base directory specification: a relative path is to be ignored.
        if not place.startswith("/"):
            try:
                place = str(Path.home() / ".cache")
            except RuntimeError as error:
                raise UsageError(
                    "this user has no home folder for the fact cache; set BUILDMATRIX_CACHE to a "
                    "folder, or give --no-cache"
                ) from error
    return Path(place) / "buildmatrix" / "facts"


@cache
def scanner() -> str:
    """Names the scan core that read the facts: its schema and all of its sources."""
    return hashlib.sha256(SCHEMA.encode() + scanner_archive()).hexdigest()[:16]


def digest(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal. Raises OSError."""
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
    return hasher.hexdigest()


class FactCache:
    """The facts kept in `folder`, at most about `limit` bytes; `note` is told of trouble."""

    def __init__(self, folder: Path, note: Callable[[str], None], limit: int = LIMIT) -> None:
        self._folder = folder
        self._note = note
        self._limit = limit

    def inventory(self, content: str, read: Callable[[], Inventory]) -> Inventory:
        """The inventory of what never changes and is named by `content`, or what `read` returns.

        Only a complete inventory is kept: what could not be read may be readable next time.
        """
        key = f"inventory:{content}"
        data = self._get(key)
        if data is not None:
            started = time.monotonic()
            try:
                known = decode(data)
            except UndecidedError:
                self._remove(key)
            else:
                seconds = round(time.monotonic() - started, 3)
                cached = known.stats.files
                stats = replace(known.stats, bytes_read=0, seconds=seconds, cached=cached)
                return replace(known, stats=stats)
        inventory = read()
        if not inventory.unread:
            self._put(key, encode(inventory))
        return inventory

    def folder(self, root: Path, tree: Tree) -> Inventory:
        """The inventory of `tree`, which is the folder `root`; what did not change is not read.

        Raises OSError, as `collect` does.
        """
        # The whole scan core comes with it; who asks for what is kept need not wait for that.
        from buildmatrix.inventory.collect import collect
        from buildmatrix.store.folder import FolderMemory, files_of

        settled_ns = time.time_ns() - SETTLED_NS
        walked = _Walked(tree)

        def read() -> Inventory:
            key = f"folder:{os.fspath(root.resolve())}"
            memory = FolderMemory(self._files(key, files_of), settled_ns)
            inventory = collect(walked, memory=memory)
            if memory.changed:
                self._put(key, msgspec.msgpack.encode(memory.files))
            return inventory

        content = walked.content(settled_ns)
        return read() if content is None else self.inventory(f"folder {content}", read)

    def _files(
        self, key: str, files_of: Callable[[bytes], Mapping[bytes, Kept]]
    ) -> Mapping[bytes, Kept]:
        data = self._get(key)
        if data is None:
            return {}
        try:
            return files_of(data)
        except msgspec.DecodeError:
            self._remove(key)
            return {}

    # Entries

    def _place(self, key: str) -> Path:
        return self._folder / scanner() / hashlib.sha256(os.fsencode(key)).hexdigest()

    def _get(self, key: str) -> bytes | None:
        """The bytes of an entry, which now counts as just used; None when there is none."""
        path = self._place(key)
        try:
            if path.stat().st_size > self._limit:
                self._remove(key)
                return None
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._note(f"the fact cache {path} cannot be read: {reason(error)}; reading everything")
            return None
        if hashlib.sha256(memoryview(data)[_DIGEST:]).digest() != data[:_DIGEST]:
            self._remove(key)
            return None
        with suppress(OSError):  # a cache that is read-only still serves
            os.utime(path)
        return data[_DIGEST:]

    def _put(self, key: str, data: bytes) -> None:
        if _DIGEST + len(data) > self._limit:
            return
        path = self._place(key)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, hashlib.sha256(data).digest() + data)
            self._prune()
        except OSError as error:
            self._note(
                f"the fact cache {self._folder} cannot be written: {reason(error)}; the next scan"
                " reads everything again (set BUILDMATRIX_CACHE to another folder)"
            )

    def _remove(self, key: str) -> None:
        with suppress(OSError):
            self._place(key).unlink()

    def _prune(self) -> None:
        """Remove what killed runs left, then the least recently used entries above the limit.

        Another run may remove the same at the same time, or read what is removed: an open file
        stays readable.
        """
        entries: list[tuple[float, int, Path]] = []
        now = time.time()
        for path in self._folder.glob("*/*"):
            with suppress(FileNotFoundError):
                status = path.stat()
                if not path.name.startswith("."):
                    entries.append((status.st_mtime, status.st_size, path))
                elif now - status.st_mtime > ABANDONED:
                    path.unlink(missing_ok=True)
        excess = sum(size for _, size, _ in entries) - self._limit
        for _, size, path in sorted(entries):
            if excess <= 0:
                break
            path.unlink(missing_ok=True)
            excess -= size


class _Walked(Tree):
    """A tree that was listed once: its address and its scan speak of the same moment."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._entries = tuple(tree.walk())

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        return iter(self._entries)

    def open(self, path: str) -> AbstractContextManager[Source]:
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
