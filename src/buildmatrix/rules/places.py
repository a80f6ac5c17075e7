"""Which foreign files are the base image's, and which came with the application."""

from __future__ import annotations

from buildmatrix.catalogue.model import Evidence

_SYSTEM = frozenset({"bin", "etc", "lib", "lib32", "lib64", "opt", "sbin", "usr", "var"})
_PACKAGES = frozenset({"site-packages", "dist-packages"})


def is_base(item: Evidence) -> bool:
    """Return True if it belongs to the system, not to a Python distribution or an application."""
    if item.distribution is not None:
        return False
    parts = item.path.split("/")
    return parts[0] in _SYSTEM and not _PACKAGES.intersection(parts)
