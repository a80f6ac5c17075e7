"""Parts of files, read in place and decompressed: blobs, layers, members of archives.

Formats: gzip, Zstandard. See `facts.trees.tar` for the entries of archives.

Symbolic links below the root are never followed: every folder is opened relative to its parent with
O_NOFOLLOW, so that no link leads outside, even one that replaces a folder during the walk. Only
regular files are opened: opening a FIFO blocks and opening a device node may act on the device.
"""

from __future__ import annotations

import os
import stat
import struct
import tempfile
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from buildmatrix.facts.trees import decompression
from buildmatrix.facts.trees.base import (
    ByteSource,
    Closing,
    File,
    Readable,
    Symlink,
    Tree,
    Trouble,
    Unreadable,
    reason,
)
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


#: Maximum depth; deeper folders are reported. Each level of a walk holds one descriptor.
MAX_DEPTH = 128
#: Mount points of kernel file systems: their files are not part of an image, and reading some of
#: them has effects.
KERNEL_MOUNTS = frozenset({"proc", "sys", "dev"})

#: Device, inode, size, modification time, change time in ns.
_STAMP = struct.Struct("<5Q")
_UINT64 = (1 << 64) - 1

#: Linux's read-ahead. Smaller files are read whole by the first read.
_READ_AHEAD = 128 << 10

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: if a FIFO replaces a file after the walk, opening it must not hang.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def make_stamp(status: os.stat_result) -> bytes:
    """Return `File.stamp` of a file, from the fields that git's index compares.

    Only the kernel sets ctime, so that no tool that sets modification times (as installers do) can
    make a changed file look unchanged.
    """
    return _STAMP.pack(
        status.st_dev & _UINT64,
        status.st_ino & _UINT64,
        status.st_size,
        status.st_mtime_ns & _UINT64,
        status.st_ctime_ns & _UINT64,
    )


def changed_ns(stamp: bytes) -> int:
    """Return the time of the last change in a stamp, in nanoseconds since 1970."""
    *_, changed = _STAMP.unpack(stamp)
    return int(changed)


class DirectoryTree(Closing, Tree):
    """The folder `root`, which may be a link itself. Raises OSError if it is not a folder.

    Holds some descriptors until `close` or the end of a `with` statement.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # Files are read folder by folder: the current folder and its parents stay open, so that
        # paths are not resolved for each file.
        self._last: str | None = None
        self._opened: list[tuple[str, int]] = []

    def close(self) -> None:
        """Close the descriptors; the tree cannot be used afterwards."""
        self._close_below(0)
        os.close(self._root)

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        """See `Tree.walk`: depth first, the names of each folder sorted."""
        return self._walk(os.dup(self._root), "", 0)

    def _walk(self, folder: int, prefix: str, depth: int) -> Iterator[File | Symlink | Trouble]:
        """Yield everything below the open `folder`, and close it."""
        try:
            device = os.fstat(folder).st_dev
            with os.scandir(folder) as entries:
                listing = sorted(entries, key=lambda entry: entry.name)
            for entry in listing:
                path = prefix + entry.name
                try:
                    if entry.is_dir(follow_symlinks=False):
                        yield from self._enter(folder, device, entry.name, path, depth)
                    elif entry.is_symlink():
                        yield Symlink(path, os.readlink(entry.name, dir_fd=folder))
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        identity = (status.st_dev, status.st_ino) if status.st_nlink > 1 else None
                        yield File(path, status.st_size, identity, make_stamp(status))
                except OSError as error:
                    yield Trouble(path, reason(error))
        finally:
            os.close(folder)

    def _enter(
        self, parent: int, device: int, name: str, path: str, depth: int
    ) -> Iterator[File | Symlink | Trouble]:
        if depth == MAX_DEPTH:
            yield Trouble(path, f"folders nested more than {MAX_DEPTH} deep")
            return
        folder = os.open(name, _FOLDER_FLAGS, dir_fd=parent)
        if name in KERNEL_MOUNTS and os.fstat(folder).st_dev != device:
            os.close(folder)
            return
        yield from self._walk(folder, path + "/", depth + 1)

    def open(self, path: str) -> _DirectoryFile:
        """See `Tree.open`; raises `Unreadable` if the path is no longer a regular file."""
        parent, _, name = path.rpartition("/")
        descriptor = os.open(name, _FILE_FLAGS, dir_fd=self._open_folder(parent))
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise Unreadable("no longer a regular file")
        return _DirectoryFile(descriptor, status.st_size)

    def _open_folder(self, path: str) -> int:
        """Return a descriptor of the folder `path`, valid until the next call."""
        if path != self._last:
            names = path.split("/") if path else []
            common = 0
            for (opened, _), name in zip(self._opened, names, strict=False):
                if opened != name:
                    break
                common += 1
            self._close_below(common)
            for name in names[common:]:
                if name == "..":
                    raise Unreadable("a path that leads out of the tree")
                above = self._opened[-1][1] if self._opened else self._root
                self._opened.append((name, os.open(name, _FOLDER_FLAGS, dir_fd=above)))
            self._last = path
        return self._opened[-1][1] if self._opened else self._root

    def _close_below(self, count: int) -> None:
        """Close all open folders but the first `count`."""
        self._last = None
        while len(self._opened) > count:
            os.close(self._opened.pop()[1])


class _DirectoryFile(OpenFile, Closing):
    """A file that is closed behind a `with` statement."""

    def __init__(self, descriptor: int, size: int) -> None:
        super().__init__(descriptor, size)
        # Headers are at both ends of a file: read-ahead would fetch 128 KiB around each.
        if size > _READ_AHEAD and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def close(self) -> None:
        """See `Closing.close`."""
        os.close(self._descriptor)
