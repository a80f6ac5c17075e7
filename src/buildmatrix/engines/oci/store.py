"""What builds without a daemon keep on this machine, for all targets and all specifications."""

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
from buildmatrix.oci.compression import Compression, settings
from buildmatrix.oci.layers import StoredLayer
from buildmatrix.oci.layout import OciLayout
from buildmatrix.store.cache import DAY, Cache, code
from buildmatrix.threads import prepare_type
from buildmatrix.trees.base import Closing

#: Bytes of all blobs, and of all wheels, that stay when a run ends; the longest unused go first.
_MOST: Final = 50 << 30
#: Seconds after which what nobody used goes.
_AGE: Final = 30 * DAY

#: Distribution → what it has in a layer; paths of folders end with a slash.
LayerPaths = dict[str, list[str]]

_LAYER: Final = msgspec.msgpack.Decoder(prepare_type(StoredLayer))
_PATHS: Final = msgspec.msgpack.Decoder(prepare_type(LayerPaths))


class ImageStore(Closing):
    """Blobs by digest (`layout`), wheels by hash (`wheels`), and what is known of both.

    For all threads at once, and for several runs at once: nothing in it is changed once it has its
    name. `pool` has a thread for each processor, for work that waits for nobody.
    """

    def __init__(self, folder: Path, cache: Cache, *, offline: bool = False) -> None:
        self.layout = OciLayout(folder / "layout")
        self.wheels = WheelStore(folder / "wheels", offline=offline)
        #: What is known of layers of base images.
        self.notes = notes_store(cache)
        self._layers = cache.store("image-layers", "1", limit=256 << 20, age=90 * DAY, by_use=True)
        self.pool = ThreadPoolExecutor(processors(), "compress")
        #: Layers that are made at the same time: more would only take more memory.
        self.making = threading.Semaphore(processors())
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close all connections, and remove what is too much."""
        self.wheels.close()
        self.pool.shutdown(cancel_futures=True)
        with suppress(OSError):  # another run may do the same, or the disk be read-only
            self.layout.prune(_MOST, _AGE)
            self.wheels.prune(_MOST, _AGE)

    def layer(self, key: str) -> StoredLayer | None:
        """The layer that was kept under `key`, if all of its bytes are still there."""
        layer = self._layers.load(key, _LAYER)
        return layer if layer is not None and self.layout.has(layer.descriptor) else None

    def keep(self, key: str, layer: StoredLayer) -> None:
        """Remember what a layer was made of; `key` names all that its bytes depend on."""
        self._layers.save(key, layer)

    def paths(self, key: str) -> LayerPaths | None:
        """What the layer that is kept under `key` holds, if that was kept."""
        return self._layers.load(f"paths {key}", _PATHS)

    def keep_paths(self, key: str, paths: LayerPaths) -> None:
        """Remember what the layer that is kept under `key` holds."""
        self._layers.save(f"paths {key}", paths)

    @contextmanager
    def once(self, key: str) -> Iterator[None]:
        """One thread at a time for what has this name: the next one finds it made."""
        with self._lock:
            lock = self._locks[key]
        with lock:
            yield


def made_by(compression: Compression) -> str:
    """What the bytes of every layer depend on beside its files: a part of the keys of layers.

    By the sources, so that nobody has to raise a number when the same wheel is laid out otherwise.
    """
    return f"{code('engines/oci', 'oci', 'trees')} {settings(compression)}"


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
