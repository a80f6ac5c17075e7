"""ELF files read as a stream: from their first bytes, or without their middle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from buildmatrix.facts.binaries import codeobject
from buildmatrix.facts.binaries.head_facts import (
    Head,
    Prefix,
    ReadingPlan,
    collect_head,
    plan_reading,
)
from buildmatrix.facts.binaries.hostdata import StreamSearch
from buildmatrix.facts.binaries.reader import list_named_sections
from buildmatrix.facts.elf import layout as abi
from buildmatrix.facts.elf.headers import (
    LONGEST_NAME,
    MOST_NAME_BYTES,
    Dynamic,
    Headers,
    Malformed,
    SectionHeader,
    read_headers,
    text,
)
from buildmatrix.facts.elf.layout import CachedSource, Layout
from buildmatrix.facts.elf.model import Elf, Section
from buildmatrix.facts.elf.search import CHUNK, Region, device_regions, host_regions
from buildmatrix.facts.trees.archive import BytesSource
from buildmatrix.facts.trees.base import ByteSource

__all__ = ["Head", "HeadReader", "Malformed"]


# First bytes.
#
# For files read from their start and not to their end: wheel members on an index, as deflate has no
# entry points in the middle. Linkers put the string table of the dynamic section first and the
# section itself near the end; patchelf moves the table behind everything. The program headers, in
# the first page, locate both.
#
# All facts here are facts that the full reader (`facts.binaries.reader`) would report too, and no
# possibly incomplete list counts as complete: `Elf.read` records how far the file was read. With
# all bytes, use the full reader.
#
# Without section headers, device code is found by magic numbers in loaded segments, and a name
# counts as a literal unless it is in the string table of the dynamic section, which the names of
# the C runtime identify.


#: Bytes that the headers are read from, before the rest is searched.
FIRST_PAGES = 64 << 10


class HeadReader:
    """Reads a file of `size` bytes from its start; `head` ends the reading and returns the facts.

    `source` must return the same bytes when asked again. Time and memory are bounded for any input.
    """

    def __init__(self, source: ByteSource, size: int) -> None:
        self._size = size
        self._prefix = Prefix(source)
        self._plan: ReadingPlan | None = None
        self._search: StreamSearch | None = None
        #: Offset up to which the bytes were searched.
        self._searched = 0

    @property
    def offset(self) -> int:
        """Number of bytes read."""
        return self._prefix.end

    @property
    def device_code_seen(self) -> int | None:
        """Bytes of device code read; None until a container was read to its end."""
        if self._search is None or not self._search.complete:
            return None
        return self._search.device_code

    def read_to(self, end: int) -> None:
        """Read on, up to the byte `end`. Raises Malformed, and what the source raises."""
        self._prefix.end = min(end, self._size)
        if self._search is not None or self.offset >= min(self._size, FIRST_PAGES):
            self._advance()

    def lend(self, start: int, data: bytes) -> None:
        """Provide bytes from `start` on that may hold tables, without reading up to them."""
        self._prefix.lent.append((start, data))

    def head(self) -> Head | None:
        """Return the facts from all bytes read; None if not an ELF file. Raises Malformed."""
        self._advance()
        if self._plan is None or self._search is None:
            return None
        self._search.finish()
        return collect_head(self._size, self._prefix, self._plan, self._search.results)

    def _advance(self) -> None:
        if self._search is None:
            headers = read_headers(CachedSource(self._prefix, self._size))
            if headers is None:
                return
            self._plan = plan_reading(headers, self._size)
            # Nothing in device code is for the host's loader.
            regions = () if headers.machine in codeobject.CODE_OBJECT_KINDS else self._plan.regions
            self._search = StreamSearch(regions, code_only=self._plan.separate)
        while data := self._prefix.read(
            self._searched, min(CHUNK, self._prefix.end - self._searched)
        ):
            self._search.feed(data)
            self._searched += len(data)


# Section table at the end of an ELF file, read from a stream that misses the middle.
#
# For files read from their start but not to their end, where the end can be fetched without the
# middle. Segments, in the first page, show what is loaded; sections show its purpose: device code
# has sections of its own, and tables for unwinding and linking contain none.
#
# Single bytes of the end may be unknown, but copies of the same unknown byte are recognized. Some
# can only be zero, since the number would point behind the file otherwise, and most section names
# are those that every linker writes.
#
# Nothing proves that the bytes of the end are right: they come from the middle of a deflate stream.
# So a table counts only if it agrees with the program headers, which are certain, on the location
# of the dynamic section, of the unwind header and of everything loaded, with no two sections in one
# place. It may then reduce the data that the headers declare, never add to it. Bytes of no section,
# or of one with an unknown name, stay data.


#: Codes from here on are unknown bytes: equal codes are equal bytes.
UNKNOWN = 256
#: Lowest byte of the section types of the GNU tools (0x6ffffff5 and above).
_GNU_TYPES = 0xF0
#: Sections of a file whose end was reconstructed; real libraries have up to a hundred.
MOST_SECTIONS = 1 << 10
#: Letters of a name that must be known before the others are filled in.
LETTERS = 3
#: Segments that are one section each: the dynamic section and the unwind header.
_ANCHORS = (abi.PT_DYNAMIC, 0x6474_E550)

#: Includes all names for device code, so that a name that could be one of them matches no other.
_USUAL_NAMES = """
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
_NAMES = tuple(f"{name}\0".encode() for name in _USUAL_NAMES.split())
#: Device-code sections unlike any other usual section in the length of the name and the flags, with
#: the kinds of code in them.
_DISTINCT_SECTIONS = {".nv_fatbin": ("sass", "ptx", "lto-ir"), ".hip_fatbin": ("amdgcn",)}
_DISTINCT_BY_LENGTH = {len(name): name for name in _DISTINCT_SECTIONS}
#: Size of a run in a segment that is used or skipped as a whole.
_RUN = 1 << 10


