"""Wheels as trees, read without being unpacked to disk.

Format: the binary distribution format, https://packaging.python.org/specifications/binary-distribution-format/
and the ZIP application note 6.3.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from buildmatrix.facts.trees.archive import OpenFile
from buildmatrix.facts.trees.archive_layers import WHITEOUT
from buildmatrix.facts.trees.base import (
    Closing,
    File,
    RandomAccess,
    Symlink,
    Tree,
    Trouble,
    Unreadable,
)
from buildmatrix.facts.trees.zip_archive import (
    DEFLATED,
    ENCRYPTED,
    LOCAL,
    LOCAL_MARK,
    STORED,
    Bytes,
    Inflated,
    Sequential,
    ZipEntry,
    read_directory,
)

#: Decompressed bytes of one member; libtorch_cuda.so has 1.5 GB.
MAX_MEMBER = 8 << 30
#: Maximum ratio of decompressed to compressed size of a wheel, plus an allowance. Wheels have 3 to
#: 10; deflate's own limit is 1032.
MOST_INFLATION = 64
INFLATION_ALLOWANCE = 256 << 20
CHUNK = 1 << 20

#: Install locations of the folders in `<name>-<version>.data/`. The wheel's tree shows the prefix
#: and its site-packages as one folder, so `data` and the libraries are at the root.
SCHEMES = {"purelib": "", "platlib": "", "data": "", "scripts": "bin/", "headers": "include/"}


def install_path(name: str) -> str:
    """Return the path of the member `name` in a wheel's tree: `.data/` folders are resolved."""
    first, _, rest = name.partition("/")
    scheme, _, path = rest.partition("/")
    if first.endswith(".data") and scheme in SCHEMES and path:
        return SCHEMES[scheme] + path
    return name


@dataclass(frozen=True, slots=True)
class Member:
    """One file of a wheel, from its directory."""

    #: Installed path: `.data/` folders are resolved.
    path: str
    #: Decompressed and compressed size.
    size: int
    compressed: int
    #: CRC-32 of the decompressed bytes.
    crc: int


@dataclass(frozen=True, slots=True)
class PackedMember:
    """A compressed member in memory."""

    entry: ZipEntry
    data: bytes

    def unpack(self) -> bytes:
        """Decompress the file. Raises `Unreadable` for an invalid member."""
        stream = Sequential(lambda at, length: self.data[at : at + length], self.entry)
        return b"".join(iter(lambda: stream.read(CHUNK), b""))


