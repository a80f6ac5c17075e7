"""Notes (gABI chapter 5, "Note Section") that say something about the host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from buildmatrix.elf import layout as abi
from buildmatrix.elf.headers import Headers
from buildmatrix.elf.isa import InstructionLevels, read_levels
from buildmatrix.elf.model import DlopenNote
from buildmatrix.elf.source import CachedSource

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
    """What the notes say; see `Elf` for the meaning of the fields."""

    build_id: str | None = None
    abi_tag: str | None = None
    dlopen: tuple[DlopenNote, ...] = ()
    levels: InstructionLevels = field(default_factory=InstructionLevels)


def read_notes(source: CachedSource, headers: Headers) -> Notes:
    """Reads the notes that are known here; trouble goes to `headers.unread`."""
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
        headers.unread.append("a note of GNU properties has one of a size that cannot be")
    if damaged:
        headers.unread.append("a note that names libraries to be loaded is no valid JSON")
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
    """JSON can spell lone surrogates, which no text may hold."""
    return name[:_LONGEST_TEXT].encode("utf-8", "backslashreplace").decode()
