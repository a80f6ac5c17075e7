"""Readers of an image's files: exported by its engine, or saved in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.engines.model import Engine
from buildmatrix.inventory.model import Inventory
from buildmatrix.scratch import scratch
from buildmatrix.trees.base import Tree

if TYPE_CHECKING:
    from buildmatrix.oci.documents import Platform

OpenTree = Callable[[], AbstractContextManager[Tree]]


@contextmanager
def saved_image(path: Path, wanted: Platform | None = None) -> Iterator[Tree]:
    """Open the files of a saved image; of several, the one for the platform `wanted`."""
    from buildmatrix.layers.saved_image import SavedImage

    with SavedImage(path, wanted) as image:
        yield image.tree()


@contextmanager
def exported(engine: Engine, image: str) -> Iterator[Tree]:
    """Open the files of an engine's image by exporting it to a temporary file."""
    with scratch("image") as folder:
        path = folder / "image.tar"
        with path.open("wb") as file, engine.export(image) as chunks:
            for chunk in chunks:
                file.write(chunk)
        with saved_image(path) as tree:
            yield tree


def layers_of_image(name: str, engine: Engine, inventory: Inventory) -> Inventory:
    """Return an inventory with only the layers of an engine's image.

    Raises OSError and the engine's errors.
    """
    from buildmatrix.inventory.layers import add_layers
    from buildmatrix.layers.image import LayerReader
    from buildmatrix.layers.merging import merge_layers
    from buildmatrix.layers.saved import read_export
    from buildmatrix.store.cache import Cache

    reader = LayerReader(Cache(None), names_only=True)
    configuration, blobs = read_export(lambda: engine.export(name), reader)
    tree = merge_layers(reader.layers(blobs))
    read = add_layers(inventory, tree, configuration.digests, configuration.instructions)
    return Inventory(layers=read.layers, origins=read.origins, buried=read.buried)
