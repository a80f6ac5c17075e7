"""Tar archives, and what lies inside of one, read in place.

Formats: POSIX pax and GNU tar (the standard library reads them), gzip, Zstandard.
"""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from tarfile import InvalidHeaderError, TarFile  # type: ignore[attr-defined]  # typeshed lacks it
from typing import IO, TYPE_CHECKING, Literal

from buildmatrix.trees import zstd
from buildmatrix.trees.base import RandomAccess, Readable, Unreadable
from buildmatrix.trees.forward import Gunzip
from buildmatrix.trees.unpacking import zstandard

if TYPE_CHECKING:
    # The scanner runs on Python 3.10, too.
    from typing import Self

#: Bytes that one read of the archive's structure may ask for: longer names and pax headers are
#: lies.
LARGEST_HEADER = 1 << 20
#: Members of one archive; an image of a desktop has 300,000.
MOST_MEMBERS = 2_000_000
#: A compressed blob may inflate to this many times its size, plus a little. Layers inflate to 2 to
#: 5 times theirs.
MOST_INFLATION = 64
SMALL_BLOB_ALLOWANCE = 256 << 20
CHUNK = 1 << 20

GZIP = b"\x1f\x8b"
_UNSUPPORTED = {b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x04\x22\x4d\x18": "lz4"}
# What tarfile raises on bytes that lie.
_BROKEN = (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError)


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


@dataclass(frozen=True, slots=True)
class Attributes:
    """Who owns an entry of an archive, and its permission bits, with setuid, setgid and sticky."""

    mode: int
    uid: int = 0
    gid: int = 0


@dataclass(frozen=True, slots=True)
class TarMember:
    """One entry of an archive. `name` as stored; see `plain` for a path that can be trusted."""

    name: str
    kind: Literal["file", "folder", "symlink", "hardlink", "other"]
    #: The bytes of a file; None for what is no file, and for a sparse one, which is not read.
    data: Slice | None = None
    #: Target of a link, as stored.
    target: str = ""
    #: None where whoever read the archive had no use for them.
    attributes: Attributes | None = None


class _Header(tarfile.TarInfo):
    """A header that is an error where it is broken; tarfile takes such a header for the end."""

    @classmethod
    def fromtarfile(cls, tarfile: TarFile) -> Self:
        """See `tarfile.TarInfo`. Raises `Unreadable`."""
        try:
            return super().fromtarfile(tarfile)
        except InvalidHeaderError as error:
            raise Unreadable(f"no readable tar archive: {error}") from error


def members(archive: Slice) -> Iterator[TarMember]:
    """The entries of the uncompressed tar archive in `archive`, in order.

    Raises `Unreadable` when it is none, is cut short, or has more than `MOST_MEMBERS`.
    """
    try:
        with tarfile.TarFile(
            fileobj=Stream(archive, LARGEST_HEADER),
            encoding="utf-8",
            errors="surrogateescape",
            tarinfo=_Header,
        ) as tar:
            count = 0
            while (info := tar.next()) is not None:
                # tarfile remembers every entry: 1.5 kB for each of maybe a million.
                tar.members = []  # type: ignore[attr-defined]  # typeshed lacks this old idiom
                count += 1
                if count > MOST_MEMBERS:
                    raise Unreadable(f"the archive has more than {MOST_MEMBERS} entries")
                yield _member(info, archive)
            # tarfile takes whatever is no header for the end; the end is a block of zeros.
            block = archive.read(tar.offset, tarfile.BLOCKSIZE)
            if block.strip(b"\0") or len(block) < tarfile.BLOCKSIZE:
                raise Unreadable("the archive is truncated or broken: it has no end mark")
            _check_end(archive, tar.offset + tarfile.BLOCKSIZE)
    except _BROKEN as error:
        raise Unreadable(f"no readable tar archive: {error}") from error


def _check_end(archive: Slice, offset: int) -> None:
    """Two blocks of zeros end an archive. Whether a lone one does is for each tool to decide."""
    try:
        block = archive.read(offset, tarfile.BLOCKSIZE)
    except Unreadable:
        return  # Nothing follows.
    if block.strip(b"\0"):
        raise Unreadable("the archive is broken: its end mark is half of one, and more follows")


def _member(info: tarfile.TarInfo, archive: Slice) -> TarMember:
    if info.size < 0:  # A header of pax may say so, and tarfile reads on in the entry itself.
        raise Unreadable("the archive is broken: an entry has less than no bytes")
    attributes = _attributes(info.mode & 0o7777, info.uid, info.gid)
    if info.issym():
        return TarMember(info.name, "symlink", None, info.linkname, attributes)
    if info.islnk():
        return TarMember(info.name, "hardlink", None, info.linkname, attributes)
    if info.isdir():
        return TarMember(info.name, "folder", attributes=attributes)
    if info.isreg():
        data = None if info.issparse() else Slice(archive, info.offset_data, info.size)
        return TarMember(info.name, "file", data, attributes=attributes)
    return TarMember(info.name, "other", attributes=attributes)


@lru_cache(maxsize=4096)
def _attributes(mode: int, uid: int, gid: int) -> Attributes:
    """One object for the many entries that have the same."""
    return Attributes(mode, uid, gid)


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
    stream: Readable = Stream(blob, LARGEST_HEADER)
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


class Stream(io.BufferedIOBase):
    """A source as the file object that tarfile and decompressors want.

    Without `limit`, the most bytes of one read, tarfile would read a pax header of any length.
    """

    def __init__(self, source: Slice, limit: int) -> None:
        self._source = source
        self._limit = limit
        self._position = 0

    def readable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def seekable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See `io.IOBase`."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._source.size}
        self._position = max(0, base[whence] + offset)
        return self._position

    def tell(self) -> int:
        """See `io.IOBase`."""
        return self._position

    def read(self, length: int | None = -1) -> bytes:
        """See `io.BufferedIOBase`. Raises `tarfile.ReadError` for more than the limit."""
        if length is None or length < 0:
            length = self._limit
        if length > self._limit:
            raise tarfile.ReadError(f"a header says that it has {length} bytes")
        data = self._source.read(self._position, length)
        self._position += len(data)
        return data
