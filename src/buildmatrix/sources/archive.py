"""`tar:FILE` and `oci:LAYOUT`: an image that was saved (docker save, an OCI archive or layout)."""

from __future__ import annotations

import re
from pathlib import Path

from buildmatrix.engines.exports import OpenTree, saved_image
from buildmatrix.errors import UsageError
from buildmatrix.inventory.model import Inventory
from buildmatrix.sources.docker import BACKEND_LABEL
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
        from buildmatrix.inventory.collect import collect
        from buildmatrix.inventory.layers import with_layers
        from buildmatrix.store.facts import digest
        from buildmatrix.trees.archive_image import SavedImage

        path, cache = Path(self.name), options.cache()
        with SavedImage(path) as image:
            configuration = image.configuration

            def scan() -> Inventory:
                tree = image.tree()
                contents = collect(tree, configuration.environment)
                return with_layers(
                    contents, tree, configuration.digests, configuration.instructions
                )

            # A layout names its blobs by digests, which its writer may have made up.
            if cache is None or path.is_dir():
                inventory = scan()
            else:
                inventory = cache.inventory(f"archive {digest(path)}", scan)
        labels = configuration.labels
        return Facts(str(self), inventory, labels=labels, backend=labels.get(BACKEND_LABEL))

    def open(self, options: ReadingOptions) -> OpenTree:
        """See `Source.open`."""
        return lambda: saved_image(Path(self.name))


class ImageLayout(ImageArchive):
    """An image in a folder (OCI image layout)."""

    prefix = "oci"

    @classmethod
    def recognized(cls, argument: Argument) -> Source | None:
        """See `Source.recognized`."""
        return cls(argument.text) if (argument.path / "oci-layout").is_file() else None
