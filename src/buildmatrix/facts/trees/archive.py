"""Parts of files, read in place and decompressed: blobs, layers, members of archives.

Formats: gzip, Zstandard. See `facts.trees.tar` for the entries of archives.
"""

from __future__ import annotations

import os
import tempfile
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from buildmatrix.facts.trees import decompression
from buildmatrix.facts.trees.base import ByteSource, Readable, Unreadable
from buildmatrix.facts.trees.decompression import Inflater, StreamDecompressor, open_zstandard

#: Maximum ratio of decompressed to compressed size, plus an allowance. Layers have 2 to 5.
MAX_INFLATION = 64
INFLATION_ALLOWANCE = 256 << 20
CHUNK = 1 << 20

GZIP = b"\x1f\x8b"
_UNSUPPORTED = {b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x04\x22\x4d\x18": "lz4"}


class OpenFile:
    """`RandomAccess` to an open file, which its owner closes.

    Uses pread(2) instead of a mapping: a file that shrinks must not cause SIGBUS.
    """

    def __init__(self, descriptor: int, size: int | None = None) -> None:
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size if size is None else size
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `RandomAccess.read`."""
        # pread allocates the requested length, which may come from an invalid header.
        data = os.pread(self._descriptor, max(0, min(length, self.size - offset)), offset)
        self.bytes_read += len(data)
        return data


class BytesSource:
    """`RandomAccess` to bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `RandomAccess.read`."""
        data = self._data[offset : offset + length]
        self.bytes_read += len(data)
        return data


@dataclass(slots=True)
class Slice:
    """`RandomAccess` to a part of another source: a member of an archive, a blob, a layer."""

    source: ByteSource
    offset: int
    size: int
    bytes_read: int = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `RandomAccess.read`. Raises `Unreadable` if the archive ends early."""
        length = min(length, self.size - offset)
        if offset < 0 or length <= 0:
            return b""
        data = self.source.read(self.offset + offset, length)
        if len(data) < length:
            raise Unreadable("the archive ends inside of it: it is truncated")
        self.bytes_read += len(data)
        return data

    def chunks(self) -> Iterator[bytes]:
        """Yield all bytes in order. Raises `Unreadable`, as `read` does."""
        offset = 0
        while chunk := self.read(offset, CHUNK):
            offset += len(chunk)
            yield chunk


def safe_path(name: str) -> str | None:
    """Return a member's name as a path relative to the root, or None if it leads outside.

    A leading `/` or `./` means the root, as for every tool that unpacks images.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return None if ".." in parts or "\0" in name else "/".join(parts)


class Spool:
    """One unnamed temporary file for everything that has to be decompressed to be read.

    No name from an archive reaches the file system, and the kernel frees the file with the process.
    Close it, or use a `with` statement of its owner. For several threads: one writes at a time.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close and free the file."""
        if self._file is not None:
            self._file.close()

    def plain(self, blob: Slice) -> Slice:
        """Return `blob`, decompressed if needed. Raises `Unreadable`, or OSError (disk full)."""
        return self.store(iter_decompressed(blob)) if is_compressed(blob) else blob

    def store(self, chunks: Iterator[bytes]) -> Slice:
        """Store these bytes in the file. Raises errors of `chunks`, or OSError (disk full)."""
        with self._lock:
            if self._file is None:
                # The file stays open until `close`.
                self._file = tempfile.TemporaryFile(buffering=0, prefix="buildmatrix-")  # noqa: SIM115
            start = size = os.fstat(self._file.fileno()).st_size
            for chunk in chunks:
                # Unbuffered files may write only a part.
                rest = memoryview(chunk)
                while rest:
                    written = os.pwrite(self._file.fileno(), rest, size)
                    rest, size = rest[written:], size + written
            return Slice(OpenFile(self._file.fileno()), start, size - start)


def is_compressed(blob: Slice) -> bool:
    """Return True if `blob` is compressed. Raises `Unreadable` for unsupported formats."""
    head = blob.read(0, 8)
    for magic, name in _UNSUPPORTED.items():
        if head.startswith(magic):
            raise Unreadable(f"compressed with {name}; decompress it first")
    return head.startswith((GZIP, decompression.ZSTD_MAGIC))


def iter_decompressed(blob: Slice) -> Iterator[bytes]:
    """Yield the bytes of `blob`, decompressed if needed, in one pass.

    Raises `Unreadable` for damage and bombs, and errors of the source.
    """
    stream: Readable = SliceReader(blob)
    if is_compressed(blob):
        stream = (
            StreamDecompressor(stream, Inflater)
            if blob.read(0, 2) == GZIP
            else open_zstandard(stream)
        )
    most = INFLATION_ALLOWANCE + MAX_INFLATION * blob.size
    # All other errors come from the source.
    errors = (zlib.error, EOFError)
    yield from BoundedStream(stream, most, f"{MAX_INFLATION} times its size: a bomb", errors)


class BoundedStream:
    """Output of a decompressor, up to `most` bytes; `limit` is that in words.

    Raises `Unreadable` above the limit, and for `errors` of the decompressor; passes on others.
    """

    def __init__(
        self, stream: Readable, most: int, limit: str, errors: tuple[type[Exception], ...]
    ) -> None:
        self._stream = stream
        self._remaining = most
        self._limit = limit
        self._errors = errors

    def read(self, length: int) -> bytes:
        """Return the next bytes, at most `length`; none at the end."""
        try:
            data = self._stream.read(length)
        except Unreadable:
            raise
        except Exception as error:
            if isinstance(error, self._errors) or decompression.is_zstd_damage(error):
                raise Unreadable(f"its compressed bytes are damaged: {error}") from error
            raise
        self._remaining -= len(data)
        if self._remaining < 0:
            raise Unreadable(f"it inflates to more than {self._limit}")
        return data

    def __iter__(self) -> Iterator[bytes]:
        while chunk := self.read(CHUNK):
            yield chunk


class SliceReader:
    """A source as an input stream of decompressors."""

    def __init__(self, source: Slice) -> None:
        self._source = source
        self._position = 0

    def read(self, length: int) -> bytes:
        """Return the next bytes, at most `length`; none at the end."""
        data = self._source.read(self._position, length)
        self._position += len(data)
        return data
