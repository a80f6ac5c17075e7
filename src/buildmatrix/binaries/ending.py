"""What the end of an ELF file adds to its beginning: the table of sections.

For files that are read from their start on and not to their end, where the end could be had without
what lies between. Segments, which stand in the first page, say what is loaded; sections say what it
is: device code has some of its own, and there is none in tables for unwinding and linking.

Single bytes of the end may be unknown. Of those it is known which are copies of the same one. Some
can only be zero, numbers that would point behind the file otherwise; and most names of sections are
those that every linker writes.

Nothing proves that the bytes of the end are the right ones: they were read from the middle of a
deflated stream. So a table counts only where it agrees with the program headers, which are sure: on
where the dynamic section lies, the header of unwinding, and everything that is loaded, with no two
sections in one place. Then it may take away from the data that those declare, never add to it; and
what no section claims, or one whose name is unknown, stays data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from buildmatrix.binaries.head_facts import ReadingPlan, plan_of
from buildmatrix.binaries.model import Elf
from buildmatrix.binaries.passing import PassingSearch
from buildmatrix.binaries.reader import named_sections
from buildmatrix.elf import layout as abi
from buildmatrix.elf.dynamic import Dynamic
from buildmatrix.elf.headers import (
    LONGEST_NAME,
    MOST_NAME_BYTES,
    Headers,
    Malformed,
    SectionHeader,
    read_headers,
    text,
)
from buildmatrix.elf.layout import Layout
from buildmatrix.elf.model import Section
from buildmatrix.elf.regions import Region, device_regions, host_regions
from buildmatrix.elf.source import BytesSource, CachedSource

#: A code from here on is no byte, but one that is not known: the same code is the same byte.
UNKNOWN = 256
#: Lowest byte of the types of sections that GNU's tools have (0x6ffffff5 and more).
_GNU_TYPES = 0xF0
#: Sections of a file whose end was pieced together; real libraries have up to a hundred.
MOST_SECTIONS = 1 << 10
#: Letters of a name that have to be known before the others are filled in.
LETTERS = 3
#: Segments that are one section each: the dynamic section, and the header of unwinding.
_ANCHORS = (abi.PT_DYNAMIC, 0x6474_E550)

#: All that hold device code are among them: what could be one of those counts as nothing else.
_USUAL = """
    .symtab .strtab .shstrtab .note.gnu.build-id .note.gnu.property .note.ABI-tag .note.stapsdt
    .gnu.hash .hash .dynsym .dynstr .gnu.version .gnu.version_r .gnu.version_d .rela.dyn .rela.plt
    .relr.dyn .init .plt .plt.got .plt.sec .text .fini .rodata .eh_frame_hdr .eh_frame
    .gcc_except_table .tdata .tbss .init_array .fini_array .preinit_array .ctors .dtors .jcr
    .data.rel.ro .dynamic .got .got.plt .data .data1 .bss .tm_clone_table .relro_padding .interp
    .comment .gnu.build.attributes .annobin.notes .gnu_debuglink .gnu_debugdata .gdb_index
    .debug_aranges .debug_info .debug_abbrev .debug_line .debug_str .debug_loc .debug_ranges
    .debug_loclists .debug_rnglists .debug_line_str .debug_frame .debug_macro .debug_types
    malloc_hook protodesc_cold .nv_fatbin .nvFatBinSegment __nv_relfatbin .hip_fatbin
    .hipFatBinSegment .llvm.offloading
