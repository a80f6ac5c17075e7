"""Store of locks' wheels, which are fetched once and addressed by hash."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from buildmatrix.engines.disk import writing
from buildmatrix.errors import UndecidedError
from buildmatrix.index.client import Client
from buildmatrix.index.wheels import local_path
from buildmatrix.locks.model import Lock, Wheel
from buildmatrix.oci.stored_files import make_room, note_use, rename_written
from buildmatrix.trees.base import Closing, reason

_CHUNK: Final = 1 << 20
_UNFINISHED: Final = ".part"


class WheelStore(Closing):
    """Wheels in `folder`, one file per hash; for all threads and several runs at once.

    Interrupted downloads are resumed, also in a later run. A wheel is available only after the run
    that wrote it has verified its hash and synced it to disk, as it is not verified again after a
    power failure.
    """

    def __init__(self, folder: Path, *, offline: bool = False) -> None:
        self.folder = folder
        self._client = Client(offline=offline)

    def close(self) -> None:
        """Close all connections and end waits for servers."""
        self._client.close()

    def path(self, wheel: Wheel) -> Path:
        """Return the path of a wheel, present or not."""
        return self.folder / f"{wheel.sha256}.whl"

    def has(self, wheel: Wheel) -> bool:
        """Return True if a wheel is present, and mark it as used."""
        path = self.path(wheel)
        try:
            status = path.stat()
        except FileNotFoundError:
            return False
        note_use(path, status)
        return True

    def fetch(self, wheel: Wheel, lock: Lock) -> Path:
        """Return the file of a wheel of `lock`; fetch it if missing.

        Raises UndecidedError for a wheel that cannot be fetched or has another hash, BuildError if
        the disk is full.
        """
        if self.has(wheel):
            return self.path(wheel)
        if not wheel.url:
            raise UndecidedError(f"{wheel.filename}: its lock does not say where it is; lock again")
        with writing(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._unfinished(wheel) as (path, file):
                if self.has(wheel):
                    path.unlink(missing_ok=True)
                    return self.path(wheel)  # another run was faster
                is_begun = file.seek(0, os.SEEK_END) > 0
                digest = self._fill(wheel, lock, file)
                if digest != wheel.sha256 and is_begun:
                    # The rest of an earlier run belongs to another file.
                    file.truncate(0)
                    digest = self._fill(wheel, lock, file)
                if digest != wheel.sha256:
                    path.unlink()
                    raise UndecidedError(
                        f"{wheel.filename} has the hash {digest[:12]}..., and the lock says "
                        f"{wheel.sha256[:12]}...: it is another file than was locked; lock again "
                        "if it was meant to change"
                    )
                rename_written(file, path, self.path(wheel))
        return self.path(wheel)

    def prune(self, limit: int, age: float) -> None:
        """Prune wheels, and remove files of killed runs. Raises OSError."""
        wheels: list[tuple[float, int, str]] = []
        if not self.folder.is_dir():
            return
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    wheels.append((status.st_mtime, status.st_size, entry.path))
        make_room(wheels, limit, age)

    def _fill(self, wheel: Wheel, lock: Lock, file: BinaryIO) -> str:
        """Append the missing bytes; return the hash of the whole file."""
        hasher = hashlib.sha256()
        file.seek(0)
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
        for chunk in self._chunks(wheel, lock, file.tell()):
            hasher.update(chunk)
            file.write(chunk)
        return hasher.hexdigest()

    def _chunks(self, wheel: Wheel, lock: Lock, offset: int) -> Iterator[bytes]:
        path = local_path(wheel.url)
        if path is None:
            remote = self._client.open(wheel.url, wheel.size)
            if offset < remote.size:
                yield from remote.stream(offset)
            return
        try:
            with (lock.path.parent / path).open("rb") as file:
                file.seek(offset)
                yield from iter(lambda: file.read(_CHUNK), b"")
        except OSError as error:
            raise UndecidedError(f"{wheel.filename} cannot be read: {reason(error)}") from error

    @contextmanager
    def _unfinished(self, wheel: Wheel) -> Iterator[tuple[Path, BinaryIO]]:
        """Open the temporary file of a download; wait until no one else writes it."""
        path = self.folder / f"{wheel.sha256}{_UNFINISHED}"
        while True:
            with path.open("a+b") as file:
                # Fails on network file systems without locks: these must not have a shared cache.
                fcntl.flock(file, fcntl.LOCK_EX)
                with suppress(FileNotFoundError):
                    # The previous owner may have renamed or removed it.
                    if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                        yield path, file
                        return
