"""ELF objects for accelerators: cubins, and code objects of AMD, Intel and Ascend.

Sources: LLVM's llvm/BinaryFormat/ELF.h and AMDGPUUsage.rst; the values of EM_CUDA and EM_ASCEND
were checked against objects in real wheels.
"""

from __future__ import annotations

from buildmatrix.device_code.entries import CodeContainer, CodeEntry
from buildmatrix.elf import layout as abi
from buildmatrix.elf.layout import layout
from buildmatrix.elf.source import ByteSource

KINDS = {
    abi.EM_CUDA: "sass",
    abi.EM_AMDGPU: "amdgcn",
    abi.EM_INTELGT: "zebin",
    abi.EM_ASCEND: "aicore",
}

#: From this EI_ABIVERSION on (CUDA 13), bits 8 to 15 of e_flags hold the SM number.
_CUDA_ABI_2 = 8
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


def decode_architecture(machine: int, flags: int, abi_version: int) -> str | None:
    """Return `sm_90` or `gfx90a:sramecc+:xnack-` from e_machine, e_flags and EI_ABIVERSION."""
    if machine == abi.EM_CUDA:
        number = (flags >> 8 if abi_version >= _CUDA_ABI_2 else flags) & 0xFF
        return f"sm_{number}" if number else None
    if machine == abi.EM_AMDGPU and (flags & 0xFF) in _GFX:
        features = ""
        if abi_version >= _AMDGPU_ABI_V4:
            features = _SRAMECC.get(flags & 0xC00, "") + _XNACK.get(flags & 0x300, "")
        return _GFX[flags & 0xFF] + features
    return None


def entry_of_file(machine: int, flags: int, abi_version: int, size: int) -> CodeEntry | None:
    """Return the entry of a file that is itself device code; None for host code."""
    if machine not in KINDS:
        return None
    architecture = decode_architecture(machine, flags, abi_version)
    return CodeEntry(
        "elf", KINDS[machine], architecture, 0, size, note=None if architecture else _UNKNOWN
    )


def read(source: ByteSource, offset: int, limit: int) -> CodeContainer | None:
    """Read the device object at `offset` in host data (libcupti has some)."""
    head = source.read(offset, min(64, limit - offset))
    if len(head) < 64 or not head.startswith(abi.MAGIC) or head[4] not in (1, 2) or head[5] != 1:
        return None
    fields = layout(64 if head[4] == 2 else 32, little_endian=True)
    (
        _, machine, _, _, segments_at, sections_at, flags, _,
        segment_size, segment_count, section_size, section_count, _,
    ) = fields.header.unpack_from(head, 16)  # fmt: skip
    if machine not in KINDS:
        return None
    # The tables come after the contents, so the last table ends the object.
    end = max(
        fields.header.size + 16,
        segments_at + segment_size * segment_count,
        sections_at + section_size * section_count,
    )
    size = min(offset + end, limit) - offset
    architecture = decode_architecture(machine, flags, head[8])
    note = None if architecture else _UNKNOWN
    if offset + end > limit:
        note = note or "the device object goes on behind the end of what holds it"
    return CodeContainer(
        (CodeEntry("elf", KINDS[machine], architecture, offset, size, note=note),), offset + size
    )
