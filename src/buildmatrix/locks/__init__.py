"""Locks: ours (one per target, resolved by uv) and those of other tools; what inputs ask for."""
