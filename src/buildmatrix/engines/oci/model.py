"""What goes into an image that is made here, and what comes out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from buildmatrix.oci.documents import Descriptor, ImageConfiguration, Manifest

#: What a layer holds: `base` those of the base image, `system` Debian packages, `account` the user,
#: `distribution` the files of one wheel, `environment` the rest of `/opt/venv`, `copy` the
#: application, `folder` a working folder that nothing else made.
LayerKind = Literal["base", "system", "account", "distribution", "environment", "copy", "folder"]


class BaseImage(Protocol):
    """An image to build on, wherever it is."""

    #: As the specification names it.
    reference: str
    #: Of its manifest, of the target's platform.
    descriptor: Descriptor
    manifest: Manifest
    configuration: ImageConfiguration

    def blob(self, descriptor: Descriptor) -> AbstractContextManager[Iterator[bytes]]:
        """The bytes of one of its layers. Raises UndecidedError, here or while they are read."""


@dataclass(frozen=True, slots=True)
class BuiltLayer:
    """One layer of an image, whose blob is in the layout."""

    descriptor: Descriptor
    #: Digest of its uncompressed bytes.
    diff_id: str
    kind: LayerKind
    #: Which distribution or which instruction it comes from; empty for those of the base.
    origin: str = ""
    #: Line of the generated Dockerfile that it comes from.
    line: int | None = None


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image that is complete in the layout of its `ImageStore`."""

    #: Of its manifest.
    descriptor: Descriptor
    manifest: Manifest
    configuration: ImageConfiguration
    #: The lowest first, those of the base among them.
    layers: tuple[BuiltLayer, ...]
    #: Reference of the base, and the digest that was taken.
    base: tuple[str, str]
