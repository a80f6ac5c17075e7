"""Parts of files and what they inflate to, read in place: blobs, layers, members of archives.

Formats: gzip, Zstandard. See `trees.tar` for the entries of archives.
"""

from __future__ import annotations

import os
import tempfile
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from buildmatrix.trees import zstd
from buildmatrix.trees.base import RandomAccess, Readable, Unreadable
from buildmatrix.trees.forward import Gunzip
from buildmatrix.trees.unpacking import zstandard

#: A compressed blob may inflate to this many times its size, plus a little. Layers inflate to 2 to
#: 5 times theirs.
MOST_INFLATION = 64
SMALL_BLOB_ALLOWANCE = 256 << 20
CHUNK = 1 << 20

GZIP = b"\x1f\x8b"
_UNSUPPORTED = {b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x04\x22\x4d\x18": "lz4"}


class OpenFile:
    """A `RandomAccess` over an open file, which its owner closes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `RandomAccess.read`."""
        data = os.pread(self._descriptor, max(0, min(length, self.size - offset)), offset)
        self.bytes_read += len(data)
        return data


@dataclass(slots=True)
class HeldBytes:
    """Bytes in memory as a `RandomAccess`."""

    data: bytes
    bytes_read: int = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `RandomAccess.read`."""
        return self.data[offset : offset + length]


@dataclass(slots=True)
class Slice:
    """A part of another source, as a `RandomAccess`: a member of an archive, a blob, a layer."""

    source: RandomAccess
    offset: int
    size: int
    bytes_read: int = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `RandomAccess.read`. Raises `Unreadable` where the archive ends before the member."""
        length = min(length, self.size - offset)
        if offset < 0 or length <= 0:
            return b""
        data = self.source.read(self.offset + offset, length)
        if len(data) < length:
            raise Unreadable("the archive ends inside of it: it is truncated")
        self.bytes_read += len(data)
        return data

    def chunks(self) -> Iterator[bytes]:
        """All of it, in its order. Raises `Unreadable`, as `read` does."""
        offset = 0
        while chunk := self.read(offset, CHUNK):
            offset += len(chunk)
            yield chunk


def plain(name: str) -> str | None:
    """A member's name as a path below the root, or None when it leads out of it.

    A leading `/` or `./` means the root, as for every tool that unpacks images.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return None if ".." in parts or "\0" in name else "/".join(parts)


class Spool:
    """One unnamed file of this machine for everything that has to be inflated to be read.

    No name of an archive ever reaches the file system, and the kernel frees the file with the
    process, however that ends. Close it, or use a `with` statement of its owner. For several
    threads: one writes at a time.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Free the file."""
        if self._file is not None:
            self._file.close()

    def plain(self, blob: Slice) -> Slice:
        """`blob` itself, or what it inflates to. Raises `Unreadable`, or OSError (disk full)."""
        return self.kept(inflated(blob)) if is_compressed(blob) else blob

    def kept(self, chunks: Iterator[bytes]) -> Slice:
        """These bytes, in the file. Raises what `chunks` raises, or OSError (disk full)."""
        with self._lock:
            if self._file is None:
                # It stays open until `close`.
                self._file = tempfile.TemporaryFile(buffering=0, prefix="buildmatrix-")  # noqa: SIM115
            start = size = os.fstat(self._file.fileno()).st_size
            for chunk in chunks:
                # Unbuffered files may take a part of what they are given.
                rest = memoryview(chunk)
                while rest:
                    written = os.pwrite(self._file.fileno(), rest, size)
                    rest, size = rest[written:], size + written
            return Slice(OpenFile(self._file.fileno()), start, size - start)


def is_compressed(blob: Slice) -> bool:
    """Whether `blob` is not what it holds. Raises `Unreadable` for what nobody reads here."""
    head = blob.read(0, 8)
    for magic, name in _UNSUPPORTED.items():
        if head.startswith(magic):
            raise Unreadable(f"compressed with {name}; decompress it first")
    return head.startswith((GZIP, zstd.MAGIC))


def inflated(blob: Slice) -> Iterator[bytes]:
    """The bytes of `blob`, which is read once and in its order, or what they inflate to.

    Raises `Unreadable` for damage and bombs, and what the source of the bytes raises.
    """
    stream: Readable = Stream(blob)
    if is_compressed(blob):
        stream = Gunzip(stream) if blob.read(0, 2) == GZIP else zstandard(stream)
    most = SMALL_BLOB_ALLOWANCE + MOST_INFLATION * blob.size
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


class Stream:
    """A source as the stream that decompressors read."""

    def __init__(self, source: Slice) -> None:
        self._source = source
        self._position = 0

    def read(self, length: int) -> bytes:
        """The next bytes, at most `length`; none at the end."""
        data = self._source.read(self._position, length)
        self._position += len(data)
        return data
