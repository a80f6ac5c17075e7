"""The answer of `why`: each format of it."""
