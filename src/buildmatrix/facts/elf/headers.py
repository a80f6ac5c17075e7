"""The header of an ELF file, its sections and segments, and its dynamic section."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from buildmatrix.facts.elf import layout as abi
from buildmatrix.facts.elf.layout import CachedSource, Layout, layout

# Header, sections and segments. Counts and offsets come from the file and may lie. Unusable ones
# are in `unread`, one sentence each, and the rest is read.


#: More sections than any real object has; 8 MiB of table. Objects built with one section per
#: function reach a few ten thousand.
MOST_SECTIONS = 1 << 17
#: Segments are few; core files have one per mapping.
MOST_SEGMENTS = 1 << 16
#: Section names in all, in bytes.
MOST_NAME_BYTES = 8 << 20
LONGEST_NAME = 4096


class Malformed(Exception):
    """The file starts as ELF, but its header cannot be used; `reason` is one sentence."""

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
    #: Problems; every reader of the file adds to it.
    unread: list[str] = field(default_factory=list)

    def file_offset(self, address: int) -> int | None:
        """Return the file offset of the byte that is loaded at `address`, if there is one."""
        for segment in self.segments:
            if segment.type == abi.PT_LOAD and 0 <= address - segment.address < segment.size:
                return address - segment.address + segment.offset
        return None


def text(raw: bytes) -> str:
    r"""A string of the file, printable whatever it holds: bytes that are no UTF-8 become `\xNN`."""
    return raw.decode("utf-8", "backslashreplace")


def read_headers(source: CachedSource) -> Headers | None:
    """Header, sections and segments; None if the file is not ELF.

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
        sections=tuple(_name_sections(source, entries, names_index, unread)),
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
    """Return the rows of a header table that exist, at most `most`."""
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


def _name_sections(
    source: CachedSource, rows: list[tuple[int, ...]], names_index: int, unread: list[str]
) -> Iterator[SectionHeader]:
    """Yield the sections with their names from the string table; section 0 keeps its place."""
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


# Dynamic section (gABI chapter 5, "Dynamic Section")


#: The largest seen has some hundred entries.
MOST_ENTRIES = 1 << 16
#: One string; a RUNPATH of 20,297 characters is real (tensorflow).
LONGEST_STRING = 1 << 20
#: All strings of one file together.
MOST_STRING_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Dynamic:
    """Entries of the dynamic section; see `Elf` for the meaning of the fields."""

    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    flags_1: int = 0
    #: File offset and size of the dynamic string table; size 0 when there is none.
    strings_at: int = 0
    strings_size: int = 0
    #: Every tag with its value, the last one where a tag occurs twice.
    tags: Mapping[int, int] = field(default_factory=dict)


def read_dynamic(source: CachedSource, headers: Headers) -> Dynamic:
    """Read the entries that the loader acts on; problems go to `headers.unread`."""
    place = _place(headers)
    if place is None:
        return Dynamic()
    offset, size, linked = place
    entries = _entries(source, headers, offset, size)
    values = dict(entries)  # the loader takes the last of equal tags, too
    naming_tags = (abi.DT_NEEDED, abi.DT_SONAME, abi.DT_RPATH, abi.DT_RUNPATH)
    strings_at = headers.file_offset(values.get(abi.DT_STRTAB, -1))
    strings_size = values.get(abi.DT_STRSZ, 0)
    if strings_at is None and linked is not None:
        strings_at, strings_size = linked
    if strings_at is None:
        if any(tag in values for tag in naming_tags):
            headers.unread.append("the dynamic string table lies outside the file")
        return Dynamic(flags_1=values.get(abi.DT_FLAGS_1, 0), tags=values)

    strings = Strings(source, strings_at, strings_size)
    dynamic = Dynamic(
        soname=strings.at(values.get(abi.DT_SONAME)),
        needed=tuple(
            name
            for tag, value in entries
            if tag == abi.DT_NEEDED and (name := strings.at(value)) is not None
        ),
        rpath=_folders(strings.at(values.get(abi.DT_RPATH))),
        runpath=_folders(strings.at(values.get(abi.DT_RUNPATH))),
        flags_1=values.get(abi.DT_FLAGS_1, 0),
        strings_at=strings_at,
        strings_size=strings_size,
        tags=values,
    )
    if strings.missing:
        headers.unread.append(
            f"{strings.missing} strings of the dynamic section lie outside its string table "
            "or are too long"
        )
    return dynamic


def _place(headers: Headers) -> tuple[int, int, tuple[int, int] | None] | None:
    """Offset and size of the dynamic section, and of the string table that its header links to.

    The program header counts, as it does for the loader. It lies in files of split debug
    information, whose sections then have no bytes.
    """
    sections = headers.sections
    section = next((s for s in sections if s.type == abi.SHT_DYNAMIC), None)
    if section is None and any(s.name == ".dynamic" for s in sections):
        return None
    linked = None
    if section is not None and section.link < len(sections):
        strings = sections[section.link]
        if strings.type == abi.SHT_STRTAB:
            linked = (strings.offset, strings.size)
    for segment in headers.segments:
        if segment.type == abi.PT_DYNAMIC:
            return segment.offset, segment.size, linked
    return (section.offset, section.size, linked) if section is not None else None


def _entries(
    source: CachedSource, headers: Headers, offset: int, size: int
) -> list[tuple[int, int]]:
    row = headers.layout.dynamic
    most = min(size, MOST_ENTRIES * row.size)
    data = source.read(offset, most)
    entries: list[tuple[int, int]] = []
    for tag, value in row.iter_unpack(data[: len(data) // row.size * row.size]):
        if tag == abi.DT_NULL:
            return entries
        entries.append((tag, value))
    if len(data) < size:
        headers.unread.append("the dynamic section lies outside the file or never ends")
    return entries


class Strings:
    """Strings of one table, bounded in length and in sum."""

    def __init__(self, source: CachedSource, offset: int, size: int) -> None:
        self._source = source
        self._offset = offset
        self._size = size
        self._budget = MOST_STRING_BYTES
        #: Strings that could not be read.
        self.missing = 0

    def at(self, index: int | None) -> str | None:
        """The string that begins at `index`; None for None, and for what cannot be read."""
        if index is None:
            return None
        most = min(self._size - index, LONGEST_STRING, self._budget)
        length = 256
        raw = b""
        while most > 0:
            length = min(length, most)
            raw = self._source.read(self._offset + index, length)
            end = raw.find(b"\0")
            if end >= 0:
                self._budget -= end
                return text(raw[:end])
            if len(raw) < length or length == most:
                break
            length *= 8
        # Looking for an end that does not come costs as much as a long string.
        self._budget -= len(raw)
        self.missing += 1
        return None


def _folders(value: str | None) -> tuple[str, ...]:
    """The folders of a search path; an empty one between colons is the working directory."""
    return tuple(value.split(":")) if value else ()
