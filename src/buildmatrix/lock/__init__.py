"""One `pylock.<id>.toml` per target, resolved by `uv`."""
