"""A wheel file as a tree, read without being unpacked to disk.

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

from buildmatrix.trees.archive import OpenFile
from buildmatrix.trees.archive_layers import WHITEOUT
from buildmatrix.trees.base import Closing, File, RandomAccess, Symlink, Tree, Trouble, Unreadable
from buildmatrix.trees.inflating import Inflated, Sequential
from buildmatrix.trees.zipdirectory import (
    DEFLATED,
    ENCRYPTED,
    LOCAL,
    LOCAL_MARK,
    STORED,
    Bytes,
    ZipEntry,
    read_directory,
)

#: Bytes of one inflated member; libtorch_cuda.so has 1.5 GB.
LARGEST_MEMBER = 8 << 30
#: All inflated members together may have this many times the bytes of the wheel, plus a little.
#: Wheels inflate to 3 to 10 times their size; deflate's own limit is 1032 times.
MOST_INFLATION = 64
SMALL_WHEEL_ALLOWANCE = 256 << 20
CHUNK = 1 << 20

#: Where an installer puts the folders of `<name>-<version>.data/`. The wheel's tree shows the
#: prefix and its site-packages as one folder, so `data` and the libraries land at the root.
SCHEMES = {"purelib": "", "platlib": "", "data": "", "scripts": "bin/", "headers": "include/"}


def installed(name: str) -> str:
    """Where the member `name` of a wheel lies in its tree: `.data/` folders are resolved."""
    first, _, rest = name.partition("/")
    scheme, _, path = rest.partition("/")
    if first.endswith(".data") and scheme in SCHEMES and path:
        return SCHEMES[scheme] + path
    return name


@dataclass(frozen=True, slots=True)
class Member:
    """One file of a wheel, as its directory has it."""

    #: As installed: `.data/` folders are resolved.
    path: str
    #: Bytes when inflated, and in the wheel.
    size: int
    compressed: int
    #: CRC-32 of the inflated bytes.
    crc: int


@dataclass(frozen=True, slots=True)
class PackedMember:
    """A member as it is in the wheel, in memory."""

    entry: ZipEntry
    data: bytes

    def unpack(self) -> bytes:
        """The bytes of the file. Raises `Unreadable` for a member that lies."""
        stream = Sequential(lambda at, length: self.data[at : at + length], self.entry)
        pieces = []
        while piece := stream.read(CHUNK):
            pieces.append(piece)
        return b"".join(pieces)


class WheelTree(Closing, Tree):
    """A wheel: the file at a path, or any source of bytes that knows its size.

    Raises `Unreadable` when it is no ZIP archive, or OSError. Of a path the file is held open;
    `close` or a `with` statement frees it. A source is its owner's to close. All members together
    may inflate to `most` bytes; without it, to what is usual for wheels. `located` says where a
    member lies in the tree.
    """

    def __init__(
        self,
        wheel: Path | Bytes,
        most: int | None = None,
        located: Callable[[str], str] = installed,
    ) -> None:
        self._file: BinaryIO | None = None
        self._source: Bytes
        self._located = located
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
            most = SMALL_WHEEL_ALLOWANCE + MOST_INFLATION * self._source.size
        self._allowance = most
        self._entries: dict[str, ZipEntry] = {}
        #: Where the bytes of members begin that were asked for.
        self._starts: dict[str, int] = {}
        self._troubles: list[Trouble] = []
        for entry in self._directory:
            if not entry.name.endswith("/"):
                self._add(entry)

    def _add(self, entry: ZipEntry) -> None:
        path = self._located(entry.name)
        why = _unsafe(path)
        if why is not None:
            self._troubles.append(Trouble(entry.name, why))
            return
        if path in self._entries:
            # Installers write one over the other; which one is left is theirs to decide.
            why = "the wheel holds this path more than once; only the last one was read"
            self._troubles.append(Trouble(path, why))
        self._entries[path] = entry

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """All files, sorted by path, without reading any of them."""
        return tuple(
            Member(path, entry.size, entry.compressed, entry.crc)
            for path, entry in sorted(self._entries.items())
        )

    @property
    def entries(self) -> tuple[ZipEntry, ...]:
        """Everything in the directory, as it has it."""
        return self._directory

    def extent(self, path: str) -> tuple[int, int]:
        """Where the member `path` begins in the wheel, header included, and where it ends.

        What lies between belongs to no other member.
        """
        entry = self._entries[path]
        return entry.offset, max(entry.offset, entry.end)

    def close(self) -> None:
        """Free the file; the tree cannot be used afterwards."""
        if self._file is not None:
            self._file.close()

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        """See `Tree.walk`: sorted by path. A wheel holds no links."""
        yield from self._troubles
        for member in self.members:
            yield File(member.path, member.size, packed=member.compressed)

    @contextmanager
    def open(self, path: str) -> Iterator[RandomAccess]:
        """See `Tree.open`. Raises `Unreadable`, here or from `read`, for a member that lies.

        A small part is inflated at first. Who reads further gets the whole member inflated, and
        its CRC checked, before any byte after that part is handed out. That of a member larger
        than `inflating.LARGEST_HELD` is checked at its end.
        """
        entry, compressed = self._open(path)
        with Inflated(Sequential(compressed, entry), entry.size) as source:
            try:
                yield source
            finally:
                self._allowance -= source.bytes_read

    def stream(self, path: str) -> Iterator[bytes]:
        """The bytes of the member `path`, once and in order; its CRC is checked with the last.

        Raises as `open` does.
        """
        entry, compressed = self._open(path)
        source = Sequential(compressed, entry)
        while piece := source.read(CHUNK):
            self._allowance -= len(piece)
            yield piece

    def place(self, path: str) -> tuple[ZipEntry, int]:
        """The entry of the member `path`, and where its bytes begin in the wheel.

        Raises `Unreadable` for a member that must not be read, or that lies, or FileNotFoundError.
        """
        entry = self._allowed(path)
        if path not in self._starts:
            self._starts[path] = self._start(entry)
        return entry, self._starts[path]

    def packed(self, path: str) -> PackedMember:
        """The bytes of the member `path` as they are in the wheel. Raises as `place` does."""
        entry, start = self.place(path)
        return PackedMember(entry, self._source.read(start, entry.compressed))

    def beginning(self, path: str, compressed: int, most: int) -> bytes:
        """What the first `compressed` bytes of a member inflate to, or `most` bytes of that.

        Raises as `place` does, and `Unreadable` where there is nothing to inflate.
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
        """The entry of a member, and a reader of what it is stored as."""
        entry, start = self.place(path)
        size, source = entry.compressed, self._source
        return entry, lambda offset, length: source.read(
            start + offset, max(0, min(length, size - offset))
        )

    def _allowed(self, path: str) -> ZipEntry:
        """The entry of a member that may be read."""
        entry = self._entries.get(path)
        if entry is None:
            raise FileNotFoundError(path)
        if entry.flags & ENCRYPTED:
            raise Unreadable("encrypted")
        if entry.size > LARGEST_MEMBER:
            raise Unreadable(f"{entry.size} bytes when inflated; {LARGEST_MEMBER} are read")
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

    def _start(self, entry: ZipEntry) -> int:
        """Where the bytes of a member begin, behind a local header that must fit its entry."""
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


def _unsafe(path: str) -> str | None:
    """Why `path` must not be a name inside of a wheel, or None."""
    if path.startswith("/"):
        return "an absolute name inside of a wheel"
    around = f"/{path}/"
    if "//" in around or "/./" in around or "/../" in around:
        return "a name inside of a wheel that is no plain path below its root"
    if f"/{WHITEOUT}" in around:
        return f"a name inside of a wheel that deletes files in an image (`{WHITEOUT}`)"
    return None
