"""The cache on disk: results of one run, for later ones.

`<folder>/<kind>/<name>` is one entry. Its name is the SHA-256 of its kind, of the version of the
code that made it, and of a key from its owner: all dependencies of an entry are part of its name,
so an outdated one is never found. No part of a name comes from outside unhashed.

An entry starts with the SHA-256 of its name and the rest, and with the time at which it was
written. A truncated, damaged or renamed entry is ignored and removed; so is anything but a file.
Links are not followed: a cache may have been restored from elsewhere.

An entry may have a seal in place of its SHA-256, for a folder that others may have written (see
`buildmatrix.sources.state_folder`). The user's own cache has none: anyone who can write there can
do anything.

No locks for entries. An entry is written to a temporary file and renamed. If two runs write the
same entry, the last one wins, and both are valid. A cache that cannot be read or written never
fails a run; it is reported once.

A store shared by many machines (`store.shared`) may back the folder, for all kinds of entries or
for some. Entries missing in the folder are looked up there, and new ones are written to both. If
the shared store is on a local disk, only it has the entry: a second file would save nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import logging
import os
import stat
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

import buildmatrix
from buildmatrix.base import child
from buildmatrix.base.errors import UsageError
from buildmatrix.base.text import shown
from buildmatrix.facts.trees.base import reason
from buildmatrix.images.store.shared import FolderStorage, SharedEntries

T_co = TypeVar("T_co", covariant=True)
_logger = logging.getLogger(__name__)
#: Characters of a key in the log.
_SHOWN = 200
DAY = 86400.0
#: Maximum bytes of an entry; a root file system of 5 GB with 2,500 binaries has 5 MB of facts.
MAX_ENTRY = 256 << 20
#: Age in seconds of an unfinished entry whose run was killed.
UNFINISHED_AGE = 3600.0
_DIGEST = hashlib.sha256().digest_size
_TIME = struct.Struct(">d")
#: Offset of an entry's content.
_CONTENT_OFFSET = _DIGEST + _TIME.size


class Decoder(Protocol[T_co]):
    """Decoder of an entry's bytes: `msgspec.msgpack.Decoder`."""

    def decode(self, data: bytes | memoryview, /) -> T_co:
        """Decode the bytes. Raises `msgspec.MsgspecError`."""


def default_folder(environment: Mapping[str, str]) -> Path:
    """Return the user's cache: below BUILDMATRIX_CACHE, else XDG_CACHE_HOME, else `~/.cache`.

    Raises UsageError if there is no home folder either, and for a folder tracked by Git: its
    content was written by its committer.
    """
    place = environment.get("BUILDMATRIX_CACHE")
    if not place:
        place = environment.get("XDG_CACHE_HOME", "")
        # The XDG base directory specification: ignore relative paths.
        if not place.startswith("/"):
            try:
                place = str(Path.home() / ".cache")
            except RuntimeError as error:
                raise UsageError(
                    "this user has no home folder for the cache; set BUILDMATRIX_CACHE to a "
                    "folder, or give --no-cache"
                ) from error
    folder = Path(place) / "buildmatrix"
    if (tracked := _tracked_file(folder)) is not None:
        raise UsageError(
            f"the cache {folder} is tracked by Git ({tracked}), so others may have written it; "
            "remove it from the repository, or set BUILDMATRIX_CACHE to another folder"
        )
    return folder


@cache
def _tracked_file(folder: Path) -> str | None:
    return child.tracked_file(folder)


@cache
def source_digest(*packages: str) -> str:
    """Return a digest of the sources of these packages, or of all: part of a version.

    Depends only on their bytes, so that it is equal on every machine. Raises OSError for a missing
    package.
    """
    root = Path(buildmatrix.__file__).parent
    hasher = hashlib.sha256()
    for package in packages or ("",):
        hasher.update(_folder_digest(str(root / package)))
    return hasher.hexdigest()[:16]


@cache
def _folder_digest(folder: str) -> bytes:
    """Return a digest of the sources in a folder: versions share packages, each read once."""
    hasher = hashlib.sha256()
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir():
                data = b"" if entry.name == "__pycache__" else _folder_digest(entry.path)
            elif entry.name.endswith((".py", ".toml")):
                data = Path(entry.path).read_bytes()
            else:
                continue
            hasher.update(b"%s\0%d\0" % (os.fsencode(entry.name), len(data)) + data)
    return hasher.digest()


