"""Base images: in a registry, in an image layout, in an archive of one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final

from buildmatrix.engines.oci.model import BaseImage
from buildmatrix.errors import UndecidedError
from buildmatrix.oci.documents import (
    INDEX,
    INDEXES,
    LARGEST_DOCUMENT,
    Descriptor,
    ImageIndex,
    Platform,
    configuration_of,
    index_of,
    manifest_of,
)
from buildmatrix.oci.layout import Layout, checked
from buildmatrix.registry.client import Registry
from buildmatrix.registry.reference import Reference
from buildmatrix.trees.archive import CHUNK, OpenFile, Slice, members, plain
from buildmatrix.trees.base import Closing, Unreadable, reason

#: Indexes inside of indexes.
_DEEPEST: Final = 4


class RegistryBase:
    """A base in a registry. Raises UndecidedError."""

    def __init__(
        self, registry: Registry, reference: str, platform: Platform, *, mirror: str = ""
    ) -> None:
        self.reference = reference
        self._registry = registry
        self._name = Reference.parse(f"{mirror}{reference}")
        document = registry.manifest(self._name)
        for _ in range(_DEEPEST):
            if document.media_type not in INDEXES:
                break
            listed = index_of(document.data, reference)
            found = _of(listed, platform, reference)
            document = registry.manifest(self._name.at(found.digest))
        self.descriptor = document.descriptor
        self.manifest = manifest_of(document.data, reference)
        with self.blob(self.manifest.config) as chunks:
            data = _bounded(chunks, self.manifest.config, reference)
        self.configuration = configuration_of(data, reference)

    def blob(self, descriptor: Descriptor) -> AbstractContextManager[Iterator[bytes]]:
        """See `BaseImage.blob`."""
        return self._registry.blob(self._name, descriptor)


class LayoutBase:
    """A base in a folder that is an image layout. Raises UndecidedError."""

    def __init__(self, folder: Path, reference: str, platform: Platform) -> None:
        self.reference = reference
        self._layout = layout = Layout(folder)
        found = ImageIndex(schema_version=2, media_type=INDEX, manifests=layout.images())
        if not found.manifests:
            raise UndecidedError(f"{folder} is no image layout: it has no index.json with an image")
        for _ in range(_DEEPEST):
            self.descriptor = _of(found, platform, str(folder))
            if self.descriptor.media_type not in INDEXES:
                break
            found = index_of(layout.document(self.descriptor), str(folder))
        self.manifest = manifest_of(layout.document(self.descriptor), str(folder))
        self.configuration = configuration_of(layout.document(self.manifest.config), str(folder))

    def blob(self, descriptor: Descriptor) -> AbstractContextManager[Iterator[bytes]]:
        """See `BaseImage.blob`."""
        return self._layout.blob(descriptor)


class ArchiveBase(Closing):
    """A base in a file: an OCI archive, or what `docker save` writes since Docker 25.

    Raises UndecidedError. The file is held open until `close`.
    """

    def __init__(self, path: Path, reference: str, platform: Platform) -> None:
        self.reference = reference
        self._path = path
        with ExitStack() as held:
            try:
                file = OpenFile(held.enter_context(path.open("rb")).fileno())
                self._files = {
                    name: member.data
                    for member in members(Slice(file, 0, file.size))
                    if member.data is not None and (name := plain(member.name)) is not None
                }
            except Unreadable as error:
                raise UndecidedError(f"{path} is no archive of an image: {error}") from error
            except OSError as error:
                raise UndecidedError(f"{path} cannot be read: {reason(error)}") from error
            index = self._files.get("index.json")
            if index is None:
                raise UndecidedError(
                    f"{path} has no index.json, so it is no OCI archive; save it with Docker 25 or "
                    "newer, skopeo or podman"
                )
            data = index.read(0, min(index.size, LARGEST_DOCUMENT + 1))
            for _ in range(_DEEPEST):
                self.descriptor = _of(index_of(data, str(path)), platform, str(path))
                data = self._document(self.descriptor)
                if self.descriptor.media_type not in INDEXES:
                    break
            self.manifest = manifest_of(data, str(path))
            self.configuration = configuration_of(self._document(self.manifest.config), str(path))
            self._held = held.pop_all()

    def close(self) -> None:
        """Close the file."""
        self._held.close()

    @contextmanager
    def blob(self, descriptor: Descriptor) -> Iterator[Iterator[bytes]]:
        """See `BaseImage.blob`."""
        data = self._files.get(f"blobs/{descriptor.digest.replace(':', '/')}")
        if data is None:
            raise UndecidedError(f"{self._path} has no blob {descriptor.digest}: it was cut short")
        size = data.size
        chunks = (data.read(at, CHUNK) for at in range(0, size, CHUNK))
        yield checked(chunks, descriptor, str(self._path))

    def _document(self, descriptor: Descriptor) -> bytes:
        with self.blob(descriptor) as chunks:
            return _bounded(chunks, descriptor, str(self._path))


def _of(index: ImageIndex, platform: Platform, where: str) -> Descriptor:
    """The image of an index that is meant."""
    found = index.of(platform)
    if found:
        return found[0]
    images = index.images()
    if len(images) == 1 and images[0].platform is None:
        return images[0]  # what it runs on is in its configuration
    named = ", ".join(sorted({str(entry.platform or "?") for entry in images})) or "none at all"
    raise UndecidedError(f"{where} has no image for {platform}; it has {named}")


def _bounded(chunks: Iterator[bytes], descriptor: Descriptor, where: str) -> bytes:
    if descriptor.size > LARGEST_DOCUMENT:
        raise UndecidedError(f"{where}: its configuration has {descriptor.size} bytes")
    return b"".join(chunks)


def _is_base(base: RegistryBase | LayoutBase | ArchiveBase) -> BaseImage:
    """For the type checker: all three are bases."""
    return base
