"""A wheel file as a tree, read without being unpacked to disk.

Format: the binary distribution format, https://packaging.python.org/specifications/binary-distribution-format/
and the ZIP application note 6.3.
"""

from __future__ import annotations

import errno
import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO

from buildmatrix.trees.base import File, Source, Symlink, Tree, Trouble, Unreadable
from buildmatrix.trees.inflating import Inflating

#: Bytes of the central directory; tensorflow's, with 20,000 entries, has 3 MB.
LARGEST_DIRECTORY = 16 << 20
#: Bytes of one inflated member; libtorch_cuda.so has 1.5 GB.
LARGEST_MEMBER = 8 << 30
#: Members up to this size are inflated into memory, once; larger ones are read through a window.
LARGEST_HELD = 24 << 20
#: All inflated members together may have this many times the bytes of the wheel, plus a little.
#: Wheels inflate to 3 to 10 times their size; deflate's own limit is 1032 times.
MOST_INFLATION = 64
SMALL_WHEEL_ALLOWANCE = 256 << 20
#: What is inflated to look at the beginning of a member: enough for every magic number and for the
#: headers of most libraries.
HEAD = 64 << 10
CHUNK = 1 << 20

#: Where an installer puts the folders of `<name>-<version>.data/`. The wheel's tree shows the
#: prefix and its site-packages as one folder, so `data` and the libraries land at the root.
SCHEMES = {"purelib": "", "platlib": "", "data": "", "scripts": "bin/", "headers": "include/"}

_ENCRYPTED = 0x1
#: Signature, ..., lengths of the name and of the extra field (application note 6.3, 4.3.7).
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
# What zipfile and the decompressors raise on bytes that lie.
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)


def installed(name: str) -> str:
    """Where the member `name` of a wheel lies in its tree: `.data/` folders are resolved."""
    first, _, rest = name.partition("/")
    scheme, _, path = rest.partition("/")
    if first.endswith(".data") and scheme in SCHEMES and path:
        return SCHEMES[scheme] + path
    return name


