"""Layers of a target's image, and the files in each.

The scan of a build runs inside the builder, on one merged file system. So the engine exports the
image of the record: at the end of a build if the image is on this machine, otherwise when layers
are first needed. They are cached beside the inventory, also for a later image with the same layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from buildmatrix.engines.model import Engine, ImageFacts, OpenTree, exported
from buildmatrix.errors import BuildmatrixError, Interrupted, UndecidedError
from buildmatrix.inventory.model import Inventory, Layer
from buildmatrix.state.dockerfile_lines import count_base_layers, read_dockerfile
from buildmatrix.state.folder import TargetFiles
from buildmatrix.state.journal import load
from buildmatrix.threads import prepare_type
from buildmatrix.trees.base import Tree, reason

#: Key of the last image's layers.
LAYERS = "layers"


@dataclass(frozen=True, slots=True)
class ImageLayers:
    """Layers of one image."""

    #: Digest of the image.
    image: str
    #: Only contains layers, origins and hidden files.
    layers: Inventory


_IMAGE_LAYERS = msgspec.msgpack.Decoder(prepare_type(ImageLayers))


def with_layers(
    files: TargetFiles,
    inventory: Inventory,
    engine: Callable[[], Engine],
    note: Callable[[str], None],
    dockerfile: Path,
) -> tuple[Inventory, str | None]:
    """Return a target's inventory with the layers of its image, or the reason why they are unknown.

    `engine` is only called if the layers are not cached; `note` is called before they are read.
    `dockerfile` determines the layers of the base image.
    """
    record = load(files)
    if record is None:
        return inventory, "no record says which image was built last; build it again"
    store = files.layers(note)
    stored_layers = store.load(LAYERS, _IMAGE_LAYERS)
    if stored_layers is not None and stored_layers.image == record.digest:
        layer_facts = stored_layers.layers
    else:
        try:
            layer_facts = _read_layers(files, inventory, engine(), note, stored_layers)
        except Interrupted:
            raise
        except OSError as error:
            return inventory, reason(error)
        except BuildmatrixError as error:
            return inventory, error.message
        store.save(LAYERS, ImageLayers(record.digest, layer_facts))
    layers = _mark_base(layer_facts.layers, dockerfile)
    return replace(
        inventory, layers=layers, origins=layer_facts.origins, buried=layer_facts.buried
    ), None


def detach_layers(
    files: TargetFiles, image: str, inventory: Inventory, note: Callable[[str], None]
) -> Inventory:
    """Cache the layers in the inventory of `image`, and return it without them."""
    layers = Inventory(layers=inventory.layers, origins=inventory.origins, buried=inventory.buried)
    files.layers(note).save(LAYERS, ImageLayers(image, layers))
    return replace(inventory, layers=(), origins={}, buried=())


def _mark_base(layers: tuple[Layer, ...], dockerfile: Path) -> tuple[Layer, ...]:
    """Mark the layers of the base image."""
    text = read_dockerfile(dockerfile)
    if text is None:
        return layers
    count = count_base_layers(text, [layer.instruction for layer in layers])
    return (*(replace(layer, is_base=True) for layer in layers[:count]), *layers[count:])


def image_opener(files: TargetFiles, engine: Callable[[], Engine]) -> OpenTree:
    """Return a function that opens the files of a target's image, exported by its engine."""

    @contextmanager
    def opened() -> Iterator[Tree]:
        running_engine = engine()
        name, _ = _present_image(files, running_engine)
        with exported(running_engine, name) as tree:
            yield tree

    return opened


def _present_image(files: TargetFiles, engine: Engine) -> tuple[str, ImageFacts]:
    """Return the name of the image of the stored inventory in the engine, and its facts.

    Raises `UndecidedError` if the engine no longer has it.
    """
    record = load(files)
    if record is None:
        raise UndecidedError("no record says which image was built last; build it again")
    # Docker's stores name an image by its manifest or by its configuration.
    for name in filter(None, (record.digest, record.config)):
        image = engine.image(name)
        if image is not None:
            return name, image
    raise UndecidedError(f"the image {record.digest[:19]} that it built is not on this machine")


def _read_layers(
    files: TargetFiles,
    inventory: Inventory,
    engine: Engine,
    note: Callable[[str], None],
    earlier: ImageLayers | None,
) -> Inventory:
    from buildmatrix.engines.model import layers_of_image
    from buildmatrix.phrases import size

    name, image = _present_image(files, engine)
    if earlier is not None and _has_same_layers(image, inventory, earlier.layers):
        return earlier.layers
    note(f"reading the layers of the image ({size(image.size)}), once")
    return layers_of_image(name, engine, inventory)


def _has_same_layers(image: ImageFacts, inventory: Inventory, earlier: Inventory) -> bool:
    """Return True if an image has the layers of an earlier one, apart from labels and variables."""
    from buildmatrix.inventory.layers import layered_paths
    from buildmatrix.layers.saved_image import format_instruction

    # Search each step after the previous one.
    steps = iter([format_instruction(created_by) for created_by, _ in image.history])
    return (
        tuple(layer.digest for layer in earlier.layers) == image.layers
        and all(layer.instruction in steps for layer in earlier.layers)
        and all(path in earlier.origins for path in layered_paths(inventory))
    )
