"""The facts of wheels, wherever they are: on an index, or in a file of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from buildmatrix.errors import UndecidedError
from buildmatrix.index.facts import FactsCache
from buildmatrix.index.model import Depth, WheelFacts
from buildmatrix.lock.model import Wheel
from buildmatrix.store.facts import digest
from buildmatrix.trees.base import Closing, reason

if TYPE_CHECKING:
    from buildmatrix.index.depth import Reading
    from buildmatrix.index.remote import RemoteFile

_CHUNK = 256 << 10


class Files(Protocol):
    """Opens files on servers: `index.client.Client`."""

    def open(self, url: str, size: int | None = None) -> RemoteFile:
        """The file at `url`. Raises `UndecidedError`."""


class WheelReader:
    """Reads wheels of locks; for all threads at once.

    `folder`: where facts are kept, below the caller's cache; None for nowhere.
    """

    def __init__(self, client: Files | None, folder: Path | None) -> None:
        self._client = client
        self._cache = FactsCache(folder)

    def prune(self) -> None:
        """Keep the cache below its limit; once, at the end of a run."""
        self._cache.prune()

    def read(self, wheel: Wheel, depth: Depth, *, most: int | None = None) -> WheelFacts:
        """The facts of `wheel`, at least as deep as `depth`.

        At `heads`, `most` bytes may be spent on more than the listing; without it every beginning
        is read, and no binary beyond that. The other depths take what they need. Raises
        `UndecidedError` for what cannot be had or read, and where a wheel is not what its name, its
        size or its hash say.
        """
        path = local_path(wheel.url)
        sha256 = wheel.sha256 or None
        if path is not None:
            sha256 = _digest(path, wheel)
        known = self._cache.get(sha256, depth, most) if sha256 else None
        if known is not None:
            return known
        try:
            facts, limited = self._facts(wheel, path, sha256, depth, most)
        except OSError as error:
            raise UndecidedError(f"{wheel.filename} cannot be read: {reason(error)}") from error
        _check_name(wheel.filename, facts)
        if not facts.inventory.unread:
            # What could not be read may be readable next time.
            self._cache.put(facts, most if depth == "heads" else None, limited)
        return facts

    def remembered(
        self, wheel: Wheel, depth: Depth, *, most: int | None = None
    ) -> WheelFacts | None:
        """What `read` would give, where it is kept and no file has to be hashed for it."""
        if not wheel.sha256 or local_path(wheel.url) is not None:
            return None
        return self._cache.get(wheel.sha256, depth, most)

    def _facts(
        self, wheel: Wheel, path: Path | None, sha256: str | None, depth: Depth, most: int | None
    ) -> tuple[WheelFacts, bool]:
        # The whole scan core comes with these; what is kept is given without it.
        from buildmatrix.index.depth import read_parts
        from buildmatrix.index.sequential import read_stream
        from buildmatrix.trees.wheel import WheelTree

        if path is not None:
            with _LocalWheel(path) as file:
                if wheel.size is not None and wheel.size != file.size:
                    raise UndecidedError(
                        f"{path} has {file.size} bytes, and the lock says {wheel.size}: it is"
                        " another file than the one that was locked"
                    )
                reading = _whole_file(path) if depth == "whole" else read_parts(file, depth, most)
                facts = _told(wheel, sha256, file.size, depth, reading, 0)
                return facts, reading.limited
        if self._client is None:
            raise UndecidedError(f"{wheel.filename} is on an index, and none may be asked")
        remote = self._client.open(wheel.url, wheel.size)
        if remote.ranges and depth != "whole":
            reading = read_parts(remote, depth, most)
        else:
            depth = "whole"
            known = WheelTree(remote) if remote.ranges else None
            streamed = read_stream(remote.stream(0), remote.size, known)
            if sha256 and streamed.sha256 != sha256:
                raise UndecidedError(
                    f"{wheel.filename} has the SHA-256 {streamed.sha256}, and the lock says"
                    f" {sha256}: it is another file than the one that was locked"
                )
            reading, sha256 = streamed.reading, streamed.sha256
        facts = _told(wheel, sha256, remote.size, depth, reading, remote.bytes_read)
        return facts, reading.limited


def local_path(url: str) -> Path | None:
    """The file that a lock's `url` means, when it is a path or a `file:` URL."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme and "://" in url else Path(url)


def _told(
    wheel: Wheel, sha256: str | None, size: int, depth: Depth, reading: Reading, bytes_read: int
) -> WheelFacts:
    return WheelFacts(
        filename=wheel.filename,
        sha256=sha256,
        size=size,
        depth=depth,
        inventory=reading.inventory,
        members=reading.members,
        bytes_read=bytes_read,
    )


def _digest(path: Path, wheel: Wheel) -> str:
    """SHA-256 of a file. Raises UndecidedError where the lock means another one."""
    try:
        found = digest(path)
    except OSError as error:
        raise UndecidedError(f"{path} cannot be read: {reason(error)}") from error
    if wheel.sha256 and wheel.sha256 != found:
        raise UndecidedError(
            f"{path} has the SHA-256 {found}, and the lock says {wheel.sha256}: it changed since it"
            " was locked; lock again"
        )
    return found


def _whole_file(path: Path) -> Reading:
    from buildmatrix.index.depth import Reading
    from buildmatrix.inventory.collect import collect
    from buildmatrix.trees.wheel import WheelTree

    with WheelTree(path) as tree:
        return Reading(collect(tree), tree.members)


def _check_name(filename: str, facts: WheelFacts) -> None:
    """Raises UndecidedError for a wheel that its metadata call something else than its name."""
    try:
        name, version, _, _ = parse_wheel_filename(filename)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise UndecidedError(f"{filename} is no name of a wheel: {error}") from error
    found = facts.inventory.distributions
    if not found:
        raise UndecidedError(f"{filename} has no metadata folder (.dist-info): it is no wheel")
    for one in found:
        with suppress(InvalidVersion):
            if canonicalize_name(one.name) == name and Version(one.version) == version:
                return
    said = ", ".join(f"{one.name} {one.version}" for one in found[:3])
    raise UndecidedError(
        f"{filename} holds {said} by its own metadata, not {name} {version}; installers refuse it"
    )


class _LocalWheel(Closing):
    """A wheel in a file of this machine: an `index.depth.Ranged`."""

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
        """Nothing has to be brought."""

    def stream(self, offset: int = 0) -> Iterator[bytes]:
        while data := self.read(offset, _CHUNK):
            offset += len(data)
            yield data
