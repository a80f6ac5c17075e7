"""Facts of wheels and conda packages on an index, or in a file of this machine."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.text import size
from buildmatrix.base.threads import prepare_type
from buildmatrix.facts.inventory.archive import PACKAGES
from buildmatrix.facts.trees.archive import Slice
from buildmatrix.facts.trees.base import Closing, Unreadable, reason
from buildmatrix.images.store.cache import DAY, Cache, source_digest
from buildmatrix.images.store.facts import file_digest
from buildmatrix.locks.conda_packages import is_conda_file
from buildmatrix.locks.index.model import (
    WHEEL_CACHE_LIMIT,
    Depth,
    Tables,
    WheelCache,
    WheelEntry,
    WheelFacts,
    content_key,
    place_key,
)
from buildmatrix.locks.index.names import apply_file_version, check_name
from buildmatrix.locks.model import LockedFile, SourceFacts
from buildmatrix.net.addresses import RequestError, parse

if TYPE_CHECKING:
    from buildmatrix.facts.trees.zip_archive import Bytes
    from buildmatrix.locks.index.depth import Reading
    from buildmatrix.locks.index.parts import Ranged
    from buildmatrix.locks.index.ranges import RemoteFile

_CHUNK = 256 << 10
_SOURCE = msgspec.msgpack.Decoder(prepare_type(SourceFacts))
_TABLES = msgspec.msgpack.Decoder(prepare_type(Tables))
#: Bytes of a wheel that is read whole; the largest have 4 GB.
LARGEST_WHOLE = 8 << 30
#: Bytes behind a member with its sizes (ZIP application note, 4.3.9).
_LONGEST_DESCRIPTOR = 24
#: Bytes in memory of files that may be read further.
MOST_HELD = 32 << 20


class FileServer(Protocol):
    """Opens files on servers: `index.client.Client`, at once or when it is first needed."""

    def open(self, url: str, size: int | None = None) -> RemoteFile:
        """Open the file at `url`. Raises `UndecidedError`."""


class WheelReader:
    """Reads wheels of locks; for all threads at once.

    `cache`: for facts; None for no cache.
    """

    def __init__(self, client: FileServer | None, cache: Cache | None = None) -> None:
        self._client = client
        self._cache = WheelCache(cache or Cache(None))
        version = source_digest("locks")
        self._sources = (cache or Cache(None)).store(
            "sources", version, limit=WHEEL_CACHE_LIMIT, age=90 * DAY, by_use=True
        )
        version = source_digest(*PACKAGES, "locks/index")
        self._kept_tables = (cache or Cache(None)).store(
            "tables", version, limit=WHEEL_CACHE_LIMIT // 8, age=90 * DAY, by_use=True
        )
        self._opened = _Opened()

    def read(self, wheel: LockedFile, depth: Depth, *, most: int | None = None) -> WheelFacts:
        """Return the facts of `wheel`, at least as deep as `depth`.

        At `heads`, `most` bytes may be spent beyond the listing; without a limit every beginning is
        read, and no more of any binary. The other depths take what they need. Raises
        `UndecidedError` for missing or unreadable wheels, and if a wheel does not have its name,
        size or hash.
        """
        try:
            path = local_path(wheel.url)
            if path is not None:
                return apply_file_version(self._read_local(wheel, path, depth, most))
            facts = self._find_cached(wheel, depth, most)
            return apply_file_version(facts or self._read_remote(wheel, depth, most))
        except OSError as error:
            raise UndecidedError(f"{wheel.filename} cannot be read: {reason(error)}") from error

    def recall_facts(
        self, wheel: LockedFile, depth: Depth, *, most: int | None = None
    ) -> WheelFacts | None:
        """Return the result of `read` if it is cached and needs no server or file.

        None if `read` would raise.
        """
        if local_path(wheel.url) is not None:
            return None
        with suppress(UndecidedError):
            facts = self._find_cached(wheel, depth, most)
            return apply_file_version(facts) if facts is not None else None
        return None

    def read_source(self, archive: LockedFile, name: str, version: str, most: int) -> SourceFacts:
        """The facts of a source distribution of at most `most` bytes. Raises `UndecidedError`."""
        from buildmatrix.locks.index.source_archive import source_facts

        entry = f"{archive.sha256} {name} {version}"
        kept = self._sources.load(entry, _SOURCE) if archive.sha256 else None
        if kept is not None and kept.size <= most:
            return kept
        if archive.size is not None and archive.size > most:
            raise UndecidedError(f"{archive.filename} has {size(archive.size)}, which is not read")
        try:
            facts = source_facts(self._iter_chunks(archive), archive.sha256, name, version, most)
        except OSError as error:
            raise UndecidedError(f"{archive.filename} cannot be read: {reason(error)}") from error
        if archive.sha256:
            self._sources.put(entry, msgspec.msgpack.encode(facts))
        return facts

    def _iter_chunks(self, archive: LockedFile) -> Iterator[bytes]:
        path = local_path(archive.url)
        if path is not None:
            with _LocalWheel(path) as local:
                yield from local.stream()
            return
        if self._client is None:
            raise UndecidedError(f"{archive.filename} is on an index, and none may be asked")
        yield from self._client.open(archive.url, archive.size).stream(0)

    def read_tables(
        self, wheel: LockedFile, paths: Sequence[str]
    ) -> tuple[Mapping[str, Tables], int]:
        """Return the tables of libraries of `wheel`, and the bytes received over the network.

        Raises `UndecidedError`.
        """
        try:
            path = local_path(wheel.url)
            if path is not None:
                identity = content_key(_check_digest(path, wheel))
            else:
                # Facts of a place are only valid for the same claim.
                identity = (
                    f"{_make_place_key(wheel)} {wheel.sha256} {wheel.size}" if wheel.sha256 else ""
                )
            known: dict[str, Tables] = {}
            for name in paths if identity else ():
                entry = self._kept_tables.load(f"{identity} {name}", _TABLES)
                if entry is not None:
                    known[name] = entry
            missing = sorted(set(paths) - known.keys())
            if not missing:
                return known, 0
            if path is not None:
                with _LocalWheel(path) as file:
                    known |= self._read_and_keep_tables(file, identity, missing)
                return known, 0
            remote, before = self._open(wheel)
            if remote.ranges:
                known |= self._read_and_keep_tables(remote, identity, missing)
            self._opened.keep(wheel, remote)
            return known, remote.bytes_read - before
        except OSError as error:
            raise UndecidedError(f"{wheel.filename} cannot be read: {reason(error)}") from error

    def _read_and_keep_tables(
        self, source: Ranged, identity: str, paths: Sequence[str]
    ) -> Mapping[str, Tables]:
        from buildmatrix.locks.index.depth import read_tables

        tables = read_tables(source, paths)
        for path, entry in tables.items() if identity else ():
            self._kept_tables.put(f"{identity} {path}", msgspec.msgpack.encode(entry))
        return tables

    def _find_cached(self, wheel: LockedFile, depth: Depth, most: int | None) -> WheelFacts | None:
        if not wheel.sha256:
            return None  # There may be another file at the same URL since.
        entry = self._cache.get(content_key(wheel.sha256), depth, most)
        if entry is None:
            entry = self._cache.get(_make_place_key(wheel), depth, most)
            if entry is None or entry.claim != wheel.sha256:
                return None
        return _check_cached(entry, wheel)

    def _read_local(
        self, wheel: LockedFile, path: Path, depth: Depth, most: int | None
    ) -> WheelFacts:
        sha256 = _check_digest(path, wheel)
        entry = self._cache.get(content_key(sha256), depth, most)
        if entry is not None:
            return _check_cached(entry, wheel)
        with _LocalWheel(path) as file:
            if wheel.size is not None and wheel.size != file.size:
                raise UndecidedError(
                    f"{path} has {file.size} bytes, and the lock says {wheel.size}: it is"
                    " another file than the one that was locked"
                )
            depth = _find_depth(wheel, file.size, depth, most)
            reading = (
                _collect(Slice(file, 0, file.size), wheel.filename)
                if depth == "whole"
                else _read_parts(file, depth, most, wheel.filename)
            )
            facts = _make_facts(wheel, sha256, file.size, depth, reading, 0)
        self._keep(WheelEntry(content_key(sha256), facts, most, reading.limited))
        return facts

    def _open(self, wheel: LockedFile) -> tuple[RemoteFile, int]:
        """Open a wheel on its index, or go on with an open one that has read so many bytes."""
        if self._client is None:
            raise RequestError(
                f"{wheel.filename} is on an index, and none may be asked", is_unconnected=True
            )
        remote = self._opened.take(wheel)
        if remote is not None:
            return remote, remote.bytes_read
        return self._client.open(wheel.url, wheel.size), 0

    def _read_remote(self, wheel: LockedFile, depth: Depth, most: int | None) -> WheelFacts:
        remote, before = self._open(wheel)
        claim = wheel.sha256 or None
        entry = self._cache.get(_make_place_key(wheel), depth, most)
        if (
            entry is not None
            and entry.version is not None
            and entry.version.is_same(remote.version)
        ):
            bytes_read = remote.bytes_read - before
            return replace(_check_cached(entry, wheel), sha256=claim, bytes_read=bytes_read)
        sha256 = None
        depth = _find_depth(wheel, remote.size, depth, most)
        if remote.ranges and depth != "whole":
            if (data := remote.whole) is not None:
                sha256 = hashlib.sha256(data).hexdigest()
                _check_claim(wheel, sha256)
            reading = _read_parts(remote, depth, most, wheel.filename)
        else:
            depth = "whole"
            reading, sha256 = read_all(remote.stream(0), wheel.filename)
            _check_claim(wheel, sha256)
        bytes_read = remote.bytes_read - before
        facts = _make_facts(wheel, sha256 or claim, remote.size, depth, reading, bytes_read)
        if depth == "listing":
            self._opened.keep(wheel, remote)
        if sha256 is not None and claim is not None:
            self._keep(WheelEntry(content_key(sha256), facts, most, reading.limited))
        else:
            version = remote.version
            self._keep(
                WheelEntry(_make_place_key(wheel), facts, most, reading.limited, claim, version)
            )
        return facts

    def _keep(self, entry: WheelEntry) -> None:
        if entry.facts.inventory.unread:
            return  # What could not be read may be readable next time.
        self._cache.put(entry if entry.facts.depth == "heads" else replace(entry, most=None))


class _Opened:
    """Files on servers of which only a list was read, kept open for deeper reads."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, int | None], RemoteFile] = {}
        self._lock = threading.Lock()

    def take(self, wheel: LockedFile) -> RemoteFile | None:
        """Return the file of `wheel`, for one thread alone."""
        with self._lock:
            return self._files.pop((wheel.url, wheel.size), None)

    def keep(self, wheel: LockedFile, remote: RemoteFile) -> None:
        """Hold `remote` until it is taken, or until others take too much memory."""
        with self._lock:
            self._files[wheel.url, wheel.size] = remote
            while sum(file.held for file in self._files.values()) > MOST_HELD:
                del self._files[next(iter(self._files))]


