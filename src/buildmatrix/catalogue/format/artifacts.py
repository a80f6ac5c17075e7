"""What is compiled for a machine, and the folders that programs keep it in."""

from __future__ import annotations

from typing import Annotated

import msgspec

from buildmatrix.catalogue.format.entry import CatalogueEntry
from buildmatrix.catalogue.model import LeftoverKind


class ArtifactEntry(CatalogueEntry, frozen=True):
    """Compiled networks by format, which only some versions of their library load."""

    formats: tuple[str, ...]
    #: `TensorRT engine`
    title: str
    library: str
    #: What brings the library in its version: globs of distributions; below, of packages of the
    #: system, and of files whose names end with the version.
    distributions: tuple[str, ...]
    #: Numbers of the version that must be equal.
    parts: Annotated[int, msgspec.Meta(ge=1, le=4)]
    system_packages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    #: Major version that wrote it -> those of newer libraries that load what was built for that.
    newer_loads: dict[str, tuple[str, ...]] = {}
    #: Whether the library refuses all others; else it compiles again.
    refused: bool = True


class Framework(CatalogueEntry, frozen=True):
    """Names of distributions that compile for a device, or whose plugins do."""

    names: tuple[str, ...]


class CacheEntry(CatalogueEntry, frozen=True):
    """Folders that a program keeps for itself: what lies in them is not installed."""

    #: `uv's cache`
    title: str
    kind: LeftoverKind
    #: Paths, from the root on with a leading `/`, else anywhere; `*` stands for a part of one name.
    folders: tuple[str, ...]
    #: What to do, so that it is not left in an image.
    advice: str
    #: Environment variables that name such a folder.
    variables: tuple[str, ...] = ()
