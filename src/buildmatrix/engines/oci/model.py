"""Inputs and results of an image build without a daemon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from buildmatrix.oci.documents import Descriptor, ImageConfiguration, Manifest

#: Content of a layer. `base`: from the base image; `system`: Debian packages; `account`: the user;
#: `distribution`: files of one wheel; `environment`: the rest of `/opt/venv`; `copy`: the
#: application; `folder`: a new working folder.
LayerKind = Literal["base", "system", "account", "distribution", "environment", "copy", "folder"]


class BaseImage(Protocol):
    """A base image in any location."""

    #: Name in the specification.
    reference: str
    #: Its manifest for the target's platform.
    descriptor: Descriptor
    manifest: Manifest
    configuration: ImageConfiguration

    def blob(self, descriptor: Descriptor) -> AbstractContextManager[Iterator[bytes]]:
        """Stream the bytes of a layer. Raises UndecidedError, also during reading."""


@dataclass(frozen=True, slots=True)
class BuiltLayer:
    """One layer of an image, with its blob in the layout."""

    descriptor: Descriptor
    #: Digest of its uncompressed bytes.
    diff_id: str
    kind: LayerKind
    #: Its distribution or instruction; empty for layers of the base.
    origin: str = ""
    #: Its line of the generated Dockerfile.
    line: int | None = None


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """A complete image in the layout of its `ImageStore`."""

    #: Its manifest.
    descriptor: Descriptor
    manifest: Manifest
    configuration: ImageConfiguration
    #: Lowest first, including those of the base.
    layers: tuple[BuiltLayer, ...]
    #: Reference and digest of the base.
    base: tuple[str, str]
