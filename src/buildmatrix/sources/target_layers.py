"""Layers of a target's image, the files in each, and the lines of the Dockerfile that made them.

The scan of a build runs inside the builder, on one merged file system. So the engine exports the
image of the record: at the end of a build if the image is on this machine, otherwise when layers
are first needed. They are cached beside the inventory, also for a later image with the same layers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, Interrupted, UndecidedError
from buildmatrix.base.threads import prepare_type
from buildmatrix.engines.instructions import (
    DockerfileError,
    DockerfileInstruction,
    scan_instructions,
)
from buildmatrix.engines.instructions import stages as split_stages
from buildmatrix.engines.model import Engine, ImageFacts, OpenTree, export_image
from buildmatrix.facts.files import read_at_most
from buildmatrix.facts.inventory.model import Inventory, Layer
from buildmatrix.facts.trees.base import Tree, reason
from buildmatrix.sources.state_folder import TargetFiles, load

# Dockerfile lines by image layer.
#
# An image's history has the text of each instruction as BuildKit ran it: without flags, with joined
# lines, and lists in their shell form. So instructions of the last stage are matched with layers by
# their text, from the top down; the layers below belong to the stage's base image. Source: the
# Dockerfile reference, "Format"; moby/buildkit, dockerfile2llb.


#: Maximum bytes of a Dockerfile to read.
MAX_BYTES = 1 << 20
#: Instructions that create layers.
_LAYER_KEYWORDS = frozenset({"RUN", "COPY", "ADD", "WORKDIR"})
#: Suffix in the history of images of the engine `oci`, with the distribution in a layer.
_OWN_MARK = re.compile(r" # buildmatrix\b.*", re.DOTALL)
_VARIABLE = re.compile(r"\$\{\w+\}|\$\w+")


def read_dockerfile(path: Path) -> str | None:
    """Read a Dockerfile, up to `MAX_BYTES` bytes; None if that fails."""
    with suppress(OSError):
        return read_at_most(path, MAX_BYTES)[:MAX_BYTES].decode("utf-8", "replace")
    return None


def locate_layers(dockerfile: str, name: str, instructions: Sequence[str]) -> tuple[str, ...]:
    """Return the origin of each layer: `NAME:12`, `of the base image ...`, or empty if unknown.

    `name` is that of the Dockerfile, `instructions` those of the layers, bottom layer first.
    """
    lines, base = _match_layers(dockerfile, instructions)
    if lines is None:
        return ("",) * len(instructions)
    base = f"of the base image {base} ({name}:{lines[-1]})"
    return tuple(f"{name}:{line}" if line else base for line in lines[:-1])


def count_base_layers(dockerfile: str, instructions: Sequence[str]) -> int:
    """Return the number of layers of the base image; 0 if unknown."""
    lines, _ = _match_layers(dockerfile, instructions)
    return sum(line == 0 for line in lines[:-1]) if lines is not None else 0


def _match_layers(dockerfile: str, instructions: Sequence[str]) -> tuple[list[int] | None, str]:
    """Return the line of each layer, 0 for the base, followed by that of the FROM; and the base.

    The lines are None if the layers are not those of this Dockerfile.
    """
    try:
        _, stages = split_stages(scan_instructions(dockerfile))
    except DockerfileError:
        return None, ""
    if not stages:
        return None, ""
    makers: list[DockerfileInstruction] = []
    base, begun = "", 0
    at = len(stages) - 1
    while at >= 0:
        stage = stages[at]
        makers = [
            *(item for item in stage.instructions if item.keyword in _LAYER_KEYWORDS),
            *makers,
        ]
        base, begun = _VARIABLE.sub("", stage.base), stage.begin.line
        # A stage based on another one includes its layers.
        base_name = stage.base.lower()
        at = next((n for n in range(at) if stages[n].name == base_name), -1)
    if any(_OWN_MARK.search(text) for text in instructions):
        return [*_match_own_layers(makers, instructions), begun], base
    lines = [0] * len(instructions)
    ahead = list(makers)
    layer = len(instructions)
    while layer and ahead:
        layer -= 1
        instruction = ahead.pop()
        # An instruction without changes may have no layer.
        while ahead and not _is_same(instruction, instructions[layer]):
            instruction = ahead.pop()
        if not _is_same(instruction, instructions[layer]):
            return None, base
        lines[layer] = instruction.line
    return (None if ahead else [*lines, begun]), base


def _match_own_layers(
    makers: Sequence[DockerfileInstruction], instructions: Sequence[str]
) -> list[int]:
    """Return the lines for an image of the engine `oci`, with several layers per instruction."""
    lines = [0] * len(instructions)
    ahead = len(makers) - 1
    for layer in reversed(range(len(instructions))):
        keyword, _, text = _OWN_MARK.sub("", instructions[layer]).partition(" ")
        text = _history_text(keyword, text)
        at = next((n for n in range(ahead, -1, -1) if _is_same(makers[n], text)), None)
        if at is None:
            break  # the remaining layers are those of the base image
        ahead = at
        lines[layer] = makers[at].line
    return lines


def _history_text(keyword: str, text: str) -> str:
    """Return the text of an instruction without flags in the history of an image."""
    if text.startswith("["):
        with suppress(ValueError):
            text = " ".join(map(str, json.loads(text)))
    return " ".join([keyword, *(text.strip("\"'") if keyword == "WORKDIR" else text).split()])


def _is_same(instruction: DockerfileInstruction, recorded: str) -> bool:
    """Return True if an instruction matches a history entry, which may be truncated."""
    written = _history_text(instruction.keyword, instruction.text)
    shown = " ".join(recorded.split())
    if shown.endswith("..."):
        return written.startswith(shown.removesuffix("..."))
    return written == shown


#: Key of the last image's layers.
LAYERS = "layers"


class ImageLayers(Struct, frozen=True):
    """Layers of one image."""

    #: Digest of the image.
    image: str
    #: Only contains layers, origins and hidden files.
    layers: Inventory


_IMAGE_LAYERS = msgspec.msgpack.Decoder(prepare_type(ImageLayers))


def add_layers(
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

    def opened() -> AbstractContextManager[Tree]:
        running_engine = engine()
        name, _ = _present_image(files, running_engine)
        return export_image(running_engine, name)

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
    from buildmatrix.base.text import size
    from buildmatrix.engines.model import layers_of_image

    name, image = _present_image(files, engine)
    if earlier is not None and _has_same_layers(image, inventory, earlier.layers):
        return earlier.layers
    note(f"reading the layers of the image ({size(image.size)}), once")
    return layers_of_image(name, engine, inventory)


def _has_same_layers(image: ImageFacts, inventory: Inventory, earlier: Inventory) -> bool:
    """Return True if an image has the layers of an earlier one, apart from labels and variables."""
    from buildmatrix.images.merging import layered_paths
    from buildmatrix.images.saved_image import format_instruction

    # Search each step after the previous one.
    steps = iter([format_instruction(created_by) for created_by, _ in image.history])
    return (
        tuple(layer.digest for layer in earlier.layers) == image.layers
        and all(layer.instruction in steps for layer in earlier.layers)
        and all(path in earlier.origins for path in layered_paths(inventory))
    )
