"""The facts of a layer from its table of contents and a few ranges of its bytes.

Files that are read for what they say are read whole, small ones too; of a large binary the
beginning and the tables of the loader (`binaries.head`), of what is harmless by its name nothing.
What was not read is in the facts, as for a wheel on an index: `Elf.read`, and `FileFacts.closed`.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from buildmatrix.binaries.head import HeadReader, Malformed
from buildmatrix.binaries.reader import read_elf
from buildmatrix.elf.source import BytesSource
from buildmatrix.inventory.file_facts import ELF_MAGIC, FileFacts, look, with_contents
from buildmatrix.inventory.mattering import LEAST, may_hide, may_matter
from buildmatrix.inventory.own_files import is_read_itself
from buildmatrix.layers.model import KINDS, EntryFacts, KeptFiles, LayerFacts, packed_entries
from buildmatrix.layers.table import (
    LARGEST_PART,
    LayerTable,
    PackedRange,
    ReadRange,
    TableFile,
    unpacked,
)
from buildmatrix.trees.base import RandomAccess, Unreadable, defect, reason
from buildmatrix.trees.containers import FARTHEST

#: Bytes between two parts that are fetched with them: a request costs more. Of an image of 4 GB, a
#: gap of 64 KiB fetches 19 MB that nobody asked for, in 700 requests; this one 3 MB, in 1,250.
_GAP = 8 << 10
#: Bytes of one request.
_LARGEST_RANGE = 8 << 20
#: Bytes of a file that is read whole.
_SMALL = 256 << 10
#: Bytes of the tables of one large binary that are read.
_MOST_LENT = 12 << 20
#: Ranges that are held at once.
_HELD = 4
#: The part of a layer that is read by a table at most; of a small one, all is read as well.
_WORTH_IT = 2
_NOTHING = FileFacts()


def read_by_table(table: LayerTable, size: int, blob: str, read: ReadRange) -> LayerFacts:
    """The facts of the layer `blob` of `size` bytes.

    Raises `Unreadable` where a part is not what the table says, and what `read` raises.
    """
    reader = _RangeReader(table, size, read)
    entries = reader.entries()
    kept = reader.kept
    kept.finish()
    return LayerFacts(
        digest="",
        blob=blob,
        size=size,
        entries=tuple(packed_entries(entries)),
        count=len(entries),
        kept=tuple(kept.blocks),
        table=table.digest,
    )


class _RangeReader:
    def __init__(self, table: LayerTable, size: int, read: ReadRange) -> None:
        self._table = table
        self._size = size
        self._fetch = read
        self._left = size
        self.kept = KeptFiles()

    def _read(self, offset: int, length: int) -> bytes:
        """A part of the layer. Many files can name the same parts: no more is read than it has."""
        self._left -= max(0, length)
        if self._left < 0:
            raise Unreadable("more would be read by its table of contents than it has")
        return self._fetch(offset, length)

    def entries(self) -> list[EntryFacts]:
        """The entries, in the order of the table; the layer is read from its start to its end."""
        files = self._table.files
        facts: dict[int, EntryFacts] = {}
        wanted = {
            index: parts for index, file in enumerate(files) if (parts := self._first_parts(file))
        }
        for index, head in self._fetched(wanted):
            facts[index] = self._looked_at(files[index], head)
        return [facts.get(index) or self._entry(file) for index, file in enumerate(files)]

    def _entry(self, file: TableFile) -> EntryFacts:
        return EntryFacts(
            KINDS.index(file.kind),
            os.fsencode(file.name),
            os.fsencode(file.target),
            size=file.size if file.kind == "file" else None,
            sha256=file.sha256,
        )

    def _first_parts(self, file: TableFile) -> Sequence[PackedRange]:
        """What is read of a file in any case."""
        if file.kind != "file" or not file.parts:
            return ()
        if is_read_itself(file.name, file.size):
            return file.parts
        matters = may_matter(file.name, file.size)
        if not matters and not (file.size >= LEAST and may_hide(file.name, file.size)):
            return ()
        if matters and file.size <= _SMALL:
            return file.parts
        # Images of file systems say far behind their first byte what they are.
        return [part for part in file.parts if part.start < FARTHEST]

    def _fetched(self, wanted: dict[int, Sequence[PackedRange]]) -> Iterator[tuple[int, bytes]]:
        """Each file with the bytes of its wanted parts, by the order in the layer."""
        order = sorted(wanted, key=lambda index: wanted[index][0].offset)
        window = _Window(self._read, [part for index in order for part in wanted[index]])
        if window.size > self._size // _WORTH_IT:
            raise Unreadable("most of it would be read by its table of contents")
        for index in order:
            pieces = [
                unpacked(part, window.bytes_of(part), is_zstd=self._table.is_zstd)
                for part in wanted[index]
            ]
            yield index, b"".join(pieces)

    def _looked_at(self, file: TableFile, head: bytes) -> EntryFacts:
        entry = self._entry(file)
        place = None
        if len(head) == file.size:
            if file.sha256 and hashlib.sha256(head).digest() != file.sha256:
                raise Unreadable(f"{file.name!r} has another digest than its table says")
            if is_read_itself(file.name, file.size) and not self.kept.is_full:
                place = self.kept.add(file.name, head)
            facts = _whole(BytesSource(head), file)
        elif head.startswith(ELF_MAGIC):
            facts = self._elf(file, head)
        elif _whole(_Beginning(head), file) == _NOTHING:
            facts = _NOTHING
        else:
            facts = FileFacts(closed="bytes")
        return msgspec.structs.replace(
            entry, facts=None if facts == _NOTHING else facts, place=place
        )

    def _elf(self, file: TableFile, head: bytes) -> FileFacts:
        """What the tables of a large binary say, and its beginning of device code and names."""
        parts = _Parts(self._read, file, head, is_zstd=self._table.is_zstd)
        try:
            tables = read_elf(parts, file.size, deep=False)
            reader = HeadReader(BytesSource(head), file.size)
            reader.read_to(len(head))
            head_facts = reader.head()
        except Malformed as error:
            return FileFacts(unread=error.reason)
        except _TooMuch:
            return FileFacts(closed="bytes")
        if tables is None or head_facts is None:
            return _NOTHING
        elf = replace(
            head_facts.elf if not tables.dynamic_read else tables,
            device_code=head_facts.elf.device_code,
            literals=head_facts.elf.literals,
            marks=head_facts.elf.marks,
            read=head_facts.elf.read,
            unread_data=head_facts.elf.unread_data,
        )
        return FileFacts(elf=elf)


class _TooMuch(Exception):
    """The tables of a binary lie in more parts than are read of it."""


class _Parts:
    """A file by its parts, each of which is fetched once it is needed; the first is there."""

    def __init__(self, read: ReadRange, file: TableFile, head: bytes, *, is_zstd: bool) -> None:
        self._read = read
        self._file = file
        self._starts = [part.start for part in file.parts]
        self._is_zstd = is_zstd
        self._held = {0: head if len(self._starts) == 1 else head[: self._starts[1]]}
        self._left = _MOST_LENT

    def read(self, offset: int, length: int) -> bytes:
        """See `ByteSource.read`. Raises `_TooMuch`."""
        end = min(offset + length, self._file.size)
        if not 0 <= offset < end:
            return b""
        first = bisect_right(self._starts, offset) - 1
        last = bisect_right(self._starts, end - 1) - 1
        wanted = range(first, last + 1)
        self._hold([index for index in wanted if index not in self._held])
        data = b"".join(self._held[index] for index in wanted)
        return data[offset - self._starts[first] : end - self._starts[first]]

    def _hold(self, missing: Sequence[int]) -> None:
        """Fetch these parts, neighbors at once."""
        parts = [self._file.parts[index] for index in missing]
        for part in parts:
            self._left -= part.size
            if self._left < 0 or part.end - part.offset > LARGEST_PART:
                raise _TooMuch
        window = _Window(self._read, parts)
        for index, part in zip(missing, parts, strict=True):
            packed = window.bytes_of(part)
            self._held[index] = unpacked(part, packed, is_zstd=self._is_zstd)


class _Window:
    """Ranges of the layer that hold the parts that are asked for, in their order."""

    def __init__(self, read: ReadRange, parts: Sequence[PackedRange]) -> None:
        self._read = read
        self._ranges: list[tuple[int, int]] = []
        for part in sorted(parts, key=lambda part: part.offset):
            if part.is_zeros:
                continue
            if part.end - part.offset > LARGEST_PART:
                raise Unreadable("its table of contents has parts too large to be read alone")
            start, end = self._ranges[-1] if self._ranges else (0, -_GAP - 1)
            if part.offset - end <= _GAP and part.end - start <= _LARGEST_RANGE:
                self._ranges[-1] = start, max(end, part.end)
            else:
                self._ranges.append((part.offset, part.end))
        self._starts = [start for start, _ in self._ranges]
        #: Bytes that are fetched for all parts.
        self.size = sum(end - start for start, end in self._ranges)
        self._held: OrderedDict[int, bytes] = OrderedDict()

    def bytes_of(self, part: PackedRange) -> bytes:
        """The packed bytes of a part."""
        if part.is_zeros:
            return b""
        index = bisect_right(self._starts, part.offset) - 1
        start, end = self._ranges[index]
        data = self._held.get(index)
        if data is None:
            data = self._held[index] = self._read(start, end - start)
            if len(self._held) > _HELD:
                self._held.popitem(last=False)
        return data[part.offset - start : part.end - start]


class _Beginning:
    """The first bytes of a file."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `RandomAccess.read`."""
        data = self._data[offset : offset + length]
        if len(data) < length:
            raise Unreadable("only its beginning was read")
        return data


def _whole(source: RandomAccess, file: TableFile) -> FileFacts:
    if file.size < len(ELF_MAGIC):
        return _NOTHING
    try:
        facts = look(source, file.name, file.size)
        if facts.contents is not None and (format := facts.contents.waiting) is not None:
            contents = with_contents(facts, source, file.name, file.size).contents
            if contents is not None:
                facts = replace(facts, contents=replace(contents, waiting=format, is_ahead=True))
    except OSError as error:
        facts = FileFacts(unread=reason(error))
    except Exception as error:
        facts = FileFacts(unread=defect(error))
    return replace(facts, bytes_read=0)