class Cache:
    """A folder with stores of several kinds; with None, nothing is cached in a folder.

    `note` is called once if it is unusable. `shared` backs entries of the kinds `shared_kinds`, or
    all. `key` seals its entries.
    """

    def __init__(
        self,
        folder: Path | None,
        note: Callable[[str], None] = lambda _: None,
        shared: SharedEntries | None = None,
        key: bytes = b"",
        shared_kinds: Collection[str] | None = None,
    ) -> None:
        self.folder = folder
        self.key = key
        self._shared = shared
        self._shared_kinds = shared_kinds
        self._note: Callable[[str], None] | None = note
        self._lock = threading.Lock()
        #: Kind → bytes to write until the next pruning.
        self._room: dict[str, int] = {}

    def store(
        self,
        kind: str,
        version: str,
        *,
        limit: int,
        age: float,
        by_use: bool = False,
        is_shared: bool = True,
    ) -> Store:
        """Return the store of one kind, for this version only.

        Args:
            kind: name of a folder.
            version: common dependencies of all entries: their layout, the code that made them.
            limit: total bytes of all entries of any version; the oldest are removed first.
            age: seconds after which an entry is removed.
            by_use: measure age since the last use of an entry, not since it was written.
            is_shared: False for entries that mean nothing to another machine.
        """
        files = None
        if self.folder is not None and (self.folder / kind).is_symlink():
            self.report_failure(self.folder / kind, "be used", "it is a link")
        elif self.folder is not None:
            # Contents of private indexes and images are for this user only.
            files = FolderStorage(self.folder, is_private=True, marks_use=by_use)
        is_shared = is_shared and (self._shared_kinds is None or kind in self._shared_kinds)
        shared = self._shared if is_shared else None
        return Store(self, files, shared, kind, version, limit, age)

    def is_due(self, kind: str, size: int, limit: int) -> bool:
        """Return True if old entries of a kind should be pruned, after writing `size` bytes.

        Pruning reads the status of every entry. So it is due at first, and then only after a part
        of `limit`, shared by all stores of the kind in this process.
        """
        with self._lock:
            room = self._room.get(kind, 0)
            is_due = room <= size
            self._room[kind] = limit // 16 if is_due else room - size
        return is_due

    def report_failure(self, place: Path, action: str, why: str) -> None:
        """Report the first failure of the cache, with the failed `action`."""
        note, self._note = self._note, None
        if note is not None:
            note(
                f"the cache {place} cannot {action}: {why};"
                " missing entries are read again in every run"
            )


