"""Packed facts of layers in an unnamed file, until they are needed: 60 MB of an image of 4 GB.

All layers of an image are merged at once, and of what they keep little is read at a time.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import overload

import msgspec

from buildmatrix.layers.model import LayerFacts
from buildmatrix.trees.archive import Slice, Spool


class RestingBlocks:
    """Puts what layers hold into one file, which is freed with the last layer that uses it."""

    def __init__(self) -> None:
        self._spool = Spool()
        weakref.finalize(self, self._spool.close)

    def put(self, layer: LayerFacts) -> LayerFacts:
        """`layer` without its packed bytes in memory; as it is where the disk is full."""
        with suppress(OSError):
            entries, kept = self._resting(layer.entries), self._resting(layer.kept)
            return msgspec.structs.replace(layer, entries=entries, kept=kept)
        return layer

    def _resting(self, blocks: Sequence[bytes]) -> Sequence[bytes]:
        return _Blocks(self, [self._spool.kept(iter((block,))) for block in blocks])


class _Blocks(Sequence[bytes]):
    """Blocks of bytes, read from the file each time. For forked processes as well."""

    def __init__(self, owner: RestingBlocks, places: Sequence[Slice]) -> None:
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
