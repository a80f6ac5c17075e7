"""Bytes of one file, from memory, another source or a static archive."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.facts.trees.archive import Slice
from buildmatrix.facts.trees.base import ByteSource

# All of `elf` reads through `ByteSource`, so the same reader serves files, members of wheels and
# range requests to an index.


class CachedSource:
    """A source in front of another one that keeps the blocks which small reads touched.

    A dozen small tables close together then cost one read. Reads of more than a few blocks go
    straight through. Offsets outside the file give short or empty reads, never an error: they come
    from files that may lie.
    """

    #: Bytes per block: one page, which the kernel reads anyway.
    BLOCK = 4096
    #: Reads over more blocks than this are not kept.
    WIDEST = 16
    #: Blocks kept, oldest dropped first: 2 MiB.
    MOST_BLOCKS = 512

    def __init__(self, source: ByteSource, size: int) -> None:
        self._source = source
        self.size = size
        self._blocks: dict[int, bytes] = {}

    def read(self, offset: int, length: int) -> bytes:
        """See `ByteSource.read`; negative or too large offsets give no bytes."""
        length = min(length, self.size - offset)
        if offset < 0 or length <= 0:
            return b""
        first = offset // self.BLOCK
        last = (offset + length - 1) // self.BLOCK
        start = offset - first * self.BLOCK
        if first == last:
            return self._block(first)[start : start + length]
        if last - first >= self.WIDEST:
            return self._source.read(offset, length)
        data = b"".join([self._block(number) for number in range(first, last + 1)])
        return data[start : start + length]

    def _block(self, number: int) -> bytes:
        block = self._blocks.get(number)
        if block is None:
            start = number * self.BLOCK
            block = self._source.read(start, min(self.BLOCK, self.size - start))
            if len(self._blocks) >= self.MOST_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            self._blocks[number] = block
        return block


class PlainSource(CachedSource):
    """A source of parts of a file: the blocks around what is read may not be there."""

    def read(self, offset: int, length: int) -> bytes:
        """See `CachedSource.read`."""
        length = min(length, self.size - offset)
        return b"" if offset < 0 or length <= 0 else self._source.read(offset, length)


class AheadSource:
    """A source in front of another one for callers that read header after header.

    A small read takes some bytes more than requested, and the next ones are served from those.
    """

    #: Bytes that a small read takes at least, and bytes of the largest small one.
    AHEAD = 256
    SMALL = 4096

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._at = 0
        self._data = b""

    def read(self, offset: int, length: int) -> bytes:
        """See `ByteSource.read`."""
        start = offset - self._at
        if start >= 0 and start + length <= len(self._data):
            return self._data[start : start + length]
        if length > self.SMALL:
            return self._source.read(offset, length)
        self._data = self._source.read(offset, max(length, self.AHEAD))
        self._at = offset
        return self._data[:length]


# Static archives: `ar` files whose members are relocatable objects.
#
# Source: ar(5), in the dialects of System V and GNU (`/12` points into a table of long names) and
# BSD (`#1/12` is followed by the name).


ARCHIVE_MAGIC = b"!<arch>\n"
THIN_ARCHIVE_MAGIC = b"!<thin>\n"

_HEADER_SIZE = 60
_END_OF_HEADER = b"`\n"
#: Members that are no objects: symbol tables and the table of long names.
_TABLES = (b"/", b"//", b"/SYM64/", b"__.SYMDEF")
#: The largest library of a vendor has some ten thousand.
MOST_MEMBERS = 1 << 16


def archive_members(source: ByteSource, size: int, unread: list[str]) -> Iterator[Slice]:
    """Yield the members in file order, none twice; problems go to `unread`."""
    if source.read(0, len(THIN_ARCHIVE_MAGIC)) == THIN_ARCHIVE_MAGIC:
        unread.append("a thin archive: its members are separate files; scan those instead")
        return
    at = len(ARCHIVE_MAGIC)
    count = 0
    while at < size:
        head = source.read(at, _HEADER_SIZE)
        digits = head[48:58].strip()
        if not head.endswith(_END_OF_HEADER) or len(head) < _HEADER_SIZE or not digits.isdigit():
            unread.append(f"the archive is damaged: there is no member at offset {at}")
            return
        start, length = at + _HEADER_SIZE, int(digits)
        if start + length > size:
            unread.append(f"the archive is cut short inside the member at offset {at}")
            return
        at = start + length + length % 2
        name = head[:16].rstrip()
        if name.startswith(b"#1/") and name[3:].isdigit():
            name_length = min(int(name[3:]), length)
            name = source.read(start, min(name_length, 16)).rstrip(b"\0")
            start, length = start + name_length, length - name_length
        if name.startswith(_TABLES[3]) or name in _TABLES:
            continue
        if count == MOST_MEMBERS:
            unread.append(f"only the first {MOST_MEMBERS} members of the archive were read")
            return
        count += 1
        yield Slice(source, start, length)
