"""One module per backend; only the one that the image is for is ever imported."""

from __future__ import annotations

import importlib
import os

from inferno.model import Backend


def load(name: str | None = None) -> Backend:
    """The backend of this image (`INFERNO_BACKEND`)."""
    chosen = name or os.environ["INFERNO_BACKEND"]
    module = importlib.import_module(f"inferno.backends.{chosen}")
    backend: Backend = module.create()
    return backend