class WheelTree(Tree):
    """The wheel at `path`. Raises `Unreadable` when it is no ZIP archive, or OSError.

    Holds the file open; `close` or a `with` statement frees it.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        try:
            size = path.stat().st_size
            self._archive = zipfile.ZipFile(_Positioned(self._file))
        except _BROKEN as error:
            self._file.close()
            raise Unreadable(f"no readable ZIP archive: {error}") from error
        except OSError:
            self._file.close()
            raise
        self._allowance = SMALL_WHEEL_ALLOWANCE + MOST_INFLATION * size
        self._members: dict[str, zipfile.ZipInfo] = {}
        self._troubles: list[Trouble] = []
        for member in self._archive.infolist():
            if not member.filename.endswith("/"):
                self._add(member)

    def _add(self, member: zipfile.ZipInfo) -> None:
        path = installed(member.filename)
        why = _unsafe(path)
        if why is not None:
            self._troubles.append(Trouble(member.filename, why))
            return
        if path in self._members:
            # Installers write one over the other; which one is left is theirs to decide.
            why = "the wheel holds this path more than once; only the last one was read"
            self._troubles.append(Trouble(path, why))
        self._members[path] = member

    def close(self) -> None:
        """Free the file; the tree cannot be used afterwards."""
        self._archive.close()
        self._file.close()

    def __enter__(self) -> WheelTree:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        """See `Tree.walk`: sorted by path. A wheel holds no links."""
        yield from self._troubles
        for path, member in sorted(self._members.items()):
            yield File(path, member.file_size)

    @contextmanager
    def open(self, path: str) -> Iterator[Source]:
        """See `Tree.open`. Raises `Unreadable`, here or from `read`, for a member that lies.

        A small part is inflated at first. Who reads further gets the whole member inflated, and
        its CRC checked, before any byte after that part is handed out. Of a member larger than
        `LARGEST_HELD` the bytes are not kept: they are inflated again where they are needed.
        """
        member = self._members.get(path)
        if member is None:
            raise FileNotFoundError(path)
        if member.flag_bits & _ENCRYPTED:
            raise Unreadable("encrypted")
        if member.file_size > LARGEST_MEMBER:
            raise Unreadable(f"{member.file_size} bytes when inflated; {LARGEST_MEMBER} are read")
        if member.file_size > self._allowance:
            raise Unreadable(
                f"the wheel inflates to more than {MOST_INFLATION} times its size: a ZIP bomb"
            )
        try:
            stream = self._archive.open(member)
        except _BROKEN as error:
            raise Unreadable(f"broken member of the wheel: {error}") from error
        with stream:
            source: _Member | Inflating | _Stored
            if member.file_size <= LARGEST_HELD:
                source = _Member(stream, member.file_size)
            elif member.compress_type == zipfile.ZIP_DEFLATED:
                source = Inflating(
                    self._compressed(member), member.compress_size, member.file_size, member.CRC
                )
            elif member.compress_type == zipfile.ZIP_STORED:
                source = _Stored(self._compressed(member), member)
            else:
                raise Unreadable(
                    f"{member.file_size} bytes, neither stored nor deflated; the wheel format"
                    " knows nothing else"
                )
            try:
                yield source
            finally:
                self._allowance -= min(source.bytes_read, member.file_size)

    def _compressed(self, member: zipfile.ZipInfo) -> Callable[[int, int], bytes]:
        """Reads the bytes that `member` is stored as; zipfile has checked its local header."""
        descriptor = self._file.fileno()
        header = os.pread(descriptor, _LOCAL_HEADER.size, member.header_offset)
        *_, name, extra = _LOCAL_HEADER.unpack(header)
        start = member.header_offset + _LOCAL_HEADER.size + name + extra
        size = member.compress_size
        return lambda offset, length: os.pread(
            descriptor, max(0, min(length, size - offset)), start + offset
        )


def _unsafe(path: str) -> str | None:
    """Why `path` must not be a name inside of a wheel, or None."""
    if path.startswith("/"):
        return "an absolute name inside of a wheel"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "a name inside of a wheel that is no plain path below its root"
    return None


class _Member:
    """One member, inflated once: the head first, the rest when somebody reads past it."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream = stream
        self._size = size
        self._data = bytearray()
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        end = min(offset + length, self._size)
        if end > len(self._data):
            self._inflate(HEAD if end <= HEAD else self._size)
        return bytes(memoryview(self._data)[max(offset, 0) : max(end, 0)])

    def _inflate(self, wanted: int) -> None:
        try:
            while len(self._data) < wanted:
                chunk = self._stream.read(min(CHUNK, wanted - len(self._data)))
                if not chunk:
                    break
                self._data += chunk
                self.bytes_read += len(chunk)
        except _BROKEN as error:
            raise Unreadable(f"broken member of the wheel: {error}") from error
        if len(self._data) < min(wanted, self._size):
            raise Unreadable(f"ends after {len(self._data)} of {self._size} bytes")


class _Stored:
    """A large member that is not compressed."""

    def __init__(self, stored: Callable[[int, int], bytes], member: zipfile.ZipInfo) -> None:
        self._stored = stored
        self._member = member
        self._checked = False
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        if not self._checked and offset + length > HEAD:
            self._check()
        data = self._stored(max(0, offset), length)
        self.bytes_read += len(data)
        return data

    def _check(self) -> None:
        crc = at = 0
        while data := self._stored(at, CHUNK):
            crc = zlib.crc32(data, crc)
            at += len(data)
        if at < self._member.file_size:
            raise Unreadable(f"ends after {at} of {self._member.file_size} bytes")
        if crc != self._member.CRC:
            raise Unreadable("broken member of the wheel: bad CRC-32")
        self._checked = True


class _Positioned(io.BufferedIOBase):
    """The file as zipfile wants it, with a position of its own and a limit for each read.

    A position that the kernel keeps would be shared with forked workers. Without the limit zipfile
    would read the central directory, however long, at once.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._descriptor = file.fileno()
        self._position = 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_CUR:
            offset += self._position
        elif whence == io.SEEK_END:
            offset += os.fstat(self._descriptor).st_size
        if offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._position = offset
        return offset

    def read(self, length: int | None = -1) -> bytes:
        if length is None or length < 0:
            length = LARGEST_DIRECTORY
        if length > LARGEST_DIRECTORY:
            raise zipfile.BadZipFile(f"its directory says it has {length} bytes")
        data = os.pread(self._descriptor, length, self._position)
        self._position += len(data)
        return data
