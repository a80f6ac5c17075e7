"""LLVM's OffloadBinary, the container of the new offloading model: `.llvm.offloading`.

Source: llvm/include/llvm/Object/OffloadBinary.h, versions 1 to 3. Version 1 holds one image; later
versions hold several, and their string table has another column. Little-endian. No wheel on the
index held one when this was written, so the layout is checked against the source only.
"""

from __future__ import annotations

from struct import Struct

from buildmatrix.device_code.entries import CodeContainer, CodeEntry
from buildmatrix.elf.source import ByteSource

MAGIC = b"\x10\xff\x10\xad"

#: magic, version, size, offset of the entry, size of the entry (version 1) or their number.
_HEADER = Struct("<4sIQQQ")
#: image kind, offload kind, flags, offset of strings, number of strings, offset of image, size.
_ENTRY = Struct("<HHIQQQQ")
#: offset of key, offset of value[, size of value].
_PAIR = Struct("<QQ")
_PAIR_SIZES = {1: 16, 2: 24, 3: 24}

_KINDS = {2: "bitcode", 3: "sass", 5: "ptx", 6: "spirv"}
_MOST_PAIRS = 16
_MOST_ENTRIES = 512
_LONGEST = 256
_TABLES = 256 << 10


def read(source: ByteSource, offset: int, limit: int) -> CodeContainer | None:
    """Read the container at `offset`; `limit` is the end of the section or region holding it."""
    head = source.read(offset, min(_HEADER.size, limit - offset))
    if len(head) < _HEADER.size:
        return None
    magic, version, size, entries_at, number = _HEADER.unpack(head)
    if magic != MAGIC or version not in _PAIR_SIZES or not _HEADER.size < size <= limit - offset:
        return None
    # Entries and strings precede the images.
    tables = source.read(offset, min(size, _TABLES))
    count = 1 if version == 1 else max(1, min(number, _MOST_ENTRIES))
    entries = []
    cut = version > 1 and number > _MOST_ENTRIES
    for index in range(count):
        at = entries_at + index * _ENTRY.size
        if at + _ENTRY.size > len(tables):
            cut = True
            break
        kind, _, _, strings_at, strings, _, image_size = _ENTRY.unpack_from(tables, at)
        facts = _parse_strings(tables, strings_at, strings, _PAIR_SIZES[version])
        triple = facts.get("triple", "").split("-", 1)[0]
        arch = facts.get("arch") or triple or None
        name = "amdgcn" if triple == "amdgcn" else _KINDS.get(kind, "unknown")
        note = None if arch else "the container names neither an architecture nor a triple"
        # A container with one image is counted whole, with its header and strings.
        counted = size if count == 1 else min(image_size, size)
        entries.append(CodeEntry("offload-binary", name, arch, offset, counted, note=note))
    if cut and entries:
        note = "the table of the container goes on behind what is read"
        entries.append(CodeEntry("offload-binary", "unknown", None, offset, 0, note=note))
    return CodeContainer(tuple(entries), offset + size) if entries else None


def _parse_strings(tables: bytes, at: int, count: int, step: int) -> dict[str, str]:
    """Read the string table of one entry."""
    facts = {}
    for _ in range(min(count, _MOST_PAIRS)):
        if at + _PAIR.size > len(tables):
            break
        key, value = (_read_string(tables, place) for place in _PAIR.unpack_from(tables, at))
        facts[key] = value
        at += step
    return facts


def _read_string(tables: bytes, at: int) -> str:
    raw = tables[at : at + _LONGEST]
    return raw.partition(b"\0")[0].decode("ascii", "replace")
