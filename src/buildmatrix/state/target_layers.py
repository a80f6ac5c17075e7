"""Which layer of a target's image brought what.

The scan of a build runs inside of the builder, where the layers are one file system already. So
the engine exports the image that the record names by its digest: at the end of a build where the
image is on this machine, else at the first question. What was read is kept beside the inventory,
and serves the next image as well where that has the same layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from buildmatrix.engines.exports import OpenTree, exported
from buildmatrix.engines.model import Engine, ImageFacts
from buildmatrix.errors import BuildmatrixError, Interrupted, UndecidedError
from buildmatrix.inventory.model import Inventory, Layer
from buildmatrix.state.dockerfile_lines import base_layers, read
from buildmatrix.state.folder import TargetFiles
from buildmatrix.state.journal import stored
from buildmatrix.trees.base import Tree, reason

#: The key of the last image's layers.
LAYERS = "layers"


@dataclass(frozen=True, slots=True)
class ImageLayers:
    """The layers of one image."""

    #: Digest of the image.
    image: str
    #: Holds layers, origins and what is buried, and nothing else.
    layers: Inventory


_IMAGE_LAYERS = msgspec.msgpack.Decoder(ImageLayers)


def with_layers(
    files: TargetFiles,
    inventory: Inventory,
    engine: Callable[[], Engine],
    note: Callable[[str], None],
    dockerfile: Path,
) -> tuple[Inventory, str | None]:
    """The inventory of a target with the layers of its image, or why they are not known.

    `engine` is asked for only where they were not read before; `note` hears that it takes a while.
    `dockerfile` says which layers are the base image's.
    """
    record = stored(files)
    if record is None:
        return inventory, "no record says which image was built last; build it again"
    store = files.layers(note)
    kept = store.load(LAYERS, _IMAGE_LAYERS)
    if kept is not None and kept.image == record.digest:
        known = kept.layers
    else:
        try:
            known = _read(files, inventory, engine(), note, kept)
        except Interrupted:
            raise
        except OSError as error:
            return inventory, reason(error)
        except BuildmatrixError as error:
            return inventory, error.message
        store.save(LAYERS, ImageLayers(record.digest, known))
    layers = _with_base(known.layers, dockerfile)
    return replace(inventory, layers=layers, origins=known.origins, buried=known.buried), None


def _with_base(layers: tuple[Layer, ...], dockerfile: Path) -> tuple[Layer, ...]:
    """`layers`, of which those of the base image say so."""
    text = read(dockerfile)
    if text is None:
        return layers
    count = base_layers(text, [layer.instruction for layer in layers])
    return (*(replace(layer, is_base=True) for layer in layers[:count]), *layers[count:])


def image_tree(files: TargetFiles, engine: Callable[[], Engine]) -> OpenTree:
    """How the files of a target's image are opened again: its engine exports it."""

    @contextmanager
    def opened() -> Iterator[Tree]:
        found = engine()
        name, _ = _here(files, found)
        with exported(found, name) as tree:
            yield tree

    return opened


def _here(files: TargetFiles, engine: Engine) -> tuple[str, ImageFacts]:
    """The name by which the engine has the image that the stored inventory is of, and its facts.

    Raises `UndecidedError` where it has it no more.
    """
    record = stored(files)
    if record is None:
        raise UndecidedError("no record says which image was built last; build it again")
    # One store of Docker's names an image by its manifest, the other by its configuration.
    for name in filter(None, (record.digest, record.config)):
        image = engine.image(name)
        if image is not None:
            return name, image
    raise UndecidedError(f"the image {record.digest[:19]} that it built is not on this machine")


def _read(
    files: TargetFiles,
    inventory: Inventory,
    engine: Engine,
    note: Callable[[str], None],
    kept: ImageLayers | None,
) -> Inventory:
    from buildmatrix.engines.exports import layers_of_image
    from buildmatrix.phrases import size

    name, image = _here(files, engine)
    if kept is not None and _has_them_too(image, inventory, kept.layers):
        return kept.layers
    note(f"reading the layers of the image ({size(image.size)}), once")
    return layers_of_image(name, engine, inventory)


def _has_them_too(image: ImageFacts, inventory: Inventory, known: Inventory) -> bool:
    """Whether an image has the layers of an earlier one: another label or variable adds none."""
    from buildmatrix.inventory.layers import paths
    from buildmatrix.trees.archive_image import instruction

    # Each is looked for behind the one before.
    steps = iter([instruction(created_by) for created_by, _ in image.history])
    return (
        tuple(layer.digest for layer in known.layers) == image.layers
        and all(layer.instruction in steps for layer in known.layers)
        and all(path in known.origins for path in paths(inventory))
    )
