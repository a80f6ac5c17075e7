"""`.kpack` files: AMD code objects split from libraries and packed per architecture.

Source: ROCm/rocm-kpack, python/rocm_kpack/kpack.py, version 1: magic, version and the offset of a
table of contents in MessagePack at the end of the file. Little-endian; MessagePack is big-endian.
"""

from __future__ import annotations

from struct import Struct

from buildmatrix.device_code.entries import CodeEntry
from buildmatrix.elf.source import ByteSource

MAGIC = b"KPAK"

#: magic, version, offset of the table of contents.
_HEADER = Struct("<4sIQ")
_LARGEST_TABLE = 4 << 20
_MOST_VALUES = 1 << 16
_DEEPEST = 16
_MOST_ARCHS = 256
_LONGEST_ARCH = 64

#: Plain values by their first byte, with the bytes that follow.
_FIXED = {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,
    0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
#: Strings and bytes by their first byte: bytes of the length, bytes between it and the value.
_SIZED = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
          0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0)}  # fmt: skip

#: Values needed from a table: strings, lists and maps; None for any other value.
_Value = str | list["_Value"] | dict[str, "_Value"] | None


def read(source: ByteSource, size: int) -> tuple[CodeEntry, ...]:
    """Return one entry per architecture; one without architecture if the table is unreadable."""
    try:
        archs = _parse_architectures(_read_table(source, size))
    except ValueError as problem:
        return (
            CodeEntry("hip-kpack", "amdgcn", None, 0, size, compressed=True, note=str(problem)),
        )
    shares = [size * number // len(archs) for number in range(len(archs) + 1)]
    return tuple(
        CodeEntry("hip-kpack", "amdgcn", arch, 0, end - start, compressed=True)
        for arch, start, end in zip(archs, shares, shares[1:], strict=False)
    )


def _read_table(source: ByteSource, size: int) -> _Value:
    head = source.read(0, _HEADER.size)
    if len(head) < _HEADER.size:
        raise ValueError("the file ends inside its header")
    _, _, table_at = _HEADER.unpack(head)
    if not _HEADER.size <= table_at < size or size - table_at > _LARGEST_TABLE:
        raise ValueError("the table of contents lies outside the file or is too large")
    return _MessagePackReader(source.read(table_at, size - table_at)).value()


def _parse_architectures(table: _Value) -> list[str]:
    named = table.get("gfx_arches") if isinstance(table, dict) else None
    archs = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    if not archs:
        raise ValueError("the table of contents names no architecture")
    if len(archs) > _MOST_ARCHS:
        raise ValueError(f"the table of contents names more than {_MOST_ARCHS} architectures")
    return [name[:_LONGEST_ARCH] for name in dict.fromkeys(archs)]


class _MessagePackReader:
    """MessagePack reader for tables of contents."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._values = 0

    def value(self, depth: int = 0) -> _Value:
        self._values += 1
        if depth > _DEEPEST or self._values > _MOST_VALUES:
            raise ValueError("the table of contents is too deep or has too many values")
        kind = self._number(1)
        if kind < 0x80 or kind >= 0xE0:
            return None
        if kind < 0x90:
            return self._map(kind & 0xF, depth)
        if kind < 0xA0:
            return [self.value(depth + 1) for _ in range(kind & 0xF)]
        if kind < 0xC0:
            return self._bytes(kind & 0x1F).decode("utf-8", "backslashreplace")
        if kind in _FIXED:
            self._bytes(_FIXED[kind])
            return None
        if kind in _SIZED:
            width, between = _SIZED[kind]
            raw = self._bytes(self._number(width) + between)
            return raw.decode("utf-8", "backslashreplace") if kind >= 0xD9 else None
        if kind in (0xDC, 0xDD):
            return [self.value(depth + 1) for _ in range(self._number(2 if kind == 0xDC else 4))]
        if kind in (0xDE, 0xDF):
            return self._map(self._number(2 if kind == 0xDE else 4), depth)
        raise ValueError("the table of contents is no MessagePack")

    def _map(self, count: int, depth: int) -> dict[str, _Value]:
        pairs: dict[str, _Value] = {}
        for _ in range(count):
            key, value = self.value(depth + 1), self.value(depth + 1)
            if isinstance(key, str):
                pairs[key] = value
        return pairs

    def _number(self, width: int) -> int:
        return int.from_bytes(self._bytes(width), "big")

    def _bytes(self, length: int) -> bytes:
        raw = self._data[self._at : self._at + length]
        if len(raw) < length:
            raise ValueError("the table of contents is cut short")
        self._at += length
        return raw