class WheelTree(Closing, Tree):
    """A wheel: a file, or any source of bytes with a known size.

    Raises `Unreadable` if it is not a ZIP archive, or OSError. A file stays open until `close` or
    the end of a `with` statement; a source is closed by its owner. All members together may
    decompress to `most` bytes, by default to what is usual for wheels. `located` maps a member's
    name to its path in the tree.
    """

    def __init__(
        self,
        wheel: Path | Bytes,
        most: int | None = None,
        located: Callable[[str], str] = install_path,
    ) -> None:
        self._file: BinaryIO | None = None
        self._source: Bytes
        self._locate = located
        try:
            if isinstance(wheel, Path):
                self._file = wheel.open("rb")
                self._source = OpenFile(self._file.fileno())
            else:
                self._source = wheel
            self._directory = read_directory(self._source)
        except BaseException:
            self.close()
            raise
        if most is None:
            most = INFLATION_ALLOWANCE + MOST_INFLATION * self._source.size
        self._allowance = most
        self._entries: dict[str, ZipEntry] = {}
        #: Offsets of the content of members that were read.
        self._starts: dict[str, int] = {}
        self._troubles: list[Trouble] = []
        for entry in self._directory:
            if not entry.name.endswith("/"):
                self._add(entry)

    def _add(self, entry: ZipEntry) -> None:
        path = self._locate(entry.name)
        why = _explain_unsafe(path)
        if why is not None:
            self._troubles.append(Trouble(entry.name, why))
            return
        if path in self._entries:
            # Installers overwrite one with the other, in an order of their own.
            why = "the wheel holds this path more than once; only the last one was read"
            self._troubles.append(Trouble(path, why))
        self._entries[path] = entry

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """All files, sorted by path; none is read."""
        return tuple(
            Member(path, entry.size, entry.compressed, entry.crc)
            for path, entry in sorted(self._entries.items())
        )

    @property
    def entries(self) -> tuple[ZipEntry, ...]:
        """All entries of the directory, unchanged."""
        return self._directory

    def extent(self, path: str) -> tuple[int, int]:
        """Return where the member `path` starts in the wheel, header included, and where it ends.

        The bytes between belong to no other member.
        """
        entry = self._entries[path]
        return entry.offset, max(entry.offset, entry.end)

    def close(self) -> None:
        """Close the file; the tree cannot be used afterwards."""
        if self._file is not None:
            self._file.close()

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        """See `Tree.walk`: sorted by path. Wheels contain no links."""
        yield from self._troubles
        for member in self.members:
            yield File(member.path, member.size, packed=member.compressed)

    @contextmanager
    def open(self, path: str) -> Iterator[RandomAccess]:
        """See `Tree.open`. Raises `Unreadable`, also from `read`, for an invalid member.

        The head is decompressed first. For bytes after it, the whole member is decompressed and its
        CRC checked before any is returned. The CRC of a member larger than
        `zip_archive.LARGEST_HELD` is checked at its end.
        """
        entry, compressed = self._open(path)
        with Inflated(Sequential(compressed, entry), entry.size) as source:
            try:
                yield source
            finally:
                self._allowance -= source.bytes_read

    def stream(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of the member `path` once, in order; the last ones after its CRC check.

        Raises as `open` does.
        """
        entry, compressed = self._open(path)
        source = Sequential(compressed, entry)
        while piece := source.read(CHUNK):
            self._allowance -= len(piece)
            yield piece

    def place(self, path: str) -> tuple[ZipEntry, int]:
        """Return the entry of the member `path`, and the offset of its content in the wheel.

        Raises `Unreadable` for an invalid or forbidden member, or FileNotFoundError.
        """
        entry = self._readable_entry(path)
        if path not in self._starts:
            self._starts[path] = self._content_offset(entry)
        return entry, self._starts[path]

    def packed(self, path: str) -> PackedMember:
        """Return the compressed bytes of the member `path`. Raises as `place` does."""
        entry, start = self.place(path)
        return PackedMember(entry, self._source.read(start, entry.compressed))

    def beginning(self, path: str, compressed: int, most: int) -> bytes:
        """Decompress the first `compressed` bytes of a member, to at most `most` bytes.

        Raises as `place` does, and `Unreadable` for damage.
        """
        entry, start = self.place(path)
        data = self._source.read(start, min(compressed, entry.compressed))
        if entry.method == STORED:
            return data[:most]
        try:
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, min(most, entry.size))
        except zlib.error as error:
            raise Unreadable(f"broken member of the wheel: {error}") from error

    def _open(self, path: str) -> tuple[ZipEntry, Callable[[int, int], bytes]]:
        """Return the entry of a member, and a reader of its compressed bytes."""
        entry, start = self.place(path)
        size, source = entry.compressed, self._source
        return entry, lambda offset, length: source.read(
            start + offset, max(0, min(length, size - offset))
        )

    def _readable_entry(self, path: str) -> ZipEntry:
        """Return the entry of a member. Raises `Unreadable` if it must not be read."""
        entry = self._entries.get(path)
        if entry is None:
            raise FileNotFoundError(path)
        if entry.flags & ENCRYPTED:
            raise Unreadable("encrypted")
        if entry.size > MAX_MEMBER:
            raise Unreadable(f"{entry.size} bytes when inflated; the limit is {MAX_MEMBER}")
        if entry.size > self._allowance:
            raise Unreadable(
                f"the wheel inflates to more than {MOST_INFLATION} times its size: a ZIP bomb"
            )
        if entry.method not in (STORED, DEFLATED):
            raise Unreadable(
                "neither stored nor deflated; the wheel format knows nothing else"
                f" (method {entry.method})"
            )
        if entry.method == STORED and entry.size != entry.compressed:
            raise Unreadable("broken member of the wheel: it is stored with two different sizes")
        return entry

    def _content_offset(self, entry: ZipEntry) -> int:
        """Return the offset of a member's content; its local header must match its entry."""
        header = self._source.read(entry.offset, LOCAL.size + len(entry.raw))
        if len(header) < LOCAL.size + len(entry.raw) or not header.startswith(LOCAL_MARK):
            raise Unreadable("broken member of the wheel: its header is not where it should be")
        *_, name, extra = LOCAL.unpack_from(header)
        if header[LOCAL.size :] != entry.raw or name != len(entry.raw):
            raise Unreadable("broken member of the wheel: its header has another name")
        start: int = entry.offset + LOCAL.size + name + extra
        if start + entry.compressed > entry.end:
            raise Unreadable("broken member of the wheel: it overlaps what follows")
        return start


def _explain_unsafe(path: str) -> str | None:
    """Return the reason why `path` is not a valid name in a wheel, or None."""
    if path.startswith("/"):
        return "an absolute name inside of a wheel"
    around = f"/{path}/"
    if "//" in around or "/./" in around or "/../" in around:
        return "a name inside of a wheel that is not a plain path below its root"
    if f"/{WHITEOUT}" in around:
        return f"a name inside of a wheel that deletes files in an image (`{WHITEOUT}`)"
    return None
