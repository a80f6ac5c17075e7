"""Tree to facts. Standard library only: this package travels into the builder as a zip file."""
