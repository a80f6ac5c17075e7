"""Stored inventories: read back with validation, cached under the digest of what was read."""
