"""What is kept on disk: inventories, and the cache of facts (`store.facts`)."""

from __future__ import annotations

from buildmatrix.store.inventories import LARGEST, decode, read, write

__all__ = ["LARGEST", "decode", "read", "write"]
