"""What is kept on disk: the cache (`store.cache`), facts in it (`store.facts`), inventories."""

from __future__ import annotations

from buildmatrix.store.inventories import LARGEST, decode, read, write

__all__ = ["LARGEST", "decode", "read", "write"]
