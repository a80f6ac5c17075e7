"""What the end of an ELF file adds to its beginning: the table of sections.

For files that are read from their start on and not to their end, where the end could be had without
what lies between. Segments, which stand in the first page, say what is loaded; sections say what it
is: device code has some of its own, and there is none in tables for unwinding and linking.

Single bytes of the end may be unknown. Of those it is known which are copies of the same one. Some
can only be zero, numbers that would point behind the file otherwise; and most names of sections are
those that every linker writes.

Nobody has seen that the bytes of the end are the right ones: they were read from the middle of a
deflated stream. So a table counts only where it agrees with the program headers, which are sure: on
where the dynamic section lies, the header of unwinding, and everything that is loaded, with no two
sections in one place. Then it may take away from the data that those tell, never add to it; and
what no section claims, or one whose name is unknown, stays data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from buildmatrix.elf import layout as abi
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
from buildmatrix.elf.model import Elf, Section
from buildmatrix.elf.reader import sections_told
from buildmatrix.elf.regions import DEVICE_SECTIONS, SKIPPED, device_regions, host_regions
from buildmatrix.elf.source import BytesSource, CachedSource
from buildmatrix.elf.telling import plan_of

#: A code from here on is no byte, but one that is not known: the same code is the same byte.
UNKNOWN = 256
#: Lowest byte of the types of sections that GNU's tools have (0x6ffffff5 and more).
_GNU_TYPES = 0xF0
#: Sections of a file whose end was pieced together; real libraries have up to a hundred.
MOST_SECTIONS = 1 << 10
#: Letters of a name that have to be known before the others are filled in.
LETTERS = 3

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
    .hipFatBinSegment
"""
_NAMES = tuple(f"{name}\0".encode() for name in _USUAL.split())


class End(Protocol):
    """The last bytes of a file, some of them unknown."""

    def __len__(self) -> int:
        """How many."""

    def codes(self, start: int, stop: int) -> list[int]:
        """The bytes between two of them: values below `UNKNOWN`, or what stands in for one."""


@dataclass(frozen=True, slots=True)
class Sections:
    """What the end of a file tells."""

    #: Those with a name; none where some linker put the names before large tables.
    named: tuple[Section, ...]
    #: Where data of the host and device code begin and end.
    data: tuple[tuple[int, int], ...]


def with_sections(elf: Elf, sections: Sections) -> Elf:
    """`elf`, which was read in part, with what the end of its file tells."""
    behind = sum(max(0, end - max(start, elf.read or 0)) for start, end in sections.data)
    unread_data = min(behind, elf.unread_data)
    return replace(elf, sections=sections.named or elf.sections, unread_data=unread_data)


def read_end(page: bytes, end: End, size: int) -> Sections | None:
    """What the `end` of a file of `size` bytes tells, whose beginning is `page`.

    None where it does not tell where all sections are.
    """
    try:
        headers = read_headers(CachedSource(BytesSource(page), len(page)))
    except Malformed:
        return None
    if headers is None or not 0 < headers.sections_at < size or len(end) > size:
        return None
    row = headers.layout.section.size
    start = headers.sections_at - (size - len(end))
    *_, count, names_index = headers.layout.header.unpack_from(page, 16)
    if start < 0 or not 0 < names_index < count <= MOST_SECTIONS:
        return None
    codes = end.codes(start, start + count * row)
    if len(codes) < count * row:
        return None
    # What unknown bytes turn out to be.
    known: dict[int, int] = {}
    rows = [_fields(codes[at : at + row], headers.layout) for at in range(0, len(codes), row)]
    for name, kind, flags, offset, length in rows:
        # No name is 64 KiB away, and no section a terabyte. Types with a low number are small, or
        # those of one machine, which only differ in the last byte.
        widths = ((name, 2), (kind, 1 if kind[0] < _GNU_TYPES else 4), (flags, 4))
        for field, width in (*widths, (offset, 5), (length, 5)):
            known.update((code, 0) for code in field[width:] if code >= UNKNOWN)
    sections = _sections(rows, names_index, end, size, known)
    if sections is None:
        return None
    headers = replace(headers, sections=sections)
    data = [
        *device_regions(headers, size),
        *(one for one in host_regions(headers, Dynamic(), size) if not one.executable),
    ]
    return Sections(sections_told(headers), tuple((one.offset, one.end) for one in data))


_Field = Sequence[int]


def _fields(row: _Field, layout: Layout) -> tuple[_Field, ...]:
    """Codes of the name, type, flags, offset and size of one section, the lowest byte first."""
    ends = ((0, 4), (4, 8), (8, 16), (24, 32), (32, 40))
    if layout.bits == 32:
        ends = ((0, 4), (4, 8), (8, 12), (16, 20), (20, 24))
    step = 1 if layout.little_endian else -1
    return tuple(row[start:stop][::step] for start, stop in ends)


def _number(field: _Field, known: Mapping[int, int]) -> int | None:
    """The number in a field; None where it is not known."""
    codes = [known.get(code, code) for code in field]
    if any(code >= UNKNOWN for code in codes):
        return None
    return int.from_bytes(bytes(codes), "little")


def _sections(
    rows: Sequence[Sequence[_Field]], names_index: int, end: End, size: int, known: dict[int, int]
) -> tuple[SectionHeader, ...] | None:
    """All sections; None where one of them may be anywhere."""
    told = []
    for row in rows:
        numbers = [_number(field, known) for field in row]
        if None in numbers:
            return None
        told.append([number or 0 for number in numbers])
    *_, names_at, names_size = told[names_index]
    start = names_at - (size - len(end))
    names = end.codes(start, start + min(names_size, MOST_NAME_BYTES)) if start >= 0 else []
    named = [""] * len(told)
    for _ in range(2 if names else 0):  # letters of one name are those of others
        named = [_name(names[at : at + LONGEST_NAME], known) for at, *_ in told]
    return tuple(
        SectionHeader(name, kind, flags, offset, length, 0)
        for name, (_, kind, flags, offset, length) in zip(named, told, strict=True)
    )


def _name(codes: _Field, known: dict[int, int]) -> str:
    """The name that begins here, with a question mark for each letter that is not known."""
    letters = [known.get(code, code) for code in codes]
    fitting = [name for name in _NAMES if _fits(name, letters)]
    if len(fitting) == 1:
        pairs = zip(codes, fitting[0], strict=False)
        known.update((code, letter) for code, letter in pairs if code >= UNKNOWN)
        return text(fitting[0][:-1])
    stop = letters.index(0) if 0 in letters else len(letters)
    return text(bytes(one if one < UNKNOWN else ord("?") for one in letters[:stop]))


def _fits(name: bytes, letters: _Field) -> bool:
    """Whether the letters can be that name, and enough of them are known to tell."""
    if len(name) > len(letters):
        return False
    pairs = list(zip(name, letters, strict=False))
    if any(here != letter and here < UNKNOWN for letter, here in pairs):
        return False
    return sum(here < UNKNOWN for _, here in pairs[:-1]) >= LETTERS
