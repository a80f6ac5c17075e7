"""Notes of an ELF file that say something about the host: ABI, build, instruction level.

Source: LSB core specification 5.0, "Symbol Versioning". The tables are lists whose entries hold the
distance to the next one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct

from buildmatrix.facts.elf import layout as abi
from buildmatrix.facts.elf.headers import Dynamic, Headers, Strings
from buildmatrix.facts.elf.layout import CachedSource, Layout
from buildmatrix.facts.elf.model import DlopenNote, VersionNeed

# Instruction levels of x86-64 (GNU properties).
#
# Source: x86-64 psABI, "Program Property"; sysdeps/x86/dl-prop.h of glibc, whose ld.so refuses an
# object that needs a level which the processor lacks. `-z x86-64-v3` of the linker, and `-mneeded`
# of the compiler, write that property. A level that is only used is no condition: the program
# checks the processor itself.


#: GNU_PROPERTY_X86_ISA_1_NEEDED and _USED: a bit per level, the lowest for the baseline.
ISA_NEEDED = 0xC000_8002
ISA_USED = 0xC001_0002

_LEVEL = re.compile(r"x86-64(?:-v([1-9][0-9]?))?")


@dataclass(frozen=True, slots=True)
class InstructionLevels:
    """The highest level of each property, `x86-64` or `x86-64-v3`; None where there is none."""

    needed: str | None = None
    used: str | None = None
    #: Whether a property goes on behind the end of its note, or has a size that it cannot have.
    is_damaged: bool = False


def read_levels(value: bytes, layout: Layout) -> InstructionLevels:
    """Return the levels in the properties of one note (NT_GNU_PROPERTY_TYPE_0).

    Properties are sorted by their numbers and padded to the size of an address.
    """
    head, padding = layout.property, layout.bits // 8
    masks: dict[int, int] = {}
    at = 0
    while at + head.size <= len(value):
        kind, size = head.unpack_from(value, at)
        at += head.size
        if at + size > len(value) or (kind in (ISA_NEEDED, ISA_USED) and size != 4):
            return InstructionLevels(_name(masks, ISA_NEEDED), is_damaged=True)
        if size == 4:
            masks.setdefault(kind, layout.number.unpack_from(value, at)[0])
        at += -(-size // padding) * padding
    return InstructionLevels(_name(masks, ISA_NEEDED), _name(masks, ISA_USED))


def _name(masks: dict[int, int], kind: int) -> str | None:
    level = masks.get(kind, 0).bit_length()
    return None if level == 0 else "x86-64" if level == 1 else f"x86-64-v{level}"


def level_number(name: str) -> int | None:
    """Return 1 for `x86-64`, 3 for `x86-64-v3`; None for any other name."""
    match = _LEVEL.fullmatch(name)
    return None if match is None else int(match[1] or 1)


# Notes (gABI chapter 5, "Note Section")


#: Bytes read of one group of notes; core files hold megabytes of others.
MOST_BYTES = 64 << 10
MOST_GROUPS = 64
#: A build id is a hash: 20 bytes by default, up to 64 with SHA-512.
LONGEST_BUILD_ID = 64
#: Libraries that the notes of one file name.
MOST_DLOPEN = 256
#: Characters of one name in a note.
_LONGEST_TEXT = 1024

_PRIORITIES = ("required", "recommended", "suggested")
_SYSTEMS = {0: "linux", 1: "hurd", 2: "solaris", 3: "freebsd"}


@dataclass(frozen=True, slots=True)
class Notes:
    """Content of the notes; see `Elf` for the meaning of the fields."""

    build_id: str | None = None
    abi_tag: str | None = None
    dlopen: tuple[DlopenNote, ...] = ()
    levels: InstructionLevels = field(default_factory=InstructionLevels)


def read_notes(source: CachedSource, headers: Headers) -> Notes:
    """Read the known notes; problems go to `headers.unread`."""
    build_id: str | None = None
    abi_tag: str | None = None
    levels: InstructionLevels | None = None
    # A note lies in a segment and in a section: what it says counts once.
    dlopen: dict[DlopenNote, None] = {}
    damaged = False
    alignment = headers.layout.bits // 8
    groups = _groups(headers)
    # Core files hold megabytes of registers and mappings in their notes.
    if headers.type != abi.ET_CORE and (
        len(groups) > MOST_GROUPS or any(size > MOST_BYTES for _, size, _ in groups)
    ):
        headers.unread.append(
            f"only the first {MOST_GROUPS} groups of notes and {MOST_BYTES} bytes of each were read"
        )
    for offset, size, align in groups[:MOST_GROUPS]:
        data = source.read(offset, min(size, MOST_BYTES))
        for name, kind, value in _notes(data, headers, 8 if align == 8 else 4):
            if name == b"GNU\0" and kind == abi.NT_GNU_BUILD_ID:
                build_id = build_id or value[:LONGEST_BUILD_ID].hex()
            elif name == b"GNU\0" and kind == abi.NT_GNU_ABI_TAG and len(value) >= 16:
                numbers = [number for (number,) in headers.layout.number.iter_unpack(value[:16])]
                system = _SYSTEMS.get(numbers[0], str(numbers[0]))
                abi_tag = f"{system} {'.'.join(map(str, numbers[1:]))}"
            elif name == b"GNU\0" and kind == abi.NT_GNU_PROPERTY_TYPE_0 and levels is None:
                # The first such note counts, as ld.so has it, where it is aligned as an address is.
                if headers.machine in (abi.EM_386, abi.EM_X86_64) and align == alignment:
                    levels = read_levels(value, headers.layout)
            elif name == b"FDO\0" and kind == abi.NT_FDO_DLOPEN:
                dlopen_notes = _dlopen(value)
                damaged |= dlopen_notes is None
                dlopen.update(dict.fromkeys(dlopen_notes or ()))
    if levels is not None and levels.is_damaged:
        headers.unread.append("a GNU property note has a property of an impossible size")
    if damaged:
        headers.unread.append("a dlopen note is not valid JSON")
    if len(dlopen) > MOST_DLOPEN:
        headers.unread.append(f"more than {MOST_DLOPEN} libraries in notes: only the first count")
    return Notes(build_id, abi_tag, tuple(dlopen)[:MOST_DLOPEN], levels or InstructionLevels())


def _groups(headers: Headers) -> list[tuple[int, int, int]]:
    """Offset, size and alignment of each run of notes, each once."""
    groups: dict[tuple[int, int], int] = {}
    for segment in headers.segments:
        if segment.type == abi.PT_NOTE:
            groups.setdefault((segment.offset, segment.size), segment.align)
    covered = [range(offset, offset + size) for offset, size in groups][:MOST_GROUPS]
    for section in headers.sections:
        # What is not loaded is the compiler's own: annobin writes 80 KB of it into each library.
        loaded = section.type == abi.SHT_NOTE and section.flags & abi.SHF_ALLOC
        if loaded and not any(section.offset in run for run in covered):
            groups.setdefault((section.offset, section.size), 4)
    return [(*place, align) for place, align in groups.items()]


def _notes(data: bytes, headers: Headers, align: int) -> Iterator[tuple[bytes, int, bytes]]:
    head = headers.layout.note
    at = 0
    while at + head.size <= len(data):
        name_size, value_size, kind = head.unpack_from(data, at)
        name_at = at + head.size
        value_at = name_at + -(-name_size // align) * align
        if align == 8:
            # The name is padded so that the value, not the name, is aligned.
            value_at = -(-(name_at + name_size) // 8) * 8
        yield data[name_at : name_at + name_size], kind, data[value_at : value_at + value_size]
        at = value_at + -(-value_size // align) * align


def _dlopen(value: bytes) -> list[DlopenNote] | None:
    """The entries of one note; None when it does not follow its specification."""
    try:
        entries = json.loads(value.rstrip(b"\0"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(entries, list):
        return None
    notes = []
    for entry in entries[: MOST_DLOPEN + 1]:
        names = entry.get("soname") if isinstance(entry, dict) else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return None
        feature, priority = entry.get("feature"), entry.get("priority")
        notes.append(
            DlopenNote(
                sonames=tuple(_printable(name) for name in names[:MOST_DLOPEN]),
                feature=_printable(feature) if isinstance(feature, str) else None,
                priority=priority if priority in _PRIORITIES else "recommended",
            )
        )
    return notes


def _printable(name: str) -> str:
    """Replace lone surrogates, which JSON can spell and no text may hold."""
    return name[:_LONGEST_TEXT].encode("utf-8", "backslashreplace").decode()


#: Versions of one file; the C library defines some fifty, a CUDA library needs a dozen.
MOST_VERSIONS = 1 << 13
#: Bytes read at once; most tables have fewer.
_STEP = 2 << 10
#: VER_FLG_WEAK.
_WEAK = 2


@dataclass(frozen=True, slots=True)
class Versions:
    """Content of DT_VERNEED and DT_VERDEF."""

    needs: tuple[VersionNeed, ...] = ()
    definitions: tuple[str, ...] = ()
    #: Number in DT_VERSYM → the library (None for the object itself) and the version.
    names: Mapping[int, tuple[str | None, str]] = field(default_factory=dict)

    @property
    def weak(self) -> Mapping[str, tuple[str, ...]]:
        """By library, the versions that the loader does not insist on."""
        return {need.library: need.weak for need in self.needs if need.weak}


def read_versions(source: CachedSource, headers: Headers, dynamic: Dynamic) -> Versions:
    """Read DT_VERNEED and DT_VERDEF; problems go to `headers.unread`."""
    tags = dynamic.tags
    if abi.DT_VERNEED not in tags and abi.DT_VERDEF not in tags:
        return Versions()
    strings = Strings(source, dynamic.strings_at, dynamic.strings_size)
    table = _VersionTables(source, headers, tags)
    names: dict[int, tuple[str | None, str]] = {}
    needs = tuple(_needs(table, strings, names))
    definitions = tuple(_definitions(table, strings, names))
    if table.problem or strings.missing:
        headers.unread.append("part of the symbol version table cannot be read")
    return Versions(needs, definitions, names)


class _VersionTables:
    """Reads the entries of both tables, as many as `MOST_VERSIONS`."""

    def __init__(self, source: CachedSource, headers: Headers, tags: Mapping[int, int]) -> None:
        self._source = source
        self._headers = headers
        self._tags = tags
        self.layout = headers.layout
        self._remaining = MOST_VERSIONS
        self._at = 0
        self._data = b""
        #: True when an entry that was read does not exist.
        self.problem = False

    def list_at(self, tag: int, number: int, row: Struct) -> Iterator[tuple[int, Sequence[int]]]:
        """Yield the entries of the list that one tag leads to, as many as another tag says."""
        if tag in self._tags:
            offset = self._headers.file_offset(self._tags[tag])
            count = self._tags.get(number, 0)
            yield from self.entries(row, -1 if offset is None else offset, count)

    def entries(self, row: Struct, at: int, count: int) -> Iterator[tuple[int, Sequence[int]]]:
        """Yield offset and fields of up to `count` entries; the last field leads to the next."""
        for _ in range(count):
            fields = self.entry(row, at)
            if fields is None:
                return
            yield at, fields
            if not fields[-1]:
                return
            at += fields[-1]

    def entry(self, row: Struct, at: int) -> tuple[int, ...] | None:
        """The fields of the entry at the offset `at`; None after the last one."""
        self._remaining -= 1
        if self._remaining < 0 or at < 0:
            self.problem = True
            return None
        if not self._at <= at <= self._at + len(self._data) - row.size:
            self._at, self._data = at, self._source.read(at, _STEP)
            if len(self._data) < row.size:
                self.problem = True
                return None
        return row.unpack_from(self._data, at - self._at)


def _needs(
    table: _VersionTables, strings: Strings, names: dict[int, tuple[str | None, str]]
) -> Iterator[VersionNeed]:
    for at, (_, parts, file, first, _) in table.list_at(
        abi.DT_VERNEED, abi.DT_VERNEEDNUM, table.layout.verneed
    ):
        library = strings.at(file)
        versions: list[str] = []
        weak: list[str] = []
        for _, part in table.entries(table.layout.vernaux, at + first, parts):
            _, flags, number, name_at, _ = part
            version = strings.at(name_at)
            if library is not None and version is not None:
                versions.append(version)
                if flags & _WEAK:
                    weak.append(version)
                names[number & 0x7FFF] = (library, version)
        if library is not None:
            yield VersionNeed(library, tuple(versions), tuple(weak))


def _definitions(
    table: _VersionTables, strings: Strings, names: dict[int, tuple[str | None, str]]
) -> Iterator[str]:
    for at, (_, _, number, _, _, first, _) in table.list_at(
        abi.DT_VERDEF, abi.DT_VERDEFNUM, table.layout.verdef
    ):
        # The first name is the version; further ones are those that it inherits from.
        entry = table.entry(table.layout.verdaux, at + first)
        if entry is not None and (version := strings.at(entry[0])) is not None:
            names[number & 0x7FFF] = (None, version)
            yield version
