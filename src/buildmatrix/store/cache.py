"""The cache on disk: what one run learned and the next ones need not learn again.

`<folder>/<kind>/<name>` is one entry. Its name is the SHA-256 of its kind, of the version of what
made it, and of the key that its owner gives it: what an entry depends on is part of its name, so
nothing that was made otherwise is ever found. No part of a name comes from outside as it is.

An entry starts with the SHA-256 of its name and the rest, and with the time at which it was
written. One that was cut short, damaged or put under another name is as if it were not there, and
is removed; so is whatever is no file. No link is followed: a cache may have been restored.

An entry may carry a seal in place of its SHA-256, where its folder may be a stranger's (see
`buildmatrix.state.seal`). The user's own cache has none: who can write there can do anything.

No locks. An entry is written beside its place and renamed into it. Of two runs that write the same
entry the last one wins, and both are right. A cache that cannot be read or written never fails a
run: that is said once.

Behind the folder there may be a place that many machines share (`store.shared`). What the folder
lacks is looked for there, and what is kept is kept in both. A place on a disk of this machine has
it alone: a second file would save nothing, and costs as much as the first.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import stat
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

import buildmatrix
from buildmatrix import git
from buildmatrix.errors import UsageError
from buildmatrix.inventory.writing import open_atomically
from buildmatrix.store.shared import SharedEntries
from buildmatrix.trees.base import reason

T_co = TypeVar("T_co", covariant=True)
DAY = 86400.0
#: Bytes of one entry; the facts of a root file system of 5 GB with 2,500 binaries have 5 MB.
LARGEST = 256 << 20
#: Seconds after which an unfinished entry belongs to a run that was killed.
ABANDONED = 3600.0
#: Seconds for which an entry that was used counts as just used.
_USED = 3600.0
_DIGEST = hashlib.sha256().digest_size
_TIME = struct.Struct(">d")
#: Where the content of an entry begins.
_START = _DIGEST + _TIME.size


class Decoder(Protocol[T_co]):
    """Turns the bytes of an entry into a value: `msgspec.msgpack.Decoder`."""

    def decode(self, data: bytes | memoryview, /) -> T_co:
        """Raises `msgspec.MsgspecError`."""


def default_folder(environment: Mapping[str, str]) -> Path:
    """Where a user's cache is: below BUILDMATRIX_CACHE, else XDG_CACHE_HOME, else `~/.cache`.

    Raises UsageError when there is no home folder either, and for a folder that Git tracks: what it
    holds was written by whoever committed it.
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
    return git.tracked_file(folder)


