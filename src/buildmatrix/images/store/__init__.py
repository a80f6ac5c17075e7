"""On-disk data: inventories, the cache (`store.cache`) and cached facts (`store.facts`).

An inventory may come from a container that built untrusted code, so it is validated: one that does
not fit the model is rejected as a whole.
"""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec
from msgspec import Struct

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.threads import prepare_type
from buildmatrix.facts.inventory.archive import write_atomically
from buildmatrix.facts.inventory.model import SCHEMA, Inventory, encode

#: Bytes of an encoded inventory; a root file system of 5 GB with 2,500 binaries has 5 MB.
MAX_INVENTORY = 1 << 30


class _Header(Struct, frozen=True):
    schema: str


@functools.cache
def inventory_decoder() -> msgspec.json.Decoder[Inventory]:
    """Return the decoder of inventories, made when one is read first: it takes 4 ms."""
    return msgspec.json.Decoder(prepare_type(Inventory))


def decode(data: bytes) -> Inventory:
    """Decode an inventory. Raises UndecidedError if it is invalid or has another schema."""
    try:
        schema = msgspec.json.decode(data, type=prepare_type(_Header)).schema
        if schema != SCHEMA:
            raise UndecidedError(
                f"the inventory has the schema {schema!r}, this version reads {SCHEMA!r};"
                " scan the tree again"
            )
        return inventory_decoder().decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UndecidedError(f"the inventory is broken: {error}; scan the tree again") from error


def read(path: Path) -> Inventory:
    """Read the inventory at `path`. Raises UndecidedError, also if there is no such file."""
    try:
        if path.stat().st_size > MAX_INVENTORY:
            raise UndecidedError(
                f"{path} is larger than the limit of {MAX_INVENTORY} bytes; scan the tree again"
            )
        data = path.read_bytes()
    except OSError as error:
        raise UndecidedError(
            f"{path} cannot be read: {error.strerror}; scan the tree again"
        ) from error
    try:
        return decode(data)
    except UndecidedError as error:
        raise UndecidedError(f"{path}: {error.message}") from error


def write(path: Path, inventory: Inventory) -> None:
    """Write an inventory atomically. Raises UndecidedError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, encode(inventory))
    except OSError as error:
        raise UndecidedError(
            f"{path} cannot be written: {error.strerror}; free some space or give another folder"
        ) from error
