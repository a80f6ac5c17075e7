"""Field layouts and numbers of the System V gABI (edition 4.1 and its drafts), as struct formats.

Four layouts exist: ELF32 and ELF64, each little- and big-endian.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from struct import Struct

MAGIC = b"\x7fELF"

# Section types and flags, chapter 4; values from 0x60000000 on are of GNU and LLVM.
SHT_PROGBITS = 1
SHT_STRTAB = 3
SHT_DYNAMIC = 6
SHT_NOTE = 7
SHT_NOBITS = 8
SHF_ALLOC = 0x2
SHF_EXECINSTR = 0x4
SHN_XINDEX = 0xFFFF

# Segment types, chapter 5.
PT_LOAD = 1
PT_DYNAMIC = 2
PT_INTERP = 3
PT_NOTE = 4
PF_X = 0x1
PN_XNUM = 0xFFFF

# Dynamic tags, chapter 5; DT_FLAGS_1 from the LSB core specification 5.0.
DT_NULL = 0
DT_NEEDED = 1
DT_STRTAB = 5
DT_STRSZ = 10
DT_SONAME = 14
DT_RPATH = 15
DT_RUNPATH = 29
DT_FLAGS_1 = 0x6FFFFFFB

NT_GNU_BUILD_ID = 3

EM_CUDA = 190
EM_INTELGT = 205
EM_AMDGPU = 224

TYPES = {1: "rel", 2: "exec", 3: "dyn", 4: "core"}

#: e_machine numbers of the registry at sco.com that occur on Linux and in device code.
MACHINES = {
    2: "sparc",
    3: "386",
    4: "68k",
    8: "mips",
    15: "parisc",
    18: "sparc32plus",
    20: "ppc",
    21: "ppc64",
    22: "s390",
    40: "arm",
    42: "sh",
    43: "sparcv9",
    50: "ia_64",
    62: "x86_64",
    92: "openrisc",
    164: "hexagon",
    183: "aarch64",
    189: "microblaze",
    EM_CUDA: "cuda",
    195: "arc_compact2",
    EM_INTELGT: "intelgt",
    EM_AMDGPU: "amdgpu",
    243: "riscv",
    247: "bpf",
    251: "ve",
    252: "csky",
    258: "loongarch",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """How the tables of one class and byte order are laid out."""

    bits: int
    little_endian: bool
    #: type, machine, version, entry, phoff, shoff, flags, ehsize, phentsize, phnum, shentsize,
    #: shnum, shstrndx; follows the 16 bytes of e_ident.
    header: Struct
    #: name, type, flags, addr, offset, size, link, info, addralign, entsize.
    section: Struct
    #: ELF64: type, flags, offset, vaddr, paddr, filesz, memsz, align.
    #: ELF32: type, offset, vaddr, paddr, filesz, memsz, flags, align.
    segment: Struct
    #: tag, value.
    dynamic: Struct
    #: namesz, descsz, type.
    note: Struct


@cache
def layout(bits: int, little_endian: bool) -> Layout:
    """The layout of ELF32 or ELF64 files in one byte order."""
    order = "<" if little_endian else ">"
    word = "Q" if bits == 64 else "I"
    return Layout(
        bits=bits,
        little_endian=little_endian,
        header=Struct(f"{order}HHI{word}{word}{word}IHHHHHH"),
        section=Struct(f"{order}II{word}{word}{word}{word}II{word}{word}"),
        segment=Struct(f"{order}IIQQQQQQ" if bits == 64 else f"{order}IIIIIIII"),
        dynamic=Struct(f"{order}{word}{word}"),
        note=Struct(f"{order}III"),
    )
