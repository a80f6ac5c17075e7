"""ELF objects for accelerators, and `.kpack` files of them."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from buildmatrix.facts.elf import layout as abi
from buildmatrix.facts.elf.headers import Headers
from buildmatrix.facts.elf.layout import layout
from buildmatrix.facts.elf.model import CodeContainer, DeviceCode
from buildmatrix.facts.trees.base import ByteSource

# Cubins, and code objects of AMD, Intel and Ascend.
#
# Sources: LLVM's llvm/BinaryFormat/ELF.h and AMDGPUUsage.rst; the values of EM_CUDA and EM_ASCEND
# were checked against objects in real wheels.


CODE_OBJECT_KINDS = {
    abi.EM_CUDA: "sass",
    abi.EM_AMDGPU: "amdgcn",
    abi.EM_INTELGT: "zebin",
    abi.EM_ASCEND: "aicore",
}

#: From this EI_ABIVERSION on (CUDA 13), bits 8 to 15 of e_flags hold the SM number.
_CUDA_ABI_2 = 8
#: Bit of e_flags for `sm_90a`, before and from that version on. ptxas 13 sets an attribute instead.
_CUDA_SPECIFIC = (0x800, 0x8)
#: From this EI_ABIVERSION on (code object version 4), e_flags hold each feature in two bits.
_AMDGPU_ABI_V4 = 2
_XNACK = {0x200: ":xnack-", 0x300: ":xnack+"}
_SRAMECC = {0x800: ":sramecc-", 0xC00: ":sramecc+"}

#: EF_AMDGPU_MACH, the lowest 8 bits of e_flags.
_GFX = {
    0x20: "gfx600",
    0x21: "gfx601",
    0x22: "gfx700",
    0x23: "gfx701",
    0x24: "gfx702",
    0x25: "gfx703",
    0x26: "gfx704",
    0x28: "gfx801",
    0x29: "gfx802",
    0x2A: "gfx803",
    0x2B: "gfx810",
    0x2C: "gfx900",
    0x2D: "gfx902",
    0x2E: "gfx904",
    0x2F: "gfx906",
    0x30: "gfx908",
    0x31: "gfx909",
    0x32: "gfx90c",
    0x33: "gfx1010",
    0x34: "gfx1011",
    0x35: "gfx1012",
    0x36: "gfx1030",
    0x37: "gfx1031",
    0x38: "gfx1032",
    0x39: "gfx1033",
    0x3A: "gfx602",
    0x3B: "gfx705",
    0x3C: "gfx805",
    0x3D: "gfx1035",
    0x3E: "gfx1034",
    0x3F: "gfx90a",
    0x40: "gfx940",
    0x41: "gfx1100",
    0x42: "gfx1013",
    0x43: "gfx1150",
    0x44: "gfx1103",
    0x45: "gfx1036",
    0x46: "gfx1101",
    0x47: "gfx1102",
    0x48: "gfx1200",
    0x49: "gfx1250",
    0x4A: "gfx1151",
    0x4B: "gfx941",
    0x4C: "gfx942",
    0x4E: "gfx1201",
    0x4F: "gfx950",
    0x51: "gfx9-generic",
    0x52: "gfx10-1-generic",
    0x53: "gfx10-3-generic",
    0x54: "gfx11-generic",
    0x55: "gfx1152",
    0x58: "gfx1153",
    0x59: "gfx12-generic",
    0x5F: "gfx9-4-generic",
}


_UNKNOWN = "the header does not name an architecture that is known"


def decode_architecture(
    machine: int, flags: int, abi_version: int, *, is_specific: bool = False
) -> str | None:
    """Return `sm_90` or `gfx90a:sramecc+:xnack-` from e_machine, e_flags and EI_ABIVERSION.

    `is_specific` is the attribute of `sm_90a`.
    """
    if machine == abi.EM_CUDA:
        is_new = abi_version >= _CUDA_ABI_2
        number = (flags >> 8 if is_new else flags) & 0xFF
        suffix = "a" if is_specific or flags & _CUDA_SPECIFIC[is_new] else ""
        return f"sm_{number}{suffix}" if number else None
    if machine == abi.EM_AMDGPU and (flags & 0xFF) in _GFX:
        features = ""
        if abi_version >= _AMDGPU_ABI_V4:
            features = _SRAMECC.get(flags & 0xC00, "") + _XNACK.get(flags & 0x300, "")
        return _GFX[flags & 0xFF] + features
    return None


def entry_of_file(source: ByteSource, headers: Headers, size: int) -> DeviceCode | None:
    """Return the entry of a file that is itself device code; None for host code."""
    machine = headers.machine
    if machine not in CODE_OBJECT_KINDS:
        return None
    sections = ((s.type, s.offset, s.size) for s in headers.sections)
    is_specific = machine == abi.EM_CUDA and _has_specific_features(source, sections)
    architecture = decode_architecture(
        machine, headers.flags, headers.abi_version, is_specific=is_specific
    )
    note = None if architecture else _UNKNOWN
    return DeviceCode("elf", CODE_OBJECT_KINDS[machine], architecture, 1, size, 0, note=note)


# `.nv.compat` of a cubin: attributes that its loader checks. A format (1 to 3: a value of two
# bytes, 4: a length of two bytes and as many more), a number and the value, as in `.nv.info`.
# Read off cubins of ptxas 13.5; cuobjdump names their architectures by it.


#: SHT_LOPROC + 0x86.
_CUDA_COMPAT = 0x7000_0086
_SPECIFIC_FEATURES = 9
_LONGEST_COMPAT = 1 << 12
#: Sections of a cubin in host data that are examined; those of its kernels follow.
_FIRST_SECTIONS = 64


def _has_specific_features(source: ByteSource, sections: Iterable[tuple[int, int, int]]) -> bool:
    """Return True if a cubin is for exactly its architecture; sections are type, offset, size."""
    found = next((section for section in sections if section[0] == _CUDA_COMPAT), None)
    compat = source.read(found[1], min(found[2], _LONGEST_COMPAT)) if found else b""
    at = 0
    while at + 4 <= len(compat):
        value = int.from_bytes(compat[at + 2 : at + 4], "little")
        if compat[at + 1] == _SPECIFIC_FEATURES:
            return value != 0
        at += 4 + (value if compat[at] == 4 else 0)
    return False


def read_code_object(source: ByteSource, offset: int, limit: int) -> CodeContainer | None:
    """Read the device object at `offset` in host data (libcupti has some)."""
    head = source.read(offset, min(64, limit - offset))
    if len(head) < 64 or not head.startswith(abi.MAGIC) or head[4] not in (1, 2) or head[5] != 1:
        return None
    fields = layout(64 if head[4] == 2 else 32, little_endian=True)
    (
        _, machine, _, _, segments_at, sections_at, flags, _,
        segment_size, segment_count, section_size, section_count, _,
    ) = fields.header.unpack_from(head, 16)  # fmt: skip
    if machine not in CODE_OBJECT_KINDS:
        return None
    # The tables come after the contents, so the last table ends the object.
    end = max(
        fields.header.size + 16,
        segments_at + segment_size * segment_count,
        sections_at + section_size * section_count,
    )
    size = min(offset + end, limit) - offset
    is_specific = False
    if machine == abi.EM_CUDA and section_size == fields.section.size and sections_at <= size:
        rows = min(section_count, _FIRST_SECTIONS, (size - sections_at) // section_size)
        table = fields.section.iter_unpack(source.read(offset + sections_at, rows * section_size))
        sections = (
            (kind, offset + at, length)
            for _, kind, _, _, at, length, *_ in table
            if at + length <= size
        )
        is_specific = _has_specific_features(source, sections)
    architecture = decode_architecture(machine, flags, head[8], is_specific=is_specific)
    note = None if architecture else _UNKNOWN
    if offset + end > limit:
        note = note or "the device object extends beyond the end of its container"
    return CodeContainer(
        (DeviceCode("elf", CODE_OBJECT_KINDS[machine], architecture, 1, size, offset, note=note),),
        offset + size,
    )


# `.kpack` files: AMD code objects split from libraries and packed per architecture.
#
# Source: ROCm/rocm-kpack, python/rocm_kpack/kpack.py, version 1: magic, version and the offset of a
# table of contents in MessagePack at the end of the file. Little-endian; MessagePack is big-endian.


KPACK_MAGIC = b"KPAK"

#: magic, version, offset of the table of contents.
_KPACK_HEADER = Struct("<4sIQ")
_LARGEST_TABLE = 4 << 20
_MOST_VALUES = 1 << 16
_DEEPEST = 16
_MOST_ARCHS = 256
_LONGEST_ARCH = 64

#: Values needed from a table: strings, lists and maps; None for any other value.
_Value = str | list["_Value"] | dict[str, "_Value"] | None


def read_kpack(source: ByteSource, size: int) -> tuple[DeviceCode, ...]:
    """Return one entry per architecture; one without architecture if the table is unreadable."""
    try:
        archs = _parse_architectures(_read_table(source, size))
    except ValueError as problem:
        note = str(problem)
        return (DeviceCode("hip-kpack", "amdgcn", None, 1, size, 0, note=note, compressed=1),)
    shares = [size * number // len(archs) for number in range(len(archs) + 1)]
    return tuple(
        DeviceCode("hip-kpack", "amdgcn", arch, 1, end - start, 0, compressed=1)
        for arch, start, end in zip(archs, shares, shares[1:], strict=False)
    )


def _read_table(source: ByteSource, size: int) -> _Value:
    head = source.read(0, _KPACK_HEADER.size)
    if len(head) < _KPACK_HEADER.size:
        raise ValueError("the file ends inside its header")
    _, _, table_at = _KPACK_HEADER.unpack(head)
    if not _KPACK_HEADER.size <= table_at < size or size - table_at > _LARGEST_TABLE:
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
        extent = measure_value(self._data[self._at : self._at + LONGEST_HEAD])
        if extent is None:
            raise ValueError("the table of contents is no MessagePack")
        kind = self._data[self._at] if self._at < len(self._data) else 0
        start = self._at + extent.head
        self._at = start + extent.content
        if self._at > len(self._data):
            raise ValueError("the table of contents is cut short")
        if 0xA0 <= kind < 0xC0 or 0xD9 <= kind <= 0xDB:
            return self._data[start : self._at].decode("utf-8", "backslashreplace")
        if 0x80 <= kind < 0x90 or kind in (0xDE, 0xDF):
            pairs: dict[str, _Value] = {}
            for _ in range(extent.values // 2):
                key, value = self.value(depth + 1), self.value(depth + 1)
                if isinstance(key, str):
                    pairs[key] = value
            return pairs
        if 0x90 <= kind < 0xA0 or kind in (0xDC, 0xDD):
            return [self.value(depth + 1) for _ in range(extent.values)]
        return None


# Values of MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md).


#: Bytes of the first byte of a value and its length or count.
LONGEST_HEAD = 5
#: Bytes behind the first byte of a fixed-size value.
_FIXED = {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,
    0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
#: Strings, bytes and extensions by their first byte: bytes of the length, and of an extension's
#: type.
_SIZED = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
          0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0)}  # fmt: skip
#: Bytes of the count of an array or a map, and values for each.
_COUNTED = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


class ValueExtent(NamedTuple):
    """Bytes of the head of a value, bytes of its content, and number of values in it."""

    head: int
    content: int = 0
    values: int = 0


def measure_value(data: bytes) -> ValueExtent | None:
    """Return the extent of the value that begins with `data`; None if that begins no value.

    Missing bytes count as none: callers check if the head is within their data.
    """
    first = data[0] if data else 0
    if first < 0x80 or first >= 0xE0:
        return ValueExtent(1)
    if first < 0xA0:
        return ValueExtent(1, values=(first & 0x0F) * (1 if first >= 0x90 else 2))
    if first < 0xC0:
        return ValueExtent(1, first & 0x1F)
    if first in _FIXED:
        return ValueExtent(1, _FIXED[first])
    if first in _SIZED:
        width, between = _SIZED[first]
        return ValueExtent(1 + width, int.from_bytes(data[1 : 1 + width]) + between)
    if first in _COUNTED:
        width, each = _COUNTED[first]
        return ValueExtent(1 + width, values=each * int.from_bytes(data[1 : 1 + width]))
    return None
