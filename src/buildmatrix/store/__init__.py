"""On-disk data: the cache (`store.cache`), cached facts (`store.facts`), and inventories."""

from __future__ import annotations

from buildmatrix.store.inventories import MAX_INVENTORY, decode, read, write

__all__ = ["MAX_INVENTORY", "decode", "read", "write"]
