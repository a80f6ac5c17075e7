"""The list of files of a ZIP archive that is a member of a wheel, without what lies before it."""

from __future__ import annotations

from buildmatrix.index.amounts import nested_ends
from buildmatrix.index.ending import inflate_end
from buildmatrix.index.members import Within
from buildmatrix.index.model import Member
from buildmatrix.index.parts import WheelParts
from buildmatrix.trees.base import Unreadable
from buildmatrix.trees.zipdirectory import DEFLATED, STORED, TAIL, ZipEntry, read_directory

#: Bytes of the list of files of an archive that is stored.
LARGEST_LISTING = 2 << 20
#: What an end inflates to at most: a directory of `zipdirectory.LARGEST_DIRECTORY`, and some more.
MOST = 24 << 20


def nested_directory(parts: WheelParts, member: Member) -> tuple[ZipEntry, ...] | None:
    """The list of files of the ZIP archive `member`; None where it is out of reach or too large."""
    entry, start = parts.tree.place(member.path)
    if entry.method == STORED:
        return _stored(parts, start, entry.size)
    if entry.method != DEFLATED:
        return None
    read = 0
    for size in nested_ends(entry.compressed):
        if not parts.affords(size - read):
            return None
        read = size
        files = _in_end(parts.source.read(start + entry.compressed - size, size), entry.size)
        if files is not None:
            return files
    return None


def _stored(parts: WheelParts, start: int, size: int) -> tuple[ZipEntry, ...] | None:
    if not parts.affords(TAIL):
        return None
    source = Within(parts.source, start, size, LARGEST_LISTING)
    try:
        return read_directory(source)
    except Unreadable:
        return None
    finally:
        parts.spent += max(0, source.bytes_read - TAIL)


def _in_end(data: bytes, size: int) -> tuple[ZipEntry, ...] | None:
    """The list of files that `data`, the end of a member of `size` bytes, holds whole.

    Bytes that deflate took from before it differ in each copy: a list that is the same in all has
    none of them.
    """
    end = inflate_end(data, MOST, MOST)
    if end is None:
        return None
    directories = []
    for copy in end.copies:
        try:
            directories.append(read_directory(_Last(copy, size)))
        except Unreadable:
            return None
    return directories[0] if all(directory == directories[0] for directory in directories) else None


class _Last:
    """The last bytes of a file: a `trees.zipdirectory.Bytes`."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data = data
        self._start = size - len(data)
        self.size = size

    def read(self, offset: int, length: int) -> bytes:
        """See `Bytes.read`. Raises `Unreadable` for what lies before."""
        if offset < self._start:
            raise Unreadable("its list of files begins before what was read")
        return self._data[offset - self._start : offset - self._start + length]