class BinaryEnd(Protocol):
    """The last bytes of a file, some of them unknown."""

    def __len__(self) -> int:
        """Return the number of bytes."""

    def codes(self, start: int, stop: int) -> list[int]:
        """Return the bytes from `start` to `stop`: values below `UNKNOWN`, or codes of unknowns."""

    def known_bytes(self, start: int, stop: int) -> bytes | None:
        """Return the bytes from `start` to `stop`; None if one is unknown."""


@dataclass(frozen=True, slots=True)
class EndSections:
    """Facts from the end of a file."""

    #: Sections with names; empty if the linker put the names before large tables.
    named: tuple[Section, ...]
    #: Ranges of host data and device code, in file order.
    data: tuple[tuple[int, int], ...]
    #: If the names are out of reach: sections that may be for device code by the lengths of their
    #: names, their types and flags. This alone proves nothing.
    likely: tuple[Section, ...] = ()
    #: Offset and bytes of the loader's tables: the dynamic section, and segments that patchelf
    #: moved.
    linking: tuple[tuple[int, bytes], ...] = ()
    #: Byte up to which the file must be read for its dynamic section.
    dynamic_end: int = 0
    #: True if a part of the loader's tables is at the end and not fully known.
    is_cut: bool = False


def add_end_sections(elf: Elf, sections: EndSections) -> Elf:
    """Return the partly read `elf` with the facts from the end of its file."""
    behind = sum(max(0, end - max(start, elf.read or 0)) for start, end in sections.data)
    unread_data = min(behind, elf.unread_data)
    return replace(elf, sections=sections.named or elf.sections, unread_data=unread_data)