"""
_NAMES = tuple(f"{name}\0".encode() for name in _USUAL.split())
#: Sections for device code that no other usual section is like, in the length of its name and in
#: its flags, and the kinds of code in them.
_LONE = {".nv_fatbin": ("sass", "ptx", "lto-ir"), ".hip_fatbin": ("amdgcn",)}
_LONE_BY_LENGTH = {len(name): name for name in _LONE}
#: Bytes of a segment that are all known, or passed over.
_RUN = 1 << 10


class BinaryEnd(Protocol):
    """The last bytes of a file, some of them unknown."""

    def __len__(self) -> int:
        """How many."""

    def codes(self, start: int, stop: int) -> list[int]:
        """The bytes between two of them: values below `UNKNOWN`, or what stands in for one."""

    def known_bytes(self, start: int, stop: int) -> bytes | None:
        """The bytes between two of them; None where one is unknown."""


@dataclass(frozen=True, slots=True)
class Sections:
    """What the end of a file shows."""

    #: Those with a name; none where some linker put the names before large tables.
    named: tuple[Section, ...]
    #: Where data of the host and device code begin and end, in file order.
    data: tuple[tuple[int, int], ...]
    #: Where names are out of reach: sections that can be for device code by the lengths of their
    #: names, their types and flags. That proves nothing by itself.
    likely: tuple[Section, ...] = ()
    #: Offset and bytes of what the loader links by: the dynamic section, and what patchelf moved.
    linking: tuple[tuple[int, bytes], ...] = ()
    #: Byte up to which the file has to be read for its dynamic section.
    dynamic_end: int = 0
    #: Whether some of what the loader links by lies at the end, and not all of it is known.
    is_cut: bool = False


def with_sections(elf: Elf, sections: Sections) -> Elf:
    """`elf`, which was read in part, with what the end of its file shows."""
    behind = sum(max(0, end - max(start, elf.read or 0)) for start, end in sections.data)
    unread_data = min(behind, elf.unread_data)
    return replace(elf, sections=sections.named or elf.sections, unread_data=unread_data)


def read_end(page: bytes, end: BinaryEnd, size: int) -> Sections | None:
    """What the `end` of a file of `size` bytes shows, whose beginning is `page`.

    None where it does not show where all sections are, or shows what cannot be.
    """
    try:
        headers = read_headers(CachedSource(BytesSource(page), len(page)))
    except Malformed:
        return None
    if headers is None or not 0 < headers.sections_at < size or len(end) > size:
        return None
    row = headers.layout.section.size
    start = headers.sections_at - (size - len(end))
    *_, row_size, count, names_index = headers.layout.header.unpack_from(page, 16)
    if start < 0 or row_size != row or not 0 < names_index < count <= MOST_SECTIONS:
        return None
    codes = end.codes(start, start + count * row)
    if len(codes) < count * row:
        return None
    byte_values = _ByteValues()
    fields = [_fields(codes[at : at + row], headers.layout) for at in range(0, len(codes), row)]
    rows = _rows(fields, byte_values)
    if rows is None or not _agrees(rows, names_index, headers, size):
        return None
    names_at, names_size = rows[names_index].offset, rows[names_index].size
    at = names_at - (size - len(end))
    names = end.codes(at, at + min(names_size, MOST_NAME_BYTES)) if at >= 0 else []
    sections = _named(rows, names, byte_values)
    headers = replace(headers, sections=sections)
    plan = plan_of(headers, size)
    linking = tuple(_linking(plan, end, size))
    dynamic = [segment for segment in headers.segments if segment.type == abi.PT_DYNAMIC]
    moved = plan.moved or dynamic
    return Sections(
        named_sections(headers),
        tuple(_data(headers, size)),
        () if names else tuple(_likely(rows)),
        linking,
        max((segment.offset + segment.size for segment in dynamic), default=0),
        is_cut=sum(len(data) for _, data in linking) < sum(segment.size for segment in moved),
    )


def _likely(rows: Sequence[_SectionRow]) -> Iterator[Section]:
    """Sections that may be those of `_LONE`, judged by everything but their names."""
    starts = sorted({row.name_at for row in rows})
    lengths = {start: stop - start - 1 for start, stop in pairwise(starts)}
    for row in rows:
        if (row.type, row.flags) == (abi.SHT_PROGBITS, abi.SHF_ALLOC):
            name = _LONE_BY_LENGTH.get(lengths.get(row.name_at, 0))
            if name is not None:
                yield Section(name, row.offset, row.size)


def _linking(plan: ReadingPlan, end: BinaryEnd, size: int) -> Iterator[tuple[int, bytes]]:
    """Runs of known bytes of the segments that the loader links by."""
    first = size - len(end)
    dynamic = [item for item in plan.headers.segments if item.type == abi.PT_DYNAMIC]
    for segment in (*dynamic, *plan.moved):
        run = bytearray()
        stop = min(size, segment.offset + segment.size)
        at = begin = max(segment.offset, first)
        while at < stop:
            length = min(_RUN, stop - at)
            data = end.known_bytes(at - first, at - first + length)
            if data is not None:
                run += data
            elif run:
                yield begin, bytes(run)
                run.clear()
            at += length
            if not run:
                begin = at
        if run:
            yield begin, bytes(run)


def shows(copies: Sequence[bytes], section: str) -> bool:
    """Whether device code of the kind that `section` is made for begins in a part of a file.

    `copies` are the bytes of the part, different where they are unknown: what counts is in all.
    """
    kinds = _LONE[section]
    places: list[set[tuple[int, str | None]]] = []
    for copy in copies:
        search = PassingSearch([Region(0, len(copy), None, executable=False)])
        search.feed(copy)
        search.finish()
        device_codes = search.results.device_code
        places.append(
            {(code.offset, code.arch) for code in device_codes if code.arch and code.kind in kinds}
        )
    return bool(set.intersection(*places))


_Field = Sequence[int]


class _ByteValues:
    """What unknown bytes turned out to be."""

    def __init__(self) -> None:
        self._bytes: dict[int, int] = {}

    def of(self, code: int) -> int:
        """The byte; the code itself where that is not known."""
        return self._bytes.get(code, code)

    def learn(self, code: int, byte: int) -> None:
        """A code stands for this byte, unless it is known."""
        if code >= UNKNOWN:
            self._bytes.setdefault(code, byte)

    def number(self, field: _Field) -> int | None:
        """The number in a field, its lowest byte first; None where it is not known."""
        codes = [self.of(code) for code in field]
        if any(code >= UNKNOWN for code in codes):
            return None
        return int.from_bytes(bytes(codes), "little")


@dataclass(frozen=True, slots=True)
class _SectionRow:
    """One section, without its name."""

    name_at: int
    type: int
    flags: int
    #: None where it is not known.
    address: int | None
    offset: int
    size: int

    @property
    def end(self) -> int:
        """Offset behind its last byte in the file."""
        return self.offset + (0 if self.type == abi.SHT_NOBITS else self.size)


def _fields(row: _Field, layout: Layout) -> tuple[_Field, ...]:
    """Codes of name, type, flags, address, offset and size of a section, the lowest byte first."""
    ends = ((0, 4), (4, 8), (8, 16), (16, 24), (24, 32), (32, 40))
    if layout.bits == 32:
        ends = ((0, 4), (4, 8), (8, 12), (12, 16), (16, 20), (20, 24))
    step = 1 if layout.little_endian else -1
    return tuple(row[start:stop][::step] for start, stop in ends)


def _rows(fields: Sequence[Sequence[_Field]], byte_values: _ByteValues) -> list[_SectionRow] | None:
    """All sections; None where one of them may be anywhere."""
    for name, kind, flags, _, offset, size in fields:
        # No name is 64 KiB away, and no section a terabyte. Types with a low number are small, or
        # those of one machine, which only differ in the last byte.
        widths = ((name, 2), (kind, 1 if kind[0] < _GNU_TYPES else 4), (flags, 4))
        for field, width in (*widths, (offset, 5), (size, 5)):
            for code in field[width:]:
                byte_values.learn(code, 0)
    rows = []
    for name, kind, flags, address, offset, size in fields:
        name_at, type_, flag_bits = (
            byte_values.number(name),
            byte_values.number(kind),
            byte_values.number(flags),
        )
        place, length = byte_values.number(offset), byte_values.number(size)
        if name_at is None or type_ is None or flag_bits is None or place is None or length is None:
            return None
        rows.append(
            _SectionRow(name_at, type_, flag_bits, byte_values.number(address), place, length)
        )
    return rows


def _agrees(rows: Sequence[_SectionRow], names_index: int, headers: Headers, size: int) -> bool:
    """Whether this can be the table of the file whose header and segments those are."""
    first, names = rows[0], rows[names_index]
    if any((first.name_at, first.type, first.flags, first.offset, first.size)):
        return False
    if names.type != abi.SHT_STRTAB or any(row.name_at >= names.size for row in rows):
        return False
    on_disk = sorted((row for row in rows if row.end > row.offset), key=lambda row: row.offset)
    if any(item.end > other.offset for item, other in pairwise(on_disk)):
        return False
    if on_disk[-1].end > size:
        return False
    anchors = [segment for segment in headers.segments if segment.type in _ANCHORS and segment.size]
    places = {(row.offset, row.size) for row in on_disk}
    if not anchors or any((segment.offset, segment.size) not in places for segment in anchors):
        return False
    if not any(segment.type == abi.PT_LOAD for segment in headers.segments):
        return False
    return all(_is_loaded(row, headers) for row in on_disk if row.flags & abi.SHF_ALLOC)


def _is_loaded(row: _SectionRow, headers: Headers) -> bool:
    """Whether a segment brings the section to its address."""
    return any(
        segment.type == abi.PT_LOAD
        and segment.offset <= row.offset
        and row.end <= segment.offset + segment.size
        and row.address in (None, row.offset - segment.offset + segment.address)
        for segment in headers.segments
    )


def _data(headers: Headers, size: int) -> Iterator[tuple[int, int]]:
    """What is loaded and may be data: all but sections that are code or tables."""
    plan = plan_of(replace(headers, sections=()), size)
    counted = {
        item.offset
        for item in (
            *device_regions(headers, size),
            *(region for region in host_regions(headers, Dynamic(), size) if not region.executable),
        )
    }
    passed_over = [
        (section.offset, section.offset + section.on_disk)
        for section in sorted(headers.sections, key=lambda item: item.offset)
        if section.flags & abi.SHF_ALLOC and section.on_disk and section.offset not in counted
    ]
    for region in plan.regions:
        if not (region.executable and plan.separate):
            yield from _without(region.offset, region.end, passed_over)


def _without(start: int, stop: int, parts: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """From `start` to `stop`, less the parts, which come in order."""
    for low, high in parts:
        if start < high and low < stop:
            if start < low:
                yield start, low
            start = high
    if start < stop:
        yield start, stop


def _named(
    rows: Sequence[_SectionRow], names: Sequence[int], byte_values: _ByteValues
) -> tuple[SectionHeader, ...]:
    """The sections with their names, as far as those are known."""
    named = [""] * len(rows)
    if names:
        byte_values.learn(names[0], 0)
    for _ in range(2 if names else 0):  # letters of one name are those of others
        named = [
            _name(names[row.name_at : row.name_at + LONGEST_NAME], byte_values) for row in rows
        ]
    return tuple(
        SectionHeader(name, row.type, row.flags, row.offset, row.size, 0)
        for name, row in zip(named, rows, strict=True)
    )


def _name(codes: _Field, byte_values: _ByteValues) -> str:
    """The name that begins here, with a question mark for each letter that is not known."""
    letters = [byte_values.of(code) for code in codes]
    fitting = [name for name in _NAMES if _fits(name, letters)]
    if len(fitting) == 1:
        for code, letter in zip(codes, fitting[0], strict=False):
            byte_values.learn(code, letter)
        return text(fitting[0][:-1])
    stop = letters.index(0) if 0 in letters else len(letters)
    return text(bytes(item if item < UNKNOWN else ord("?") for item in letters[:stop]))


def _fits(name: bytes, letters: _Field) -> bool:
    """Whether the letters can be that name, and enough of them are known to decide."""
    if len(name) > len(letters):
        return False
    pairs = list(zip(name, letters, strict=False))
    if any(actual != letter and actual < UNKNOWN for letter, actual in pairs):
        return False
    return sum(actual < UNKNOWN for _, actual in pairs[:-1]) >= LETTERS
