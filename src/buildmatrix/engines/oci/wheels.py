"""The wheels of locks, fetched once and kept by their hash."""

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

    A download that was cut or killed goes on where it stopped, also in a later run. Nothing is
    handed out before its hash was computed over all of its bytes, in the run that wrote them, and
    before they are on disk: nobody computes it again after a power cut.
    """

    def __init__(self, folder: Path, *, offline: bool = False) -> None:
        self.folder = folder
        self._client = Client(offline=offline)

    def close(self) -> None:
        """Close all connections; what waits for a server gives up."""
        self._client.close()

    def path(self, wheel: Wheel) -> Path:
        """Where a wheel lies, whether it is there or not."""
        return self.folder / f"{wheel.sha256}.whl"

    def has(self, wheel: Wheel) -> bool:
        """Whether it need not be fetched; it counts as used then."""
        path = self.path(wheel)
        try:
            status = path.stat()
        except FileNotFoundError:
            return False
        note_use(path, status)
        return True

    def fetch(self, wheel: Wheel, lock: Lock) -> Path:
        """The file of a wheel that `lock` names, fetched where it is not here yet.

        Raises UndecidedError for a wheel that cannot be had or has another hash, BuildError when
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
                    # What an earlier run left was of another file.
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
        """Remove wheels by `make_room`, and what killed runs left. Raises OSError."""
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
        """Append what is missing; the hash of the whole."""
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
        """The file that a wheel is fetched into; whoever else works on it is waited for."""
        path = self.folder / f"{wheel.sha256}{_UNFINISHED}"
        while True:
            with path.open("a+b") as file:
                # Raises where a network file system has no locks: then a cache must not be shared.
                fcntl.flock(file, fcntl.LOCK_EX)
                with suppress(FileNotFoundError):
                    # Who held it may have given it its name, or removed it.
                    if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                        yield path, file
                        return