def read_end(page: bytes, end: BinaryEnd, size: int) -> EndSections | None:
    """Read the `end` of a file of `size` bytes that begins with `page`.

    Returns None if the end does not locate all sections, or contradicts itself.
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
    fields = [_split_row(codes[at : at + row], headers.layout) for at in range(0, len(codes), row)]
    rows = _parse_rows(fields, byte_values)
    if rows is None or not _is_consistent(rows, names_index, headers, size):
        return None
    names_at, names_size = rows[names_index].offset, rows[names_index].size
    at = names_at - (size - len(end))
    names = end.codes(at, at + min(names_size, MOST_NAME_BYTES)) if at >= 0 else []
    sections = _name_sections(rows, names, byte_values)
    headers = replace(headers, sections=sections)
    plan = plan_reading(headers, size)
    linking = tuple(_read_linking_runs(plan, end, size))
    dynamic = [segment for segment in headers.segments if segment.type == abi.PT_DYNAMIC]
    moved = plan.moved or dynamic
    return EndSections(
        list_named_sections(headers),
        tuple(_find_data(headers, size)),
        () if names else tuple(_find_likely_sections(rows)),
        linking,
        max((segment.offset + segment.size for segment in dynamic), default=0),
        is_cut=sum(len(data) for _, data in linking) < sum(segment.size for segment in moved),
    )


def _find_likely_sections(rows: Sequence[_SectionRow]) -> Iterator[Section]:
    """Yield sections that may be those of `_DISTINCT_SECTIONS`, by everything but their names."""
    starts = sorted({row.name_at for row in rows})
    lengths = {start: stop - start - 1 for start, stop in pairwise(starts)}
    for row in rows:
        if (row.type, row.flags) == (abi.SHT_PROGBITS, abi.SHF_ALLOC):
            name = _DISTINCT_BY_LENGTH.get(lengths.get(row.name_at, 0))
            if name is not None:
                yield Section(name, row.offset, row.size)


def _read_linking_runs(plan: ReadingPlan, end: BinaryEnd, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield runs of known bytes from the segments that the loader links by."""
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


def begins_device_code(copies: Sequence[bytes], section: str) -> bool:
    """True if a part of a file begins device code of the kind that `section` is made for.

    `copies` are the bytes of the part with different fillings for unknown bytes. Only findings in
    all of them count.
    """
    kinds = _DISTINCT_SECTIONS[section]
    places: list[set[tuple[int, str | None]]] = []
    for copy in copies:
        search = StreamSearch([Region(0, len(copy), None, executable=False)])
        search.feed(copy)
        search.finish()
        device_codes = search.results.device_code
        places.append(
            {(code.offset, code.arch) for code in device_codes if code.arch and code.kind in kinds}
        )
    return bool(set.intersection(*places))


_Field = Sequence[int]


class _ByteValues:
    """Values found for unknown bytes."""

    def __init__(self) -> None:
        self._bytes: dict[int, int] = {}

    def get(self, code: int) -> int:
        """Return the byte; the code itself if unknown."""
        return self._bytes.get(code, code)

    def learn(self, code: int, byte: int) -> None:
        """Record the byte for a code, unless it is known."""
        if code >= UNKNOWN:
            self._bytes.setdefault(code, byte)

    def number(self, field: _Field) -> int | None:
        """Return the number in a field, lowest byte first; None if unknown."""
        codes = [self.get(code) for code in field]
        if any(code >= UNKNOWN for code in codes):
            return None
        return int.from_bytes(bytes(codes), "little")


@dataclass(frozen=True, slots=True)
class _SectionRow:
    """One section, without its name."""

    name_at: int
    type: int
    flags: int
    #: None if unknown.
    address: int | None
    offset: int
    size: int

    @property
    def end(self) -> int:
        """File offset behind its last byte."""
        return self.offset + (0 if self.type == abi.SHT_NOBITS else self.size)


def _split_row(row: _Field, layout: Layout) -> tuple[_Field, ...]:
    """Split a section into name, type, flags, address, offset and size, lowest byte first."""
    ends = ((0, 4), (4, 8), (8, 16), (16, 24), (24, 32), (32, 40))
    if layout.bits == 32:
        ends = ((0, 4), (4, 8), (8, 12), (12, 16), (16, 20), (20, 24))
    step = 1 if layout.little_endian else -1
    return tuple(row[start:stop][::step] for start, stop in ends)


