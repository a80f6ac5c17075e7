"""The images that the engine `oci` has on this machine: a layout in the state folder.

An image is a name in the layout's index. Blobs that no image has any more are removed when names
move; other processes that write are kept out by the lock of the state folder.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from buildmatrix.engines.disk import writing
from buildmatrix.errors import UndecidedError
from buildmatrix.oci.documents import Descriptor, ImageConfiguration, Manifest, configuration_of
from buildmatrix.oci.layout import REF_NAME, OciLayout
from buildmatrix.trees.archive import OpenFile, Slice, Spool
from buildmatrix.trees.archive_layers import LayeredTree


class Images:
    """Images by name or digest, in the layout `folder`. For all threads at once."""

    def __init__(self, folder: Path) -> None:
        self.layout = OciLayout(folder)
        self._lock = threading.Lock()

    def find(self, reference: str) -> Descriptor | None:
        """The image of a name, or of the digest of a manifest or a configuration, or None."""
        for entry in self.layout.images():
            if reference in (entry.digest, entry.annotations.get(REF_NAME)):
                return entry
            if reference.startswith("sha256:") and self.manifest(entry).config.digest == reference:
                return entry
        return None

    def by_name(self) -> Mapping[str, Descriptor]:
        """All images that have names."""
        named = {entry.annotations.get(REF_NAME): entry for entry in reversed(self.layout.images())}
        return {name: entry for name, entry in named.items() if name is not None}

    def get(self, reference: str) -> Descriptor:
        """The same. Raises `UndecidedError` where there is none."""
        image = self.find(reference)
        if image is None:
            raise UndecidedError(f"{self.layout.folder} has no image {reference}; build it again")
        return image

    def names(self, image: Descriptor) -> tuple[str, ...]:
        """The names of an image."""
        return tuple(
            name
            for entry in self.layout.images()
            if entry.digest == image.digest and (name := entry.annotations.get(REF_NAME))
        )

    def is_whole(self, image: Descriptor) -> bool:
        """Whether all blobs of an image are there."""
        if not self.layout.has(image):
            return False
        manifest = self.manifest(image)
        return all(map(self.layout.has, (manifest.config, *manifest.layers)))

    def manifest(self, image: Descriptor) -> Manifest:
        """The manifest of an image. Raises `UndecidedError`."""
        return self.layout.manifest(image)

    def configuration(self, image: Descriptor) -> ImageConfiguration:
        """The configuration of an image. Raises `UndecidedError`."""
        data = self.layout.document(self.manifest(image).config)
        return configuration_of(data, f"{self.layout.folder}: {image.digest}")

    def add(self, source: OciLayout, image: Descriptor, name: str) -> None:
        """Bring an image of `source` here, under one more name. Raises what writing raises."""
        with self._lock, writing(self.layout.folder):
            self.layout.adopt(source, image)
            self._name(image, {*self.names(image), name})

    def move(self, name: str, names: Sequence[str]) -> None:
        """Give `names` to the image `name`, and take that name from it."""
        with self._lock, writing(self.layout.folder):
            image = self.get(name)
            self._name(image, {*self.names(image), *names} - {name})

    def _name(self, image: Descriptor, names: set[str]) -> None:
        self.layout.publish(image, sorted(names))
        self._remove_unused()

    def _remove_unused(self) -> None:
        """Remove the blobs of images that have lost all their names."""
        used = set()
        for entry in self.layout.images():
            manifest = self.manifest(entry)
            used |= {
                entry.digest,
                manifest.config.digest,
                *(part.digest for part in manifest.layers),
            }
        for path in (self.layout.folder / "blobs").glob("*/*"):
            if f"{path.parent.name}:{path.name}" not in used:
                path.unlink(missing_ok=True)

    @contextmanager
    def tree(self, image: Descriptor) -> Iterator[LayeredTree]:
        """The files of an image. Raises `UndecidedError`."""
        with ExitStack() as stack:
            spool = Spool()
            stack.callback(spool.close)
            layers = []
            for layer in self.manifest(image).layers:
                source = OpenFile(stack.enter_context(self.layout.open(layer)).fileno())
                layers.append(spool.plain(Slice(source, 0, source.size)))
            yield LayeredTree(layers)
