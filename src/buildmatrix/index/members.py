"""Members of a wheel that were brought here, as the tree that `inventory` reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from buildmatrix.elf.source import BytesSource
from buildmatrix.inventory.file_facts import FileFacts, inspect, open_container
from buildmatrix.python_imports.source import runs_at_startup
from buildmatrix.trees.base import File, RandomAccess, Symlink, Tree, Trouble, Unreadable
from buildmatrix.trees.wheel import PackedMember

#: Files of a metadata folder that the inventory reads; licenses are not facts.
_METADATA = frozenset(
    {"METADATA", "PKG-INFO", "WHEEL", "RECORD", "INSTALLER", "REQUESTED", "direct_url.json",
     "entry_points.txt", "variant.json"}
)  # fmt: skip
#: Compressed bytes of one file of metadata, or one Python file; none of an honest wheel has more.
LARGEST_PACKED = 4 << 20


def is_metadata(path: str) -> bool:
    """Whether the inventory reads the file at `path` to know distributions."""
    folder, _, name = path.rpartition("/")
    if folder.endswith((".dist-info", ".egg-info")):
        return name in _METADATA
    return folder.endswith(".dist-info/sboms")


def is_source(path: str) -> bool:
    """Whether the file at `path` is Python that an import or the start of Python runs."""
    return path.endswith(".py") or (runs_at_startup(path) and "/" not in path)


class HeldTree(Tree):
    """The listing of a wheel, with the bytes of those files that are held."""

    def __init__(
        self, entries: Iterable[File | Symlink | Trouble], held: Mapping[str, PackedMember]
    ):
        self._entries = tuple(entries)
        self._held = held

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        """See `Tree.walk`."""
        return iter(self._entries)

    @contextmanager
    def open(self, path: str) -> Iterator[RandomAccess]:
        """See `Tree.open`."""
        packed = self._held.get(path)
        if packed is None:
            raise Unreadable("it was not read where it lies: too large for its kind")
        yield BytesSource(packed.unpack())


@dataclass(frozen=True, slots=True)
class _SingleFile(Tree):
    """A single file in memory."""

    file: File
    data: bytes

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        yield self.file

    @contextmanager
    def open(self, path: str) -> Iterator[RandomAccess]:
        yield BytesSource(self.data)


class Parts(Protocol):
    """Bytes that are brought when they are asked for."""

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on."""


class Within:
    """A part of a wheel, of which at most `most` bytes are read: a `trees.zipdirectory.Bytes`."""

    def __init__(self, source: Parts, start: int, size: int, most: int) -> None:
        self._source = source
        self._start = start
        self._most = most
        self.size = size
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `Bytes.read`. Raises `Unreadable` where that is more than may be read."""
        length = max(0, min(length, self.size - offset))
        self.bytes_read += length
        if self.bytes_read > self._most:
            raise Unreadable("its list of files is longer than may be read")
        return self._source.read(self._start + offset, length)


def facts_of_bytes(path: str, data: bytes) -> FileFacts:
    """What the file at `path` is, all of whose bytes are `data`."""
    file = File(path, len(data))
    tree = _SingleFile(file, data)
    return open_container(tree, file, inspect(tree, file))