def _parse_rows(
    fields: Sequence[Sequence[_Field]], byte_values: _ByteValues
) -> list[_SectionRow] | None:
    """Return all sections; None if the location of one is unknown."""
    for name, kind, flags, _, offset, size in fields:
        # No name is 64 KiB away, and no section has a terabyte. Types with a low number are small,
        # or specific to a machine and different only in the last byte.
        widths = ((name, 2), (kind, 1 if kind[0] < _GNU_TYPES else 4), (flags, 4))
        for field, width in (*widths, (offset, 5), (size, 5)):
            for code in field[width:]:
                byte_values.learn(code, 0)
    rows = []
    for name, kind, flags, address, offset, size in fields:
        known = [byte_values.number(field) for field in (name, kind, flags, offset, size)]
        numbers = [number for number in known if number is not None]
        if len(numbers) < len(known):
            return None
        name_at, type_, flag_bits, place, length = numbers
        rows.append(
            _SectionRow(name_at, type_, flag_bits, byte_values.number(address), place, length)
        )
    return rows


def _is_consistent(
    rows: Sequence[_SectionRow], names_index: int, headers: Headers, size: int
) -> bool:
    """True if this can be the section table of the file with these headers."""
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
    """True if a segment loads the section at its address."""
    return any(
        segment.type == abi.PT_LOAD
        and segment.offset <= row.offset
        and row.end <= segment.offset + segment.size
        and row.address in (None, row.offset - segment.offset + segment.address)
        for segment in headers.segments
    )


def _find_data(headers: Headers, size: int) -> Iterator[tuple[int, int]]:
    """Yield the loaded ranges that may be data: all but sections of code or tables."""
    plan = plan_reading(replace(headers, sections=()), size)
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
            yield from _subtract(region.offset, region.end, passed_over)


def _subtract(start: int, stop: int, parts: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield `start` to `stop` without `parts`, which are sorted."""
    for low, high in parts:
        if start < high and low < stop:
            if start < low:
                yield start, low
            start = high
    if start < stop:
        yield start, stop


def _name_sections(
    rows: Sequence[_SectionRow], names: Sequence[int], byte_values: _ByteValues
) -> tuple[SectionHeader, ...]:
    """Return the sections with their names, as far as known."""
    named = [""] * len(rows)
    if names:
        byte_values.learn(names[0], 0)
    for _ in range(2 if names else 0):  # names share letters: a second pass uses those of the first
        named = [
            _decode_name(names[row.name_at : row.name_at + LONGEST_NAME], byte_values)
            for row in rows
        ]
    return tuple(
        SectionHeader(name, row.type, row.flags, row.offset, row.size, 0)
        for name, row in zip(named, rows, strict=True)
    )


def _decode_name(codes: _Field, byte_values: _ByteValues) -> str:
    """Return the name that begins here, with a question mark for each unknown letter."""
    letters = [byte_values.get(code) for code in codes]
    fitting = [name for name in _NAMES if _fits(name, letters)]
    if len(fitting) == 1:
        for code, letter in zip(codes, fitting[0], strict=False):
            byte_values.learn(code, letter)
        return text(fitting[0][:-1])
    stop = letters.index(0) if 0 in letters else len(letters)
    return text(bytes(item if item < UNKNOWN else ord("?") for item in letters[:stop]))


def _fits(name: bytes, letters: _Field) -> bool:
    """True if the letters can be that name, and enough of them are known to decide."""
    if len(name) > len(letters):
        return False
    pairs = list(zip(name, letters, strict=False))
    if any(actual != letter and actual < UNKNOWN for letter, actual in pairs):
        return False
    return sum(actual < UNKNOWN for _, actual in pairs[:-1]) >= LETTERS
