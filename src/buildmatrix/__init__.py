"""Proves that a container image for one accelerator backend is really that."""

__version__ = "0.1.0"
