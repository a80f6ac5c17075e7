"""Local store of builds without a daemon: wheels, notes and layers of all specifications."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.threads import prepare_type
from buildmatrix.engines.oci.base_files import BaseFiles, notes_store
from buildmatrix.engines.oci.installation import InstalledFile
from buildmatrix.engines.process import writing
from buildmatrix.facts.inventory.workers import count_processors
from buildmatrix.facts.trees.base import Closing, reason
from buildmatrix.images.layers import (
    LayerEntry,
    StoredLayer,
    layer_writer,
    output_key,
    parent_folders,
    sort_key,
)
from buildmatrix.images.layout import OciLayout, list_files, make_room, note_use, rename_written
from buildmatrix.images.store.cache import DAY, Cache, source_digest
from buildmatrix.locks.index.client import Client
from buildmatrix.locks.index.wheels import local_path
from buildmatrix.locks.model import Lock, Wheel

# Wheels, fetched once and addressed by hash


_CHUNK: Final = 1 << 20
_UNFINISHED: Final = ".part"


class WheelStore(Closing):
    """Wheels in `folder`, one file per hash; for all threads and several runs at once.

    Interrupted downloads are resumed, also in a later run. A wheel is available only after the run
    that wrote it has verified its hash and synced it to disk, as it is not verified again after a
    power failure.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._client = Client()

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
            with self._open_unfinished(wheel) as (path, file):
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
        if self.folder.is_dir():
            make_room(list_files(self.folder), limit, age)

    def _fill(self, wheel: Wheel, lock: Lock, file: BinaryIO) -> str:
        """Append the missing bytes; return the hash of the whole file."""
        hasher = hashlib.sha256()
        file.seek(0)
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
        for chunk in self._iter_chunks(wheel, lock, file.tell()):
            hasher.update(chunk)
            file.write(chunk)
        return hasher.hexdigest()

    def _iter_chunks(self, wheel: Wheel, lock: Lock, offset: int) -> Iterator[bytes]:
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
    def _open_unfinished(self, wheel: Wheel) -> Iterator[tuple[Path, BinaryIO]]:
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


#: Maximum bytes of blobs, and of wheels, after a run; the least recently used are removed first.
_MOST: Final = 50 << 30
#: Seconds after which unused files are removed.
_AGE: Final = 30 * DAY

_LAYER: Final = msgspec.msgpack.Decoder(prepare_type(StoredLayer))


class ImageStore(Closing):
    """Blobs by digest (`layout`), wheels by hash (`wheels`), and facts about both.

    Safe for concurrent threads and runs: files never change once they have their final name. `pool`
    has one thread per processor, for CPU-bound work.
    """

    def __init__(self, folder: Path, cache: Cache) -> None:
        self.layout = OciLayout(folder / "layout")
        self.wheels = WheelStore(folder / "wheels")
        #: Notes about layers of base images.
        self.notes = notes_store(cache)
        self._layers = cache.store("image-layers", "2", limit=256 << 20, age=90 * DAY, by_use=True)
        self.pool = ThreadPoolExecutor(count_processors(), "compress")
        #: Limits concurrently created layers: more would only need more memory.
        self.making = threading.Semaphore(count_processors())
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close all connections, and prune the store."""
        self.wheels.close()
        self.pool.shutdown(cancel_futures=True)
        with suppress(OSError):  # another run may do the same, or the disk be read-only
            self.layout.prune(_MOST, _AGE)
            self.wheels.prune(_MOST, _AGE)

    def layer(self, key: str) -> StoredLayer | None:
        """Return the layer stored under `key`, if its blob still exists."""
        layer = self._layers.load(key, _LAYER)
        return layer if layer is not None and self.layout.has(layer.descriptor) else None

    def make_once(self, key: str, make: Callable[[], StoredLayer]) -> StoredLayer:
        """Return the layer stored under `key`, else that of `make`, which one thread calls.

        `key` must include everything that the layer's bytes depend on.
        """
        with self.once(key):
            layer = self.layer(key)
            if layer is None:
                layer = make()
                self._layers.save(key, layer)
            return layer

    @contextmanager
    def once(self, key: str) -> Iterator[None]:
        """Let one thread at a time create an item; the next one finds the result."""
        with self._lock:
            lock = self._locks[key]
        with lock:
            yield


def made_by() -> str:
    """Return the dependencies of all layers' bytes besides their files: a part of layer keys.

    Includes a digest of our sources, so that no version has to be raised by hand.
    """
    return f"{source_digest('engines/oci', 'images', 'facts/trees')} {output_key()}"


# Creation of layers


def with_folders(files: Mapping[str, InstalledFile], base: BaseFiles) -> list[InstalledFile]:
    """Return `files` with their parent folders, in the order of a layer."""
    complete = dict(files)
    for path in files:
        for above in parent_folders(path):
            if above not in complete:
                complete[above] = InstalledFile(folder(above, base))
    return [complete[path] for path in sorted(complete, key=sort_key)]


def folder(path: str, base: BaseFiles) -> LayerEntry:
    """Return a parent folder with the attributes of the base, as layers override these."""
    there = base.entries.get(path)
    if there is None:
        return LayerEntry(path, "folder", 0o755)
    owner = there.attributes
    return LayerEntry(path, "folder", owner.mode, user=owner.uid, group=owner.gid)


def write_layer(files: Iterable[InstalledFile], store: ImageStore) -> StoredLayer:
    """Write a layer of `files`, in their order, to `store`."""
    with layer_writer(store.layout, store.pool) as writer:
        for file in files:
            writer.add(file.entry, file.content())
    return writer.layer
