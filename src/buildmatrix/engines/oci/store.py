"""What builds without a daemon keep on this machine, for all targets and all specifications."""

from __future__ import annotations

from pathlib import Path

from buildmatrix.store.cache import Cache
from buildmatrix.trees.base import Closing


class ImageStore(Closing):
    """Blobs by digest (`layout`), wheels by hash, and what is known of both (`cache`).

    For all threads at once, and for several runs at once.
    """

    def __init__(self, folder: Path, cache: Cache, *, offline: bool = False) -> None:
        self.folder = folder
        self.cache = cache
        self.offline = offline

    def close(self) -> None:
        """Close all connections to indexes."""
