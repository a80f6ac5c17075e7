"""Facts of one layer, read in a single pass and not unpacked to disk.

Facts are independent of other layers and of the image: a layer has the same facts in every image,
registry, archive and engine.

Formats: OCI image specification 1.1, "Image Layer Filesystem Changeset"; tar plain, in gzip or in
Zstandard. A binary that needs random access passes through an unnamed temporary file
(`facts.trees.zip_archive.Inflated`), one at a time.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from itertools import islice
from typing import Any

import msgspec

from buildmatrix.base.data import replace
from buildmatrix.base.threads import prepare_type, read_ahead
from buildmatrix.facts.inventory.collect import is_content_read
from buildmatrix.facts.inventory.distributions import remove_secrets
from buildmatrix.facts.inventory.file_facts import (
    ELF_MAGIC,
    LARGEST_STREAM,
    MOST_CONTAINERS,
    MOST_STREAMED,
    FileFacts,
    NestedContents,
    add_contents,
    inspect_source,
    stream_cost,
)
from buildmatrix.facts.trees.archive import CHUNK, Slice, iter_decompressed
from buildmatrix.facts.trees.archive_layers import MAX_ENTRIES, limit_entries
from buildmatrix.facts.trees.base import RandomAccess, Unreadable, defect, reason
from buildmatrix.facts.trees.decompression import ENDLESS, ForwardSource
from buildmatrix.facts.trees.formats import Format
from buildmatrix.facts.trees.tar import Kind, TarMember, members
from buildmatrix.facts.trees.zip_archive import Inflated

# Model and packing


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


# Reader


#: Bytes of compressed archives to open per layer. A tree opens `MOST_STREAMED`, the smallest
#: first; the choice is made once all layers are known.
_MAX_STREAMED = 4 * MOST_STREAMED
#: Maximum bytes of a file to store on request.
MAX_REQUESTED = 64 << 20
#: Errors of this machine: the layer is read again the next time.
_TEMPORARY_ERRORS = tuple(
    os.strerror(number).lower()
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
)
#: Maximum chunks in the queue, up to 1 MiB each.
_READY = 8


def read_layer(
    chunks: Iterable[bytes],
    size: int,
    digest: str = "",
    extra: Collection[int] = frozenset(),
    *,
    names_only: bool = False,
    room: int = MAX_ENTRIES,
) -> LayerFacts:
    """Read a layer of `size` bytes, compressed or not, from `chunks`, and return its facts.

    Args:
        chunks: the bytes of the layer; all are consumed.
        size: their expected number.
        digest: their expected digest, if known.
        extra: indexes of further files whose content to store.
        names_only: do not inspect files.
        room: entries that the image may still have besides other layers' ones.

    Raises `Unreadable` for anything but a valid layer with this size and digest, and errors of
    `chunks`.
    """
    algorithm = digest.partition(":")[0] or "sha256"
    incoming = _HashedChunks(chunks, algorithm)
    plain = _HashedChunks(iter_decompressed(Slice(ForwardSource(incoming), 0, size)), "sha256")
    reader = _LayerReader(plain, extra, names_only)
    # Download, decompression and hashing release the interpreter lock, while facts are found in
    # Python. So a layer is read on two processors.
    ahead = read_ahead(plain, _READY, "layer")
    entries = reader.entries(limit_entries(room, members(Slice(ForwardSource(ahead), 0, ENDLESS))))
    try:
        packed = tuple(pack_entries(entries))
        for _ in ahead:
            pass  # The last entry is followed by zeros, and the checksum of the whole.
    except Unreadable:
        plain.raise_failure()
        raise
    finally:
        ahead.close()
    for _ in incoming:
        pass
    if incoming.size != size:
        raise Unreadable(f"it has {incoming.size} bytes, and {size} were announced")
    if digest and incoming.digest != digest:
        raise Unreadable(f"it is damaged: its bytes have the digest {incoming.digest}")
    reader.blocks.finish()
    return LayerFacts(
        digest=plain.digest,
        blob=incoming.digest,
        size=size,
        entries=packed,
        count=reader.count,
        blocks=tuple(reader.blocks.blocks),
        is_final=reader.is_final,
    )


class _HashedChunks:
    """Iterator over chunks that records size, digest and the error that ended it early."""

    def __init__(self, chunks: Iterable[bytes], algorithm: str) -> None:
        self._chunks = iter(chunks)
        self._algorithm = algorithm
        self._hasher = hashlib.new(algorithm)
        self.size = 0
        self._failure: Exception | None = None

    @property
    def digest(self) -> str:
        """Digest of the bytes so far."""
        return f"{self._algorithm}:{self._hasher.hexdigest()}"

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = next(self._chunks)
        except StopIteration:
            raise
        except Exception as error:
            # The reader of one file would mistake it for an error of that file.
            self._failure = error
            raise
        self.size += len(chunk)
        self._hasher.update(chunk)
        return chunk

    def raise_failure(self) -> None:
        """Raise the error that ended the chunks early."""
        if self._failure is not None:
            raise self._failure


class _LayerReader:
    """Reader of a layer's entries, one after the other."""

    def __init__(self, chunks: _HashedChunks, extra: Collection[int], names_only: bool) -> None:
        self._chunks = chunks
        self._names_only = names_only
        self._also = extra
        self.blocks = ContentPacker()
        self.count = 0
        self.is_final = True
        self._opened = 0
        self._streamed = 0

    def entries(self, members: Iterable[TarMember]) -> Iterator[EntryFacts]:
        """Yield the facts of each entry."""
        for self.count, member in enumerate(members, 1):
            entry = EntryFacts(
                KINDS.index(member.kind),
                # Members' names never contain NUL: tar's end at one.
                os.fsencode(member.name),
                os.fsencode(member.target),
            )
            if member.data is not None and self._names_only:
                entry = msgspec.structs.replace(entry, size=member.data.size)
            elif member.data is not None:
                entry = self._read_file(entry, member.name, member.data)
            yield entry

    def _read_file(self, entry: EntryFacts, name: str, data: Slice) -> EntryFacts:
        stream = _HashedFile(data)
        is_asked_for = self.count - 1 in self._also and data.size <= MAX_REQUESTED
        is_kept = is_asked_for or (not self.blocks.is_full and is_content_read(name, data.size))
        place = None
        with Inflated(stream, data.size) as source:
            facts = self._inspect(source, name, data.size)
            self._chunks.raise_failure()
            if is_kept:
                place = self.blocks.add(name, source.read(0, data.size))
        stream.finish()
        self._chunks.raise_failure()
        if facts.unread is not None or facts.contents is not None:
            self.is_final = self.is_final and not _is_temporary(facts)
        return msgspec.structs.replace(
            entry,
            size=data.size,
            sha256=stream.hasher.digest(),
            place=place,
            facts=None if facts == _NO_FACTS else facts,
        )

    def _inspect(self, source: RandomAccess, name: str, size: int) -> FileFacts:
        """Return the facts of a file as `collect` finds them; containers: see `_read_contents`."""
        if size < len(ELF_MAGIC):
            return _NO_FACTS
        try:
            facts = inspect_source(source, name, size)
            if facts.contents is not None and (format := facts.contents.waiting) is not None:
                facts = self._read_contents(facts, source, name, size, format)
        except OSError as error:
            facts = FileFacts(unread=reason(error))
        except Exception as error:
            facts = FileFacts(unread=defect(error))
        return replace(facts, bytes_read=0)

    def _read_contents(
        self, facts: FileFacts, source: RandomAccess, name: str, size: int, format: Format
    ) -> FileFacts:
        """Add the contents of a container; the limits for the whole image are applied later."""
        cost = stream_cost(format, size)
        if cost > LARGEST_STREAM:
            return facts  # Too large for any tree.
        if self._opened == MOST_CONTAINERS or self._streamed + cost > _MAX_STREAMED:
            contents = NestedContents(
                format, closed=f"only {_MAX_STREAMED} bytes of archives are read in one layer"
            )
        else:
            self._opened += 1
            self._streamed += cost
            opened = add_contents(facts, source, name, size).contents
            assert opened is not None
            contents = opened
        return replace(facts, contents=replace(contents, waiting=format, is_ahead=True))


class _HashedFile:
    """Sequential reader of a file that hashes its bytes."""

    def __init__(self, data: Slice) -> None:
        self._data = data
        self._at = 0
        self.hasher = hashlib.sha256()

    def read(self, length: int) -> bytes:
        """See `facts.trees.base.Readable`."""
        data = self._data.read(self._at, min(length, CHUNK))
        self._at += len(data)
        self.hasher.update(data)
        return data

    def finish(self) -> None:
        """Hash the remaining bytes."""
        while self.read(CHUNK):
            pass


_NO_FACTS = FileFacts()


def _is_temporary(facts: FileFacts) -> bool:
    """Return True if something was not read because of an error that may not recur."""
    why = f"{facts.unread or ''} {(facts.contents and facts.contents.closed) or ''}"
    return any(text in why for text in _TEMPORARY_ERRORS)
