"""Vendor ownership of files and distributions, as seen from one backend."""

from __future__ import annotations

import re

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.model import DistributionMatch, Evidence

#: Between the names of a title, but not inside of brackets: `AWS Neuron (Inferentia / Trainium)`.
_FIRST_NAME = re.compile(r" / (?![^(]*\))")


def is_foreign(item: Evidence | DistributionMatch, backend: str, catalogue: Catalogue) -> bool:
    """Return True if a thing belongs to another vendor than `backend` does.

    Things without a vendor are not foreign, and backends of one vendor (oneAPI and OpenVINO) are
    not foreign to each other. Code that a driver compiled for Vulkan belongs to Vulkan, whichever
    vendor's driver it was.
    """
    if item.vendor is None or item.backend == backend:
        return False
    if isinstance(item, Evidence) and item.kind == "device-code" and item.role == backend:
        return False
    return catalogue.vendor_of(backend) != item.vendor


def title(backend: str, catalogue: Catalogue) -> str:
    """The name of a backend in sentences: `NVIDIA CUDA` for `cuda`."""
    entry = catalogue.backends.get(backend)
    return _FIRST_NAME.split(entry.title, maxsplit=1)[0] if entry else backend
