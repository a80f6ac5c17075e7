"""Facts of files: trees, binaries, device code, Python imports, and the model of the loader."""
