"""`buildmatrix.toml` → validated model → targets."""
