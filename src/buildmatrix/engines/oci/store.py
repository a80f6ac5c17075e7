"""Local store of builds without a daemon, shared by all targets and specifications."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from buildmatrix.engines.oci.base_files import notes_store
from buildmatrix.engines.oci.wheels import WheelStore
from buildmatrix.oci.compression import Compression, output_key
from buildmatrix.oci.layers import StoredLayer
from buildmatrix.oci.layout import OciLayout
from buildmatrix.store.cache import DAY, Cache, source_digest
from buildmatrix.threads import prepare_type
from buildmatrix.trees.base import Closing

#: Maximum bytes of blobs, and of wheels, after a run; the least recently used are removed first.
_MOST: Final = 50 << 30
#: Seconds after which unused files are removed.
_AGE: Final = 30 * DAY

#: Distribution → its paths in a layer; folders end with a slash.
LayerPaths = dict[str, list[str]]

_LAYER: Final = msgspec.msgpack.Decoder(prepare_type(StoredLayer))
_PATHS: Final = msgspec.msgpack.Decoder(prepare_type(LayerPaths))


class ImageStore(Closing):
    """Blobs by digest (`layout`), wheels by hash (`wheels`), and facts about both.

    Safe for concurrent threads and runs: files never change once they have their final name. `pool`
    has one thread per processor, for CPU-bound work.
    """

    def __init__(self, folder: Path, cache: Cache, *, offline: bool = False) -> None:
        self.layout = OciLayout(folder / "layout")
        self.wheels = WheelStore(folder / "wheels", offline=offline)
        #: Notes about layers of base images.
        self.notes = notes_store(cache)
        self._layers = cache.store("image-layers", "1", limit=256 << 20, age=90 * DAY, by_use=True)
        self.pool = ThreadPoolExecutor(processors(), "compress")
        #: Limits concurrently created layers: more would only need more memory.
        self.making = threading.Semaphore(processors())
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

    def keep(self, key: str, layer: StoredLayer) -> None:
        """Store a layer; `key` must include everything that its bytes depend on."""
        self._layers.save(key, layer)

    def paths(self, key: str) -> LayerPaths | None:
        """Return the paths in the layer of `key`, if stored."""
        return self._layers.load(f"paths {key}", _PATHS)

    def keep_paths(self, key: str, paths: LayerPaths) -> None:
        """Store the paths in the layer of `key`."""
        self._layers.save(f"paths {key}", paths)

    @contextmanager
    def once(self, key: str) -> Iterator[None]:
        """Let one thread at a time create an item; the next one finds the result."""
        with self._lock:
            lock = self._locks[key]
        with lock:
            yield


def made_by(compression: Compression) -> str:
    """Return the dependencies of all layers' bytes besides their files: a part of layer keys.

    Includes a digest of our sources, so that no version has to be raised by hand.
    """
    return f"{source_digest('engines/oci', 'oci', 'trees')} {output_key(compression)}"


def processors() -> int:
    """Return the number of processors available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
