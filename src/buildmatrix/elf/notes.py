"""Notes (gABI chapter 5, "Note Section"): here only the build identifier of the GNU linkers."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.elf import layout as abi
from buildmatrix.elf.headers import Headers
from buildmatrix.elf.source import CachedSource

#: Bytes read of one group of notes; core files hold megabytes of others.
MOST_BYTES = 64 << 10
MOST_GROUPS = 64
#: A build id is a hash: 20 bytes by default, up to 64 with SHA-512.
LONGEST_BUILD_ID = 64


def read_build_id(source: CachedSource, headers: Headers) -> str | None:
    """The build id as hexadecimal digits; None when the file has none."""
    for offset, size, align in list(_groups(headers))[:MOST_GROUPS]:
        data = source.read(offset, min(size, MOST_BYTES))
        for name, kind, value in _notes(data, headers, 8 if align == 8 else 4):
            if kind == abi.NT_GNU_BUILD_ID and name == b"GNU\0":
                return value[:LONGEST_BUILD_ID].hex()
    return None


def _groups(headers: Headers) -> Iterator[tuple[int, int, int]]:
    """Offset, size and alignment of each run of notes."""
    for segment in headers.segments:
        if segment.type == abi.PT_NOTE:
            yield segment.offset, segment.size, segment.align
    for section in headers.sections:
        if section.type == abi.SHT_NOTE:
            yield section.offset, section.size, 4


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