@cache
def code(*packages: str) -> str:
    """Names the sources of these packages of buildmatrix, or of all: part of a version.

    By their bytes, so that it is the same on every machine. Raises OSError for a package that is
    not there.
    """
    root = Path(buildmatrix.__file__).parent
    hasher = hashlib.sha256()
    folders = [str(root / package) for package in packages] or [str(root)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_dir():
                    if entry.name != "__pycache__":
                        folders.append(entry.path)
                elif entry.name.endswith((".py", ".toml")):
                    data = Path(entry.path).read_bytes()
                    name = os.fsencode(entry.path[len(str(root)) :])
                    hasher.update(b"%s\0%d\0" % (name, len(data)) + data)
    return hasher.hexdigest()[:16]


class Cache:
    """A folder with stores of several kinds; None for a folder keeps nothing in one.

    `note` is called once, when it cannot be used. `shared` is behind it. `key` seals its entries.
    """

    def __init__(
        self,
        folder: Path | None,
        note: Callable[[str], None] = lambda _: None,
        shared: SharedEntries | None = None,
        key: bytes = b"",
    ) -> None:
        self.folder = folder
        self.key = key
        self.shared = shared
        self._note: Callable[[str], None] | None = note
        self._lock = threading.Lock()
        #: Kind → bytes that may be written until old entries are looked for again.
        self._room: dict[str, int] = {}

    def store(
        self, kind: str, version: str, *, limit: int, age: float, by_use: bool = False
    ) -> Store:
        """The entries of one kind, of this version alone.

        Args:
            kind: name of a folder.
            version: what all entries depend on: their layout, the code that made them.
            limit: bytes of all entries together, of whatever version; the oldest go first.
            age: seconds after which an entry goes.
            by_use: count them from the last use of an entry, and not from when it was written.
        """
        folder = self.folder / kind if self.folder is not None else None
        if folder is not None and folder.is_symlink():
            self.cannot(folder, "be used", "it is a link")
            folder = None
        return Store(self, folder, kind, version, limit, age, by_use)

    def is_due(self, kind: str, size: int, limit: int) -> bool:
        """Whether old entries of a kind are to be looked for, now that `size` bytes were written.

        That costs a look at each entry, so it is due in the first place, and then after a part of
        `limit` alone, however many stores of the kind there are in this process.
        """
        with self._lock:
            room = self._room.get(kind, 0)
            is_due = room <= size
            self._room[kind] = limit // 16 if is_due else room - size
        return is_due

    def cannot(self, place: Path, action: str, why: str) -> None:
        """Report, the first time, that the cache fails, and what `action` failed."""
        note, self._note = self._note, None
        if note is not None:
            note(
                f"the cache {place} cannot {action}: {why};"
                " what it lacks is read again in every run"
            )


class Store:
    """The entries of one kind; for all threads at once. See `Cache.store`."""

    def __init__(
        self,
        cache: Cache,
        folder: Path | None,
        kind: str,
        version: str,
        limit: int,
        age: float,
        by_use: bool,
    ) -> None:
        self._cache = cache
        self._shared = cache.shared
        self._folder = folder
        self._kind = kind
        self._version = f"{kind}\0{version}"
        self._limit = limit
        self._largest = min(limit, LARGEST)
        self._age = age
        self._by_use = by_use

    @property
    def keeps(self) -> bool:
        """Whether anything is kept at all."""
        return self._folder is not None or self._shared is not None

    def path(self, key: str) -> Path | None:
        """The file of an entry, whether it is there or not; None where there is no folder."""
        return None if self._folder is None else self._folder / self._name(key)

    def _name(self, key: str) -> str:
        return hashlib.sha256(os.fsencode(f"{self._version}\0{key}")).hexdigest()

    def has(self, key: str) -> bool:
        """Whether something is kept under `key`, as far as one can tell without its bytes."""
        path = self.path(key)
        if path is not None and path.is_file():
            return True
        return self._shared is not None and self._shared.has(self._kind, self._name(key))

    def get(self, key: str, within: float | None = None) -> bytes | None:
        """What was kept under `key`; None for nothing.

        `within`: seconds that it may be old; an entry from the future is from a wrong clock.
        """
        data = self._entry(key, within)
        return None if data is None else bytes(data)

    def _entry(self, key: str, within: float | None) -> memoryview | None:
        """See `get`; no copy of what was read."""
        name = self._name(key)
        path = self.path(key)
        entry = None if path is None else self._in_folder(path)
        if entry is not None:
            if not self._is_whole(entry, name):
                self.remove(key)
            elif _is_within(entry, within):
                return entry[_START:]
        if self._shared is None:
            return None
        entry = memoryview(self._shared.read(self._kind, name, self._largest) or b"")
        if not (self._is_whole(entry, name) and _is_within(entry, within)):
            return None
        # From one disk to another, of one machine, nothing is won.
        if path is not None and not self._shared.is_near:
            self._write(path, (entry,))
        return entry[_START:]

    def _in_folder(self, path: Path) -> memoryview | None:
        """The bytes of an entry's file, whatever they are; None where there is none."""
        try:
            return memoryview(self._read(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._cache.cannot(path, "be read", reason(error))
            return None

    def put(self, key: str, data: bytes) -> None:
        """Keep `data`, unless there is too much of it."""
        name, path = self._name(key), self.path(key)
        if not self.keeps or len(data) + _START > self._largest:
            return
        written = _TIME.pack(time.time())
        # One after the other: facts of a layer have 20 MB, and would be copied.
        parts = (self._checksum(name, written, data), written, data)
        if self._shared is not None:
            is_kept = self._shared.write(self._kind, name, parts)
            if is_kept and self._shared.is_near:
                return
        if path is not None:
            self._write(path, parts)

    def _write(self, path: Path, parts: Sequence[bytes | memoryview]) -> None:
        """Put an entry into the folder."""
        size = sum(map(len, parts))
        try:
            # What a private index or an image holds is for this user alone.
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open_atomically(path, is_private=True) as file:
                for part in parts:
                    file.write(part)
            if self._cache.is_due(self._kind, size, self._limit):
                self._prune(path.parent)
        except OSError as error:
            self._cache.cannot(path.parent, "be written", reason(error))

    def load(self, key: str, decoder: Decoder[T_co], within: float | None = None) -> T_co | None:
        """The value that was saved under `key`; see `get`."""
        data = self._entry(key, within)
        if data is None:
            return None
        try:
            return decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.remove(key)
            return None

    def save(self, key: str, value: object) -> None:
        """Keep a value that msgspec can encode; see `put`."""
        if self.keeps:
            self.put(key, msgspec.msgpack.encode(value))

    def remove(self, key: str) -> None:
        """Forget an entry."""
        path = self.path(key)
        if path is not None:
            with suppress(OSError):
                path.unlink()

    def _read(self, path: Path) -> bytes:
        """The bytes of a file; none for what is no entry."""
        try:
            # Nor does it wait for a pipe.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ELOOP:
                return b""
            raise
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > self._largest:
                return b""
            if self._by_use and time.time() - status.st_mtime > _USED:
                with suppress(OSError):  # a cache that is read-only still serves
                    os.utime(descriptor)
            return os.read(descriptor, status.st_size)
        finally:
            os.close(descriptor)

    def _is_whole(self, entry: memoryview, name: str) -> bool:
        """Whether these are the bytes of the entry `name`, all of them and as they were written."""
        return len(entry) >= _START and hmac.compare_digest(
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
        """Remove what is no entry, what is too old or was left by killed runs, and the excess.

        Another run may remove the same at the same time, or read what is removed: an open file
        stays readable.
        """
        entries: list[tuple[float, int, str]] = []
        now = time.time()
        for file in _files(folder):
            with suppress(FileNotFoundError):
                status = file.stat(follow_symlinks=False)
                is_unfinished = file.name.startswith(".")
                age = ABANDONED if is_unfinished else self._age
                if not stat.S_ISREG(status.st_mode) or now - status.st_mtime > age:
                    Path(file.path).unlink()
                elif not is_unfinished:
                    entries.append((status.st_mtime, status.st_size, file.path))
        excess = sum(size for _, size, _ in entries) - self._limit
        for _, size, path in sorted(entries):
            if excess <= 0:
                break
            Path(path).unlink(missing_ok=True)
            excess -= size


def _files(folder: Path) -> list[os.DirEntry[str]]:
    """Everything in `folder` and in its folders, where version 0.1 had its entries.

    No link is followed: what lies behind one may belong to others.
    """
    files: list[os.DirEntry[str]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                files.append(entry)
                continue
            with suppress(OSError):  # once it is empty
                Path(entry.path).rmdir()
                continue
            with suppress(FileNotFoundError), os.scandir(entry.path) as inner:
                files += (file for file in inner if not file.is_dir(follow_symlinks=False))
    return files


def _is_within(entry: memoryview, within: float | None) -> bool:
    """Whether an entry was written in the last `within` seconds."""
    (written,) = _TIME.unpack_from(entry, _DIGEST)
    return within is None or 0 <= time.time() - written < within
