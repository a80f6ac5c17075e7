"""An image as an engine exports it, read once from front to back, and never stored.

The order of an export's files is its writer's: layers come before the documents that say which of
them is the lowest. So the names and sizes in each layer are kept, compressed, until the end; the
bytes of the files pass by.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from buildmatrix.trees import zstd
from buildmatrix.trees.archive import (
    CHUNK,
    GZIP,
    LARGEST_HEADER,
    MOST_INFLATION,
    SMALL_BLOB_ALLOWANCE,
    Slice,
    Stream,
    TarMember,
    members,
    plain,
)
from buildmatrix.trees.archive_image import LARGEST_DOCUMENT, MOST_BLOBS, Configuration, image_in
from buildmatrix.trees.archive_layers import LayeredTree
from buildmatrix.trees.base import Readable, Unreadable
from buildmatrix.trees.forward import ENDLESS, ForwardSource, Gunzip
from buildmatrix.trees.unpacking import zstandard

#: Bytes of all documents together: an image has three, an index some dozens.
MOST_DOCUMENTS = 64 << 20
#: Where a tar header says that it is one (POSIX pax, "ustar Interchange Format").
_TAR_MAGIC = (257, b"ustar")
_Kind = Literal["file", "folder", "symlink", "hardlink", "other"]
_KINDS: tuple[_Kind, ...] = ("file", "folder", "symlink", "hardlink", "other")
_SPARSE = "-"


def layers_of(
    chunks: Iterable[bytes],
) -> tuple[LayeredTree, Configuration]:
    """The merged layers of the image in the export `chunks`, and its configuration.

    No file of the tree can be opened. Raises `Unreadable`, or what `chunks` raises.
    """
    documents: dict[str, Slice] = {}
    layers: dict[str, _Entries] = {}
    links: dict[str, str] = {}
    total = 0
    for count, member in enumerate(members(Slice(ForwardSource(chunks), 0, ENDLESS))):
        name = plain(member.name)
        if name is None:
            raise Unreadable(f"its entry {member.name!r} leads out of the archive")
        if count >= MOST_BLOBS:
            raise Unreadable(f"more than {MOST_BLOBS} files, which no saved image has")
        if member.kind == "symlink":
            links[name] = plain(f"{name.rpartition('/')[0]}/{member.target}".lstrip("./")) or ""
        if member.data is None:
            continue
        if _is_document(member.data):
            total += member.data.size
            if total > MOST_DOCUMENTS:
                raise Unreadable(f"its documents have more than {MOST_DOCUMENTS} bytes")
            documents[name] = _held(member.data)
        else:
            layers[name] = _entries(name, member.data)
    for name, target in links.items():
        if target in layers:
            layers.setdefault(name, layers[target])
    nothing = Slice(_Nothing(), 0, 0)
    image = image_in({**dict.fromkeys(layers, nothing), **documents})
    missing = [name for name in image.layers if name not in layers]
    if missing:
        raise Unreadable(f"{missing[0]} is missing from it: the image was not saved completely")
    return LayeredTree([layers[name].read() for name in image.layers]), image.configuration


def _is_document(data: Slice) -> bool:
    """Whether a blob is no layer; an empty layer is a tar archive of two empty blocks."""
    head = data.read(0, 512)
    at, magic = _TAR_MAGIC
    if head.startswith((GZIP, zstd.MAGIC)) or head[at : at + len(magic)] == magic:
        return False
    return data.size <= LARGEST_DOCUMENT and bool(head.strip(b"\0"))


def _held(data: Slice) -> Slice:
    content = data.read(0, data.size)
    return Slice(_Held(content), 0, len(content))


def _entries(name: str, data: Slice) -> _Entries:
    head = data.read(0, 8)
    try:
        if head.startswith(GZIP):
            inflating = _inflating(Gunzip(Stream(data, LARGEST_HEADER)), data.size)
        elif head.startswith(zstd.MAGIC):
            inflating = _inflating(zstandard(Stream(data, LARGEST_HEADER)), data.size)
        else:
            return _Entries(members(data))
        entries = _Entries(members(Slice(ForwardSource(inflating), 0, ENDLESS)))
        for _ in inflating:
            pass  # Behind the last entry there are zeros, and the checksum of the whole.
        return entries
    except Unreadable as error:
        raise Unreadable(f"the layer {name} cannot be read: {error}") from error


def _inflating(stream: Readable, compressed: int) -> Iterator[bytes]:
    most = SMALL_BLOB_ALLOWANCE + MOST_INFLATION * compressed
    size = 0
    try:
        while chunk := stream.read(CHUNK):
            size += len(chunk)
            if size > most:
                raise Unreadable(
                    f"it inflates to more than {MOST_INFLATION} times its size: a bomb"
                )
            yield chunk
    except Exception as error:
        # All others come from the source of the bytes.
        if isinstance(error, (zlib.error, EOFError)) or zstd.is_damage(error):
            raise Unreadable(f"its compressed bytes are damaged: {error}") from error
        raise


@dataclass(slots=True)
class _Held:
    """A document in memory."""

    content: bytes
    bytes_read: int = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `Source.read`."""
        return self.content[offset : offset + length]


@dataclass(slots=True)
class _Nothing:
    """Stands for bytes that passed by."""

    bytes_read: int = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `Source.read`. Raises `Unreadable`."""
        raise Unreadable("only the names in this layer were read")


class _Entries:
    """The entries of one layer without their bytes, some ten bytes each."""

    def __init__(self, entries: Iterable[TarMember]) -> None:
        self._packed: list[bytes] = []
        ahead = iter(entries)
        while batch := list(islice(ahead, 1000)):
            text = "".join(_line(entry) for entry in batch)
            self._packed.append(zlib.compress(text.encode("utf-8", "surrogateescape"), 1))

    def read(self) -> Iterator[TarMember]:
        """The entries again; the data of files has its size and no bytes."""
        for packed in self._packed:
            text = zlib.decompress(packed).decode("utf-8", "surrogateescape")
            fields = iter(text.split("\0"))
            for kind, size, name, target in zip(fields, fields, fields, fields, strict=False):
                data = Slice(_NOTHING, 0, int(size)) if kind == "0" and size != _SPARSE else None
                yield TarMember(name, _KINDS[int(kind)], data, target)


_NOTHING = _Nothing()


def _line(entry: TarMember) -> str:
    size = str(entry.data.size) if entry.data is not None else _SPARSE
    # A NUL in a name would be a lie: tar's own names end at one, and those of pax are refused.
    name, target = entry.name.replace("\0", "\x01"), entry.target.replace("\0", "\x01")
    return f"{_KINDS.index(entry.kind)}\0{size}\0{name}\0{target}\0"
