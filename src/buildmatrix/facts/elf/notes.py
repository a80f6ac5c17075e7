"""Notes of an ELF file that say something about the host: ABI, build, instruction level."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from buildmatrix.facts.elf import layout as abi
from buildmatrix.facts.elf.headers import Headers
from buildmatrix.facts.elf.layout import Layout
from buildmatrix.facts.elf.model import DlopenNote
from buildmatrix.facts.elf.source import CachedSource

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