def _make_place_key(wheel: LockedFile) -> str:
    return place_key(parse(wheel.url))


def _check_cached(entry: WheelEntry, wheel: LockedFile) -> WheelFacts:
    """Return cached facts as those of `wheel`. Raises UndecidedError for another wheel."""
    facts = replace(entry.facts, filename=wheel.filename)
    if wheel.size is not None and wheel.size != facts.size:
        raise UndecidedError(
            f"{wheel.filename} has {facts.size} bytes, and the lock says {wheel.size}: it is"
            " another file than the one that was locked"
        )
    check_name(wheel.filename, facts)
    return facts


def _check_claim(wheel: LockedFile, sha256: str) -> None:
    """Raise UndecidedError if the lock has another hash than the bytes."""
    if wheel.sha256 and wheel.sha256 != sha256:
        raise UndecidedError(
            f"{wheel.filename} has the SHA-256 {sha256}, and the lock says {wheel.sha256}: it is"
            " another file than the one that was locked"
        )


def local_path(url: str) -> Path | None:
    """Return the file of a lock's `url`, if that is a path or a `file:` URL."""
    try:
        parts = urlsplit(url)
    # `http://[` is not a path either: the request for it reports what is wrong.
    except ValueError:
        return None
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme and "://" in url else Path(url)


