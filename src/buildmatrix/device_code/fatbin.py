"""CUDA fat binaries, as nvcc and clang put them into `.nv_fatbin` and `__nv_relfatbin`.

NVIDIA does not document the format. The layout was read off real wheels and agrees with three
independent readers: n-eiling/cuda-fatbin-decompression, jiegec/fatbinary and
VivekPanyam/cudaparsers. A container is a header of 16 bytes and entries back to back. Each entry
has a header of 64 bytes or more with kind and architecture, so nothing has to be decompressed.
Little-endian.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from buildmatrix.device_code.entries import CodeContainer, CodeEntry
from buildmatrix.elf.source import ByteSource
from buildmatrix.trees import lz4, zstd

MAGIC = b"\x50\xed\x55\xba"

#: magic, version, header size, size of all entries.
_CONTAINER = Struct("<4sHHQ")
#: kind, version, header size, padded payload size, compressed size, options offset, minor, major,
#: architecture, name offset, name length, flags.
_ENTRY = Struct("<HHIQIIHHIIIQ")

#: Bytes read of an entry's header.
HEADER = _ENTRY.size

_KINDS = {1: "ptx", 2: "sass", 8: "lto-ir"}
#: An LZ4 block, a Zstandard frame (CUDA 12.8 and later).
_LZ4 = 0x2000
_ZSTD = 0x8000
_COMPRESSED = _LZ4 | _ZSTD
_ARCH_SPECIFIC = 0x100000
_FAMILY = 0x200000

#: Includes the name and the options of ptxas; 128 is the largest seen.
_LONGEST_HEADER = 1 << 16
_LARGEST_ARCH = 9999
#: Entries of one container; real ones have one per architecture and module.
_MOST_ENTRIES = 1 << 14


def read(source: ByteSource, offset: int, limit: int) -> CodeContainer | None:
    """Read the container at `offset`; `limit` is the end of the section or region holding it."""
    opened = open_fatbin(source, offset, limit)
    if opened is None:
        return None
    entries, end = tuple(opened.entries), opened.end
    # nvcc writes an empty container before those that hold only PTX.
    is_empty = not entries and end == opened.start
    # The magic number alone proves nothing: constants of a parser look like it.
    if not is_empty and all(entry.kind == "unknown" for entry in entries):
        return None
    return CodeContainer(entries, end)


@dataclass(frozen=True, slots=True)
class OpenedFatbin:
    """A container whose entries are not read yet."""

    #: Read on demand: `HEADER` bytes where the previous entry ends.
    entries: Iterator[CodeEntry]
    start: int
    end: int


def open_fatbin(source: ByteSource, offset: int, limit: int) -> OpenedFatbin | None:
    """Read only the header of the container at `offset`."""
    head = source.read(offset, min(_CONTAINER.size, limit - offset))
    if len(head) < _CONTAINER.size:
        return None
    magic, version, header_size, size = _CONTAINER.unpack(head)
    if magic != MAGIC or version == 0 or not _CONTAINER.size <= header_size <= _LONGEST_HEADER:
        return None
    start = offset + header_size
    end = start + size
    if start > limit:
        return None
    stop = min(end, limit)
    return OpenedFatbin(_entries(source, start, stop, cut=end > limit), start, stop)


def _entries(source: ByteSource, at: int, end: int, *, cut: bool) -> Iterator[CodeEntry]:
    count = 0
    while at + _ENTRY.size <= end:
        if count == _MOST_ENTRIES:
            yield _unreadable(at, end, f"the fat binary has more than {_MOST_ENTRIES} entries")
            return
        count += 1
        raw = source.read(at, _ENTRY.size)
        if len(raw) < _ENTRY.size:
            break
        kind, _, header_size, size, _, _, minor, major, arch, _, _, flags = _ENTRY.unpack(raw)
        if not _ENTRY.size <= header_size <= _LONGEST_HEADER or at + header_size + size > end:
            yield _unreadable(at, end, "an entry header of the fat binary makes no sense")
            return
        name = _KINDS.get(kind, "unknown")
        yield CodeEntry(
            format="nv-fatbin",
            kind=name,
            arch=_decode_architecture(name, arch, flags),
            offset=at,
            size=header_size + size,
            compressed=bool(flags & _COMPRESSED),
            note=_note(kind, name, arch),
            # For machine code, the two numbers are the version of its own format.
            language=f"{major}.{minor}" if name == "ptx" and major else None,
        )
        at += header_size + size
    if cut:
        yield _unreadable(at, end, "the fat binary goes on behind the end of its section")


def read_payload(source: ByteSource, entry: CodeEntry, most: int, limit: int) -> tuple[bytes, bool]:
    """Return the first `limit` bytes of an entry, decompressed, and True if that is all.

    Reads at most `most` bytes. Raises ValueError if they cannot be decompressed.
    """
    raw = source.read(entry.offset, min(entry.size, _ENTRY.size + most))
    if len(raw) < _ENTRY.size:
        return b"", False
    _, _, header_size, _, packed_size, *_, flags = _ENTRY.unpack_from(raw)
    is_read = len(raw) == entry.size
    data = raw[header_size:]
    if flags & _COMPRESSED:
        # Padding follows the compressed bytes.
        data = data[:packed_size] if packed_size else data
        data = (lz4 if flags & _LZ4 else zstd).head(data, limit + 1)
    return data[:limit], is_read and len(data) <= limit


def _unreadable(at: int, end: int, why: str) -> CodeEntry:
    return CodeEntry("nv-fatbin", "unknown", None, at, end - at, note=why)


def _note(kind: int, name: str, arch: int) -> str | None:
    if name == "unknown":
        return f"entry kind {kind} is not known"
    return None if 0 < arch <= _LARGEST_ARCH else "an entry names no architecture"


def _decode_architecture(kind: str, number: int, flags: int) -> str | None:
    """Return `sm_90a` for machine code, `compute_90a` for code still to be compiled."""
    if not 0 < number <= _LARGEST_ARCH:
        return None
    suffix = "a" if flags & _ARCH_SPECIFIC else "f" if flags & _FAMILY else ""
    return f"{'sm' if kind == 'sass' else 'compute'}_{number}{suffix}"
