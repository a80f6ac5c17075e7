"""LLVM's OffloadBinary, the container of the new offloading model: `.llvm.offloading`.

Source: llvm/include/llvm/Object/OffloadBinary.h, versions 1 and 2. Little-endian. No wheel on the
index held one when this was written, so the layout is checked against the source only.
"""

from __future__ import annotations

from struct import Struct

from buildmatrix.elf.entries import Container, Entry
from buildmatrix.elf.source import ByteSource

MAGIC = b"\x10\xff\x10\xad"

#: magic, version, size, offset of the entry, size of the entry (version 1) or their number.
_HEADER = Struct("<4sIQQQ")
#: image kind, offload kind, flags, offset of strings, number of strings, offset of image, size.
_ENTRY = Struct("<HHIQQQQ")
#: offset of key, offset of value.
_PAIR = Struct("<QQ")

_KINDS = {2: "bitcode", 3: "sass", 5: "ptx", 6: "spirv"}
_MOST_PAIRS = 64
_LONGEST = 256


def read(source: ByteSource, offset: int, limit: int) -> Container | None:
    """The container at `offset`; `limit` is the end of the section or region that holds it."""
    head = source.read(offset, min(_HEADER.size, limit - offset))
    if len(head) < _HEADER.size:
        return None
    magic, version, size, entry_at, _ = _HEADER.unpack(head)
    if magic != MAGIC or not 1 <= version <= 3 or not _HEADER.size < size <= limit - offset:
        return None
    raw = source.read(offset + entry_at, _ENTRY.size) if entry_at < size else b""
    if len(raw) < _ENTRY.size:
        return None
    kind, _, _, strings_at, strings, _, _ = _ENTRY.unpack(raw)
    facts = {}
    for index in range(min(strings, _MOST_PAIRS)):
        at = strings_at + index * _PAIR.size
        pair = source.read(offset + at, _PAIR.size) if at < size else b""
        if len(pair) < _PAIR.size:
            break
        key, value = (_string(source, offset, place, size) for place in _PAIR.unpack(pair))
        facts[key] = value
    triple = facts.get("triple", "").split("-", 1)[0]
    arch = facts.get("arch") or triple or None
    name = "amdgcn" if triple == "amdgcn" else _KINDS.get(kind, "unknown")
    note = None if arch else "the container names neither an architecture nor a triple"
    entry = Entry("offload-binary", name, arch, offset, size, note=note)
    return Container((entry,), offset + size)


def _string(source: ByteSource, base: int, at: int, size: int) -> str:
    raw = source.read(base + at, min(_LONGEST, size - at)) if at < size else b""
    return raw.partition(b"\0")[0].decode("ascii", "replace")
