"""Compressed facts of layers in an unnamed file: 60 MB for an image of 4 GB.

All layers of an image are merged at once, but only little of their content is read at a time.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import overload

import msgspec

from buildmatrix.layers.model import LayerFacts
from buildmatrix.trees.archive import Slice, Spool


class LayerSpillFile:
    """Temporary file for layers' packed bytes, freed with the last layer that uses it."""

    def __init__(self) -> None:
        self._spool = Spool()
        weakref.finalize(self, self._spool.close)

    def put(self, layer: LayerFacts) -> LayerFacts:
        """Move the packed bytes of `layer` to the file; return it unchanged if the disk is full."""
        with suppress(OSError):
            entries, blocks = self._spill(layer.entries), self._spill(layer.blocks)
            return msgspec.structs.replace(layer, entries=entries, blocks=blocks)
        return layer

    def _spill(self, blocks: Sequence[bytes]) -> Sequence[bytes]:
        return _SpilledBlocks(self, [self._spool.kept(iter((block,))) for block in blocks])


class _SpilledBlocks(Sequence[bytes]):
    """Blocks of bytes, read from the file on access; usable in forked processes."""

    def __init__(self, owner: LayerSpillFile, places: Sequence[Slice]) -> None:
        self._owner = owner
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        place = self._places[index]
        return place.read(0, place.size)
