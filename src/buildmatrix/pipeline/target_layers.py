"""Which layer of a target's image brought what.

The scan of a build runs inside of the builder, where the layers are one file system already. So
they are read when somebody first asks: the engine exports the image that the build's record names
by its digest, and what was read is kept beside the inventory.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from buildmatrix.errors import BuildmatrixError, UndecidedError
from buildmatrix.inventory.model import Inventory
from buildmatrix.pipeline.state import TargetFiles
from buildmatrix.trees.base import reason

if TYPE_CHECKING:
    from buildmatrix.pipeline.known import Machine

#: Bytes of the largest file of layers that is read: 2,600 binaries come to 400 kB.
_LARGEST = 1 << 28


class _Record(msgspec.Struct, frozen=True):
    """What is needed of a `journal.Record`."""

    digest: str
    inventory: str
    config: str | None = None


@dataclass(frozen=True, slots=True)
class _Kept:
    """The layers of one image."""

    #: Digest of the image.
    image: str
    #: Holds layers, origins and what is buried, and nothing else.
    layers: Inventory


def with_layers(
    files: TargetFiles, inventory: Inventory, machine: Machine
) -> tuple[Inventory, str | None]:
    """The inventory of a target with the layers of its image, or why they are not known."""
    record = _record(files)
    if record is None:
        return inventory, _unknown("no record says which image was built last; build it again")
    known = _kept(files.layers, record.digest)
    if known is None:
        try:
            known = _read(record, inventory, machine)
        except OSError as error:
            return inventory, _unknown(reason(error))
        except BuildmatrixError as error:
            return inventory, _unknown(error.message)
        with suppress(OSError):
            from buildmatrix.inventory.writing import write_atomically

            write_atomically(files.layers, msgspec.msgpack.encode(_Kept(record.digest, known)))
    whole = replace(inventory, layers=known.layers, origins=known.origins, buried=known.buried)
    return whole, None


def _unknown(why: str) -> str:
    return f"which layer put a file there: {why} (--layers tries again)"


def _record(files: TargetFiles) -> _Record | None:
    """The record of the image whose inventory is stored; None where they do not fit."""
    try:
        record = msgspec.json.decode(files.record.read_bytes(), type=_Record)
        stored = hashlib.sha256(files.inventory.read_bytes()).hexdigest()
        return record if stored == record.inventory else None
    except (OSError, msgspec.MsgspecError):
        return None


def _kept(path: Path, image: str) -> Inventory | None:
    try:
        if path.stat().st_size > _LARGEST:
            return None
        kept = msgspec.msgpack.decode(path.read_bytes(), type=_Kept)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return kept.layers if kept.image == image else None


def _read(record: _Record, inventory: Inventory, machine: Machine) -> Inventory:
    from buildmatrix.pipeline.source import layers_of_image
    from buildmatrix.rules.text import size

    engine = machine.engine()
    # One store of Docker's names an image by its manifest, the other by its configuration.
    for name in filter(None, (record.digest, record.config)):
        image = engine.image(name)
        if image is not None:
            machine.note(f"reading the layers of the image ({size(image.size)}), once")
            return layers_of_image(name, engine, inventory)
    raise UndecidedError(
        f"the image {record.digest[:19]} that was built is not on this machine any more"
    )
