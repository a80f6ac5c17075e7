"""Facts of one layer: its entries, what each file is, and the content of some.

Facts are independent of other layers and of the image: a layer has the same facts in every image,
registry, archive and engine.
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
#: Entries per packed batch.
_BATCH = 1000
#: Bytes of contents per block: the least to unpack for one file.
_BLOCK_BYTES = 128 << 10
#: Packed bytes of contents stored per layer; others are read again if needed.
MAX_STORED = 160 << 20


class EntryFacts(
    msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False
):  # 300,000 of a layer
    """One entry of a layer's archive."""

    #: Index into `KINDS`.
    kind: int
    #: As stored; may be invalid UTF-8.
    name: bytes
    #: Target of a link, as stored.
    target: bytes = b""
    #: Size of a file; None for other entries, and for sparse files, which are not read.
    size: int | None = None
    #: Digest of a file.
    sha256: bytes = b""
    #: Index of the block in `LayerFacts.blocks`, and offset in it, if the content is stored.
    place: tuple[int, int] | None = None
    #: Facts of a file; None for nothing relevant.
    facts: FileFacts | None = None


class LayerFacts(msgspec.Struct, frozen=True):
    """Facts of one layer, packed: an image has up to a million entries, and all Python sources of
    a layer are included.
    """

    #: diff ID: `sha256:...` of all of its uncompressed bytes.
    digest: str
    #: Digest and size of the blob, compressed or not.
    blob: str
    size: int
    #: Packed batches of entries, and the number of entries.
    entries: Sequence[bytes]
    count: int
    #: Packed blocks of file contents.
    blocks: Sequence[bytes]
    #: True if the result depends only on the layer's bytes, not on a full disk, for example.
    is_final: bool = True

    def unpack(self) -> Iterator[EntryFacts]:
        """Yield the entries in order."""
        for batch in self.entries:
            yield from _ENTRIES.decode(decompress(batch))


#: Created here, by one thread: msgspec 0.22 crashes if several first meet a dataclass at once.
_ENTRIES = msgspec.msgpack.Decoder(prepare_type(list[EntryFacts]))
LAYER_FACTS = msgspec.msgpack.Decoder(prepare_type(LayerFacts))


def pack_entries(entries: Iterable[EntryFacts]) -> Iterator[bytes]:
    """Yield packed batches for `LayerFacts.entries`."""
    ahead = iter(entries)
    while batch := list(islice(ahead, _BATCH)):
        yield compress(msgspec.msgpack.encode(batch))


class ContentPacker:
    """Packer of file contents into blocks."""

    def __init__(self) -> None:
        self.blocks: list[bytes] = []
        self._size = 0
        self._block = bytearray()

    @property
    def is_full(self) -> bool:
        """True if no more content is accepted."""
        return self._size >= MAX_STORED

    def add(self, path: str, data: bytes) -> tuple[int, int]:
        """Store the content of the file `path`; return its block and offset."""
        data = remove_secrets(path, data)
        place = len(self.blocks), len(self._block)
        self._block += data
        if len(self._block) >= _BLOCK_BYTES:
            self.finish()
        return place

    def finish(self) -> None:
        """Pack the remaining content."""
        if self._block:
            block = compress(bytes(self._block))
            self.blocks.append(block)
            self._size += len(block)
            self._block.clear()


def compress(data: bytes) -> bytes:
    """Compress `data` for internal use."""
    return bytes(_import_zstandard().compress(data))


def decompress(data: bytes) -> bytes:
    """Decompress data from `compress`."""
    return bytes(_import_zstandard().decompress(data))


@cache
def _import_zstandard() -> Any:
    """Import Python 3.14's Zstandard module, or the same as a package, a dependency of ours.

    Cached, as a failed import searches all folders each time.
    """
    try:
        return import_module("compression.zstd")
    except ImportError:
        return import_module("backports.zstd")