def _make_facts(
    wheel: LockedFile,
    sha256: str | None,
    size: int,
    depth: Depth,
    reading: Reading,
    bytes_read: int,
) -> WheelFacts:
    """Return the result as facts of `wheel`. Raises UndecidedError for another wheel."""
    facts = WheelFacts(
        filename=wheel.filename,
        sha256=sha256,
        size=size,
        depth=depth,
        inventory=reading.inventory,
        members=reading.members,
        bytes_read=bytes_read,
    )
    check_name(wheel.filename, facts)
    return facts


def _check_digest(path: Path, wheel: LockedFile) -> str:
    """Return the SHA-256 of a file. Raises UndecidedError if the lock has another one."""
    try:
        sha256 = file_digest(path)
    except OSError as error:
        raise UndecidedError(f"{path} cannot be read: {reason(error)}") from error
    if wheel.sha256 and wheel.sha256 != sha256:
        raise UndecidedError(
            f"{path} has the SHA-256 {sha256}, and the lock says {wheel.sha256}: it changed since"
            " it was locked; lock again"
        )
    return sha256


def _find_depth(wheel: LockedFile, size: int, depth: Depth, most: int | None) -> Depth:
    """Return the depth to read to. A conda package is read whole, or only its list of files."""
    if not is_conda_file(wheel.filename) or depth != "heads":
        return depth
    return "whole" if most is not None and size <= most else depth


