"""Trees: read-only sets of files with random access. Standard library only."""
