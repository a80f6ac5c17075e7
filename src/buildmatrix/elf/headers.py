"""The header of an ELF file and the two tables that it points to: sections and segments.

Counts and offsets come from the file and may lie. What cannot be used is in `unread`, one
sentence each, and the rest is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from buildmatrix.elf import layout as abi
from buildmatrix.elf.layout import Layout, layout
from buildmatrix.elf.source import CachedSource

#: More sections than any real object has; 8 MiB of table. Objects built with one section per
#: function reach a few ten thousand.
MOST_SECTIONS = 1 << 17
#: Segments are few; core files have one per mapping.
MOST_SEGMENTS = 1 << 16
#: Section names in all, in bytes.
MOST_NAME_BYTES = 8 << 20
LONGEST_NAME = 4096


class Malformed(Exception):
    """The file says that it is ELF, but its header cannot be used; `reason` is one sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SectionHeader(NamedTuple):
    """One entry of the section header table, without the fields that nothing here needs.

    Some files have a hundred thousand: a tuple is made in a third of the time of a dataclass.
    """

    name: str
    type: int
    flags: int
    offset: int
    size: int
    #: Index of the section that this one refers to: for SHT_DYNAMIC and symbols their strings.
    link: int

    @property
    def on_disk(self) -> int:
        """Bytes that the section takes up in the file."""
        return 0 if self.type == abi.SHT_NOBITS else self.size


@dataclass(frozen=True, slots=True)
class Segment:
    """One program header; `size` is the size in the file, in bytes, and `memory` the one there."""

    type: int
    flags: int
    offset: int
    address: int
    size: int
    align: int
    memory: int


@dataclass(frozen=True, slots=True)
class Headers:
    """The header, the sections and the segments of one file."""

    layout: Layout
    type: int
    machine: int
    #: e_flags, whose meaning belongs to the machine.
    flags: int
    #: EI_OSABI: 0 for System V, 3 for GNU, and numbers of their own for device code.
    os_abi: int
    #: EI_ABIVERSION, which says how `flags` are to be read in device code.
    abi_version: int
    sections: tuple[SectionHeader, ...] = ()
    segments: tuple[Segment, ...] = ()
    #: Where the section headers begin; 0 for nowhere.
    sections_at: int = 0
    #: What could not be read; every reader of the file adds to it.
    unread: list[str] = field(default_factory=list)

    def file_offset(self, address: int) -> int | None:
        """Where the byte that is loaded at `address` lies in the file; None for nowhere."""
        for segment in self.segments:
            if segment.type == abi.PT_LOAD and 0 <= address - segment.address < segment.size:
                return address - segment.address + segment.offset
        return None


def text(raw: bytes) -> str:
    r"""A string of the file, printable whatever it holds: bytes that are no UTF-8 become `\xNN`."""
    return raw.decode("utf-8", "backslashreplace")


def read_headers(source: CachedSource) -> Headers | None:
    """Header, sections and segments; None when the file is no ELF.

    Raises:
        Malformed: the header is cut short, or its class or byte order means nothing.
    """
    start = source.read(0, 64)
    if not start.startswith(abi.MAGIC):
        return None
    if len(start) < 16:
        raise Malformed("the file ends inside the ELF identification")
    bits = {1: 32, 2: 64}.get(start[4])
    if bits is None:
        raise Malformed(f"the ELF class is {start[4]}, neither 1 (32-bit) nor 2 (64-bit)")
    if start[5] not in (1, 2):
        raise Malformed(f"the ELF data encoding is {start[5]}, neither 1 (little) nor 2 (big)")
    fields = layout(bits, start[5] == 1)
    if len(start) < 16 + fields.header.size:
        raise Malformed("the file ends inside the ELF header")
    (
        kind, machine, _, _, segments_at, sections_at, flags, _,
        segment_size, segment_count, section_size, section_count, names_index,
    ) = fields.header.unpack_from(start, 16)  # fmt: skip

    unread: list[str] = []
    entries: list[tuple[int, ...]] = []
    if sections_at:
        first = source.read(sections_at, fields.section.size)
        if section_size != fields.section.size or len(first) < fields.section.size:
            unread.append("the section header table lies outside the file or has a strange format")
        else:
            # What does not fit in the header's 16 bits stands in section 0 (gABI, chapter 4).
            zero = fields.section.unpack(first)
            if section_count == 0:
                section_count = zero[5]
            if names_index == abi.SHN_XINDEX:
                names_index = zero[6]
            if segment_count == abi.PN_XNUM:
                segment_count = zero[7]
            entries = _table(
                source, fields.section, sections_at, section_count, MOST_SECTIONS, "section", unread
            )
    segments: tuple[Segment, ...] = ()
    if segments_at and segment_count:
        if segment_size != fields.segment.size:
            unread.append(f"program headers are {segment_size} bytes each, which no ELF has")
        else:
            rows = _table(
                source, fields.segment, segments_at, segment_count, MOST_SEGMENTS, "program", unread
            )
            segments = tuple(_segment(row, bits) for row in rows)
    return Headers(
        layout=fields,
        type=kind,
        machine=machine,
        flags=flags,
        os_abi=start[7],
        abi_version=start[8],
        sections=tuple(_named(source, entries, names_index, unread)),
        segments=segments,
        sections_at=sections_at,
        unread=unread,
    )


def _table(
    source: CachedSource,
    row: Struct,
    offset: int,
    count: int,
    most: int,
    name: str,
    unread: list[str],
) -> list[tuple[int, ...]]:
    """The rows of a header table that exist, at most `most`."""
    data = source.read(offset, min(count, most) * row.size)
    rows = list(row.iter_unpack(data[: len(data) // row.size * row.size]))
    if len(rows) < count:
        unread.append(f"only {len(rows)} of {count} {name} headers were read")
    return rows


def _segment(row: tuple[int, ...], bits: int) -> Segment:
    if bits == 64:
        kind, flags, offset, address, _, size, memory, align = row
    else:
        kind, offset, address, _, size, memory, flags, align = row
    return Segment(kind, flags, offset, address, size, align, memory)


def _named(
    source: CachedSource, rows: list[tuple[int, ...]], names_index: int, unread: list[str]
) -> Iterator[SectionHeader]:
    """The sections with their names from the string table; section 0 keeps its place."""
    names = b""
    if 0 < names_index < len(rows):
        _, _, _, _, offset, size, *_ = rows[names_index]
        names = source.read(offset, min(size, MOST_NAME_BYTES))
        if len(names) < size:
            unread.append("the names of some sections lie outside the file or are too many")
    elif rows and names_index:
        unread.append("the sections have no names: their string table does not exist")
    budget = MOST_NAME_BYTES
    nameless = 0
    for name_at, kind, flags, _, offset, size, link, *_ in rows:
        end = names.find(b"\0", name_at, name_at + min(LONGEST_NAME, budget) + 1)
        name = names[name_at:end] if end >= 0 else b""
        nameless += end < 0 and bool(names)
        budget -= len(name)
        yield SectionHeader(text(name), kind, flags, offset, size, link)
    if nameless:
        unread.append(f"the names of {nameless} sections lie outside their string table")