def _read_parts(source: Ranged, depth: Depth, most: int | None, filename: str) -> Reading:
    # The whole scan core comes with these; cached facts are given without it.
    from buildmatrix.locks.index.depth import read_package_list, read_parts

    if is_conda_file(filename):
        return read_package_list(source, filename)
    return read_parts(source, depth, most)


def read_all(chunks: Iterator[bytes], filename: str = "") -> tuple[Reading, str]:
    """Read a whole wheel, held in an unnamed file; return its facts and its SHA-256 in hex.

    Its directory comes last. Raises `Unreadable` for an archive that is not ZIP, has a member that
    installers refuse, or has files that its directory does not name; and for no conda package.
    """
    from buildmatrix.locks.index.source_archive import hold

    with hold(chunks, most=LARGEST_WHOLE) as (wheel, sha256):
        if not is_conda_file(filename):
            _check_gaps(wheel)
        return _collect(wheel, filename), sha256


def _check_gaps(wheel: Bytes) -> None:
    """Raise `Unreadable` for files that tools would only find without the directory."""
    from buildmatrix.facts.trees.wheel import WheelTree

    with WheelTree(wheel) as tree:
        for member in tree.members:
            entry, start = tree.place(member.path)
            if entry.end > start + entry.compressed + _LONGEST_DESCRIPTOR:
                raise Unreadable(f"the bytes behind {entry.name} are not in the wheel's directory")


def _collect(archive: Slice, filename: str) -> Reading:
    from buildmatrix.facts.inventory.collect import collect
    from buildmatrix.facts.trees.wheel import WheelTree
    from buildmatrix.locks.index.depth import Reading, read_package

    if is_conda_file(filename):
        return read_package(archive, filename)
    with WheelTree(archive) as tree:
        return Reading(collect(tree), tree.members)


class _LocalWheel(Closing):
    """A wheel in a file of this machine: an `index.parts.Ranged`."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")

    def close(self) -> None:
        """See `Closing.close`."""
        self._file.close()

    @property
    def size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._file.fileno(), max(0, length), offset)

    def load(self, parts: Sequence[tuple[int, int]]) -> None:
        """Do nothing: all bytes are here."""

    def stream(self, offset: int = 0) -> Generator[bytes, None, None]:
        while data := self.read(offset, _CHUNK):
            offset += len(data)
            yield data
