"""`tar:FILE` and `oci:LAYOUT`: an image that was saved (docker save, an OCI archive or layout)."""

from __future__ import annotations

import re
from pathlib import Path

from buildmatrix.engines.exports import OpenTree, saved_image
from buildmatrix.errors import UsageError
from buildmatrix.sources.image import image_facts, wanted_platform
from buildmatrix.sources.model import Argument, Facts, Installed, ReadingOptions, Source

#: Names of archives, which `docker save` and its like write.
_ARCHIVE = re.compile(r"\.(tar|tar\.gz|tgz|tar\.zst|oci)$")


class ImageArchive(Installed):
    """An image in one file."""

    prefix = "tar"
    form = "image"

    @classmethod
    def recognized(cls, argument: Argument) -> Source | None:
        """See `Source.recognized`."""
        if not _ARCHIVE.search(argument.text) or argument.path.is_dir():
            return None
        if not argument.path.is_file():
            raise UsageError(f"there is no {argument.text}")
        return cls(argument.text)

    def read(self, options: ReadingOptions) -> Facts:
        """See `Installed.read`; the layers are always read."""
        from buildmatrix.layers.saved import read_saved_layers
        from buildmatrix.layers.saved_image import SavedImage

        with SavedImage(Path(self.name), wanted_platform(options)) as image:
            layers = read_saved_layers(image, options.progress)
            return image_facts(str(self), image.configuration, layers, options)

    def open(self, options: ReadingOptions) -> OpenTree:
        """See `Source.open`."""
        return lambda: saved_image(Path(self.name), wanted_platform(options))


class ImageLayout(ImageArchive):
    """An image in a folder (OCI image layout)."""

    prefix = "oci"

    @classmethod
    def recognized(cls, argument: Argument) -> Source | None:
        """See `Source.recognized`."""
        return cls(argument.text) if (argument.path / "oci-layout").is_file() else None