class Store:
    """Entries of one kind, for all threads. See `Cache.store`."""

    def __init__(
        self,
        cache: Cache,
        files: FolderStorage | None,
        shared: SharedEntries | None,
        kind: str,
        version: str,
        limit: int,
        age: float,
    ) -> None:
        self._cache = cache
        self._shared = shared
        self._files = files
        self._kind = kind
        self._version = f"{kind}\0{version}"
        self._limit = limit
        self._largest = min(limit, MAX_ENTRY)
        self._age = age

    @property
    def is_enabled(self) -> bool:
        """True if entries are cached at all."""
        return self._files is not None or self._shared is not None

    def path(self, key: str) -> Path | None:
        """Return the file of an entry, present or not; None without a folder."""
        files = self._files
        return None if files is None else files.folder / self._kind / self._name(key)

    def _name(self, key: str) -> str:
        return hashlib.sha256(os.fsencode(f"{self._version}\0{key}")).hexdigest()

    def has(self, key: str) -> bool:
        """Return True if there is probably an entry for `key`; does not read it."""
        path = self.path(key)
        if path is not None and path.is_file():
            return True
        return self._shared is not None and self._shared.has(self._kind, self._name(key))

    def get(self, key: str, within: float | None = None) -> bytes | None:
        """Return the data of `key`; None if there is none.

        `within`: maximum age in seconds; entries from the future have a wrong time and are ignored.
        """
        data = self._find_entry(key, within)
        return None if data is None else bytes(data)

    def _find_entry(self, key: str, within: float | None = None) -> memoryview | None:
        """See `get`; without copying."""
        entry = self._read_entry(key, within)
        if _logger.isEnabledFor(logging.DEBUG):
            size = "not cached" if entry is None else f"cached, {len(entry)} bytes"
            _logger.debug("%s %s: %s", self._kind, shown(key)[:_SHOWN], size)
        return entry

    def _read_entry(self, key: str, within: float | None) -> memoryview | None:
        name = self._name(key)
        if self._files is not None:
            try:
                data = self._files.read(self._kind, name, self._largest)
            except NotADirectoryError:  # writing reports it
                data = None
            except OSError as error:
                path = self._files.folder / self._kind / name
                self._cache.report_failure(path, "be read", reason(error))
                data = None
            if data is not None:
                entry = memoryview(data)
                if not self._is_whole(entry, name):
                    self.remove(key)
                elif _is_recent(entry, within):
                    return entry[_CONTENT_OFFSET:]
        if self._shared is None:
            return None
        entry = memoryview(self._shared.read(self._kind, name, self._largest) or b"")
        if not (self._is_whole(entry, name) and _is_recent(entry, within)):
            return None
        # A copy from one local disk to another would save nothing.
        if not self._shared.is_near:
            self._write(name, (entry,))
        return entry[_CONTENT_OFFSET:]

    def put(self, key: str, data: bytes) -> None:
        """Store `data`, unless it is too large."""
        name = self._name(key)
        if not self.is_enabled or len(data) + _CONTENT_OFFSET > self._largest:
            return
        written = _TIME.pack(time.time())
        # Written in parts: facts of a layer have 20 MB, and would be copied.
        parts = (self._checksum(name, written, data), written, data)
        if self._shared is not None:
            is_kept = self._shared.write(self._kind, name, parts)
            if is_kept and self._shared.is_near:
                return
        self._write(name, parts)

    def _write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        """Write an entry to the folder, if there is one."""
        if self._files is None:
            return
        folder = self._files.folder / self._kind
        try:
            self._files.write(self._kind, name, parts)
            if self._cache.is_due(self._kind, sum(map(len, parts)), self._limit):
                self._prune(folder)
        except OSError as error:
            self._cache.report_failure(folder, "be written", reason(error))

    def load(self, key: str, decoder: Decoder[T_co]) -> T_co | None:
        """Return the value of `key`; see `get`."""
        data = self._find_entry(key)
        if data is None:
            return None
        try:
            return decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.remove(key)
            return None

    def save(self, key: str, value: object) -> None:
        """Store a value that msgspec can encode; see `put`."""
        if self.is_enabled:
            self.put(key, msgspec.msgpack.encode(value))

    @contextmanager
    def making(self, key: str) -> Iterator[None]:
        """Wait until no other thread or process of this machine makes the entry `key`.

        For entries that take long, and that many processes miss at once. The system ends the wait
        for a process that is killed. Without a folder, or without its locks, nothing is waited for.
        """
        path = self.path(key)
        with ExitStack() as held:
            if path is not None:
                lock = path.with_name(f".{path.name}.lock")
                with suppress(OSError):
                    lock.parent.mkdir(parents=True, exist_ok=True)
                    fcntl.flock(held.enter_context(lock.open("ab")), fcntl.LOCK_EX)
            yield
            if path is not None:
                # A process that comes later finds the entry, and needs no lock.
                with suppress(OSError):
                    lock.unlink()

    def remove(self, key: str) -> None:
        """Remove an entry."""
        path = self.path(key)
        if path is not None:
            with suppress(OSError):
                path.unlink()

    def _is_whole(self, entry: memoryview, name: str) -> bool:
        """Return True if the bytes are a complete and undamaged entry `name`."""
        return len(entry) >= _CONTENT_OFFSET and hmac.compare_digest(
            entry[:_DIGEST], self._checksum(name, entry[_DIGEST:])
        )

    def _checksum(self, name: str, *parts: bytes | memoryview) -> bytes:
        key = self._cache.key
        hasher = hmac.new(key, digestmod="sha256") if key else hashlib.sha256()
        hasher.update(name.encode())
        for part in parts:
            hasher.update(part)
        return hasher.digest()

    def _prune(self, folder: Path) -> None:
        """Remove invalid, old and unfinished entries, and the oldest above the limit.

        Another run may prune at the same time, or read an entry that is removed: an open file stays
        readable.
        """
        entries: list[tuple[float, int, Path]] = []
        now = time.time()
        for path in folder.iterdir():
            with suppress(FileNotFoundError, IsADirectoryError):
                status = path.lstat()
                is_unfinished = path.name.startswith(".")
                age = UNFINISHED_AGE if is_unfinished else self._age
                if not stat.S_ISREG(status.st_mode) or now - status.st_mtime > age:
                    path.unlink()
                elif not is_unfinished:
                    entries.append((status.st_mtime, status.st_size, path))
        excess = sum(size for _, size, _ in entries) - self._limit
        for _, size, path in sorted(entries):
            if excess <= 0:
                break
            path.unlink(missing_ok=True)
            excess -= size


def _is_recent(entry: memoryview, within: float | None) -> bool:
    """Return True if an entry was written in the last `within` seconds."""
    (written,) = _TIME.unpack_from(entry, _DIGEST)
    return within is None or 0 <= time.time() - written < within
