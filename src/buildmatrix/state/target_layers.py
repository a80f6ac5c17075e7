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
from buildmatrix.threads import prepare_type
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


_IMAGE_LAYERS = msgspec.msgpack.Decoder(prepare_type(ImageLayers))


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
    stored_layers = store.load(LAYERS, _IMAGE_LAYERS)
    if stored_layers is not None and stored_layers.image == record.digest:
        layer_facts = stored_layers.layers
    else:
        try:
            layer_facts = _read(files, inventory, engine(), note, stored_layers)
        except Interrupted:
            raise
        except OSError as error:
            return inventory, reason(error)
        except BuildmatrixError as error:
            return inventory, error.message
        store.save(LAYERS, ImageLayers(record.digest, layer_facts))
    layers = _with_base(layer_facts.layers, dockerfile)
    return replace(
        inventory, layers=layers, origins=layer_facts.origins, buried=layer_facts.buried
    ), None


def keep_layers(
    files: TargetFiles, image: str, inventory: Inventory, note: Callable[[str], None]
) -> Inventory:
    """Keep the layers that came with the inventory of `image`, and return it without them."""
    layers = Inventory(layers=inventory.layers, origins=inventory.origins, buried=inventory.buried)
    files.layers(note).save(LAYERS, ImageLayers(image, layers))
    return replace(inventory, layers=(), origins={}, buried=())


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
        running_engine = engine()
        name, _ = _present_image(files, running_engine)
        with exported(running_engine, name) as tree:
            yield tree

    return opened


def _present_image(files: TargetFiles, engine: Engine) -> tuple[str, ImageFacts]:
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
    earlier: ImageLayers | None,
) -> Inventory:
    from buildmatrix.engines.exports import layers_of_image
    from buildmatrix.phrases import size

    name, image = _present_image(files, engine)
    if earlier is not None and _has_same_layers(image, inventory, earlier.layers):
        return earlier.layers
    note(f"reading the layers of the image ({size(image.size)}), once")
    return layers_of_image(name, engine, inventory)


def _has_same_layers(image: ImageFacts, inventory: Inventory, earlier: Inventory) -> bool:
    """Whether an image has the layers of an earlier one: another label or variable adds none."""
    from buildmatrix.inventory.layers import layered_paths
    from buildmatrix.layers.saved_image import instruction

    # Each is looked for behind the one before.
    steps = iter([instruction(created_by) for created_by, _ in image.history])
    return (
        tuple(layer.digest for layer in earlier.layers) == image.layers
        and all(layer.instruction in steps for layer in earlier.layers)
        and all(path in earlier.origins for path in layered_paths(inventory))
    )
