"""What is known of one layer: its entries, what each of its files is, and the bytes of some.

Facts know nothing of other layers, and nothing of the image: the same layer below two images, or in
a registry, an archive and an engine, has the same facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from itertools import islice
from typing import Any

import msgspec

from buildmatrix.inventory.distributions import remove_secrets
from buildmatrix.inventory.file_facts import FileFacts
from buildmatrix.threads import prepare_type
from buildmatrix.trees.tar import Kind

KINDS: tuple[Kind, ...] = ("file", "folder", "symlink", "hardlink", "other", "device")
#: Entries that are packed together.
_TOGETHER = 1000
#: Bytes of files that are packed together: that much is unpacked to get at one of them.
_BLOCK = 128 << 10
#: Packed bytes of files that are kept of one layer; the rest is read again where it is needed.
MOST_KEPT = 160 << 20


class EntryFacts(
    msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False
):  # 300,000 of a layer
    """One entry of a layer's archive."""

    #: Index of `KINDS`.
    kind: int
    #: As stored; bytes that are no UTF-8 stay what they are.
    name: bytes
    #: Target of a link, as stored.
    target: bytes = b""
    #: Bytes of a file; None for what is no file, and for a sparse one, which is not read.
    size: int | None = None
    #: Of a file.
    sha256: bytes = b""
    #: Block of `LayerFacts.kept` and offset in it, where the bytes are kept.
    place: tuple[int, int] | None = None
    #: What a file is; None for nothing that matters.
    facts: FileFacts | None = None


class LayerFacts(msgspec.Struct, frozen=True):
    """The facts of one layer. Packed: an image has a million entries at most, and all of a layer's
    Python sources are in here.
    """

    #: `sha256:...` of all of its uncompressed bytes, as they passed by (a configuration's diff_id).
    digest: str
    #: Digest and number of the bytes that it was read from, compressed where they were.
    blob: str
    size: int
    #: Entries, some at a time, and how many they are.
    entries: Sequence[bytes]
    count: int
    #: Blocks of bytes of files.
    kept: Sequence[bytes]
    #: Whether nothing but the layer's bytes decided what could be read: a full disk may not.
    is_final: bool = True

    def unpack(self) -> Iterator[EntryFacts]:
        """The entries in their order."""
        for packed in self.entries:
            yield from _ENTRIES.decode(unpacked(packed))


#: Made here, by one thread: msgspec 0.22 crashes where several meet a dataclass for the first time.
_ENTRIES = msgspec.msgpack.Decoder(prepare_type(list[EntryFacts]))
LAYER_FACTS = msgspec.msgpack.Decoder(prepare_type(LayerFacts))


def packed_entries(entries: Iterable[EntryFacts]) -> Iterator[bytes]:
    """`LayerFacts.entries` of these."""
    ahead = iter(entries)
    while batch := list(islice(ahead, _TOGETHER)):
        yield packed(msgspec.msgpack.encode(batch))


class KeptFiles:
    """Bytes of files, packed as they come."""

    def __init__(self) -> None:
        self.blocks: list[bytes] = []
        self._size = 0
        self._block = bytearray()

    @property
    def is_full(self) -> bool:
        """Whether nothing more is kept."""
        return self._size >= MOST_KEPT

    def add(self, path: str, data: bytes) -> tuple[int, int]:
        """Keep the bytes of the file `path`; the block that they lie in, and where."""
        data = remove_secrets(path, data)
        place = len(self.blocks), len(self._block)
        self._block += data
        if len(self._block) >= _BLOCK:
            self.finish()
        return place

    def finish(self) -> None:
        """Pack what is left."""
        if self._block:
            block = packed(bytes(self._block))
            self.blocks.append(block)
            self._size += len(block)
            self._block.clear()


def packed(data: bytes) -> bytes:
    """`data`, compressed for our own use."""
    return bytes(_zstandard().compress(data))


def unpacked(data: bytes) -> bytes:
    """What `packed` got."""
    return bytes(_zstandard().decompress(data))


@cache
def _zstandard() -> Any:
    """The library of Python 3.14, or the same as a package, which older ones install with us.

    A module that is not there is looked for in all folders each time.
    """
    try:
        return import_module("compression.zstd")
    except ImportError:
        return import_module("backports.zstd")
