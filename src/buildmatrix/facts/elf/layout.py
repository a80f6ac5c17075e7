"""Field layouts and numbers of the System V gABI (edition 4.1 and its drafts), as struct formats.

Four layouts exist: ELF32 and ELF64, each little- and big-endian.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from struct import Struct

from buildmatrix.facts.trees.archive import Slice
from buildmatrix.facts.trees.base import ByteSource

MAGIC = b"\x7fELF"

# Section types and flags, chapter 4; values from 0x60000000 on are of GNU and LLVM.
SHT_PROGBITS = 1
SHT_SYMTAB = 2
SHT_STRTAB = 3
SHT_DYNAMIC = 6
SHT_NOTE = 7
SHT_NOBITS = 8
SHT_DYNSYM = 11
SHF_ALLOC = 0x2
SHF_EXECINSTR = 0x4
SHN_XINDEX = 0xFFFF

# Segment types, chapter 5.
PT_LOAD = 1
PT_DYNAMIC = 2
PT_INTERP = 3
PT_NOTE = 4
PF_X = 0x1
PF_W = 0x2
PN_XNUM = 0xFFFF

# Dynamic tags, chapter 5; DT_FLAGS_1 from the LSB core specification 5.0.
DT_NULL = 0
DT_NEEDED = 1
DT_HASH = 4
DT_STRTAB = 5
DT_SYMTAB = 6
DT_STRSZ = 10
DT_SONAME = 14
DT_RPATH = 15
DT_RUNPATH = 29
DT_FLAGS_1 = 0x6FFFFFFB
# GNU: the hash table of symbols, and the versions of symbols (LSB 5.0, "Symbol Versioning").
DT_GNU_HASH = 0x6FFFFEF5
DT_VERSYM = 0x6FFFFFF0
DT_VERDEF = 0x6FFFFFFC
DT_VERDEFNUM = 0x6FFFFFFD
DT_VERNEED = 0x6FFFFFFE
DT_VERNEEDNUM = 0x6FFFFFFF

NT_GNU_ABI_TAG = 1
NT_GNU_BUILD_ID = 3
NT_GNU_PROPERTY_TYPE_0 = 5
#: Of the owner FDO: https://systemd.io/ELF_DLOPEN_METADATA
NT_FDO_DLOPEN = 0x407C0C0A

# Symbols, chapter 4.
SHN_UNDEF = 0
STB_LOCAL = 0
STB_WEAK = 2
STT_SECTION = 3
STT_FILE = 4

EM_386 = 3
EM_X86_64 = 62
EM_CUDA = 190
EM_INTELGT = 205
EM_AMDGPU = 224
#: No registered number: that of Ascend's kernels, read off vllm-ascend 0.23.0.
EM_ASCEND = 0x1029

ET_CORE = 4
TYPES = {1: "rel", 2: "exec", 3: "dyn", 4: "core"}

#: EI_OSABI. Device code has numbers of its own: 51 and 65 are CUDA's, 64 is AMD's HSA.
OS_ABIS = {0: "sysv", 3: "gnu", 9: "freebsd", 51: "cuda", 64: "amdgpu_hsa", 65: "cuda"}

#: e_machine numbers of the registry at sco.com that occur on Linux and in device code.
MACHINES = {
    2: "sparc",
    EM_386: "386",
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
    EM_X86_64: "x86_64",
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
    EM_ASCEND: "ascend",
}


class Layout:
    """Struct formats of the tables of one class and byte order."""

    def __init__(self, bits: int, little_endian: bool) -> None:
        self.bits = bits
        self.little_endian = little_endian
        order = "<" if little_endian else ">"
        word = "Q" if bits == 64 else "I"
        #: type, machine, version, entry, phoff, shoff, flags, ehsize, phentsize, phnum, shentsize,
        #: shnum, shstrndx; follows the 16 bytes of e_ident.
        self.header = Struct(f"{order}HHI{word}{word}{word}IHHHHHH")
        #: name, type, flags, addr, offset, size, link, info, addralign, entsize.
        self.section = Struct(f"{order}II{word}{word}{word}{word}II{word}{word}")
        #: ELF64: type, flags, offset, vaddr, paddr, filesz, memsz, align.
        #: ELF32: type, offset, vaddr, paddr, filesz, memsz, flags, align.
        self.segment = Struct(f"{order}IIQQQQQQ" if bits == 64 else f"{order}IIIIIIII")
        #: tag, value.
        self.dynamic = Struct(f"{order}{word}{word}")
        #: namesz, descsz, type.
        self.note = Struct(f"{order}III")
        #: pr_type, pr_datasz.
        self.property = Struct(f"{order}II")
        #: ELF64: name, info, other, shndx, value, size.
        #: ELF32: name, value, size, info, other, shndx.
        self.symbol = Struct(f"{order}IBBHQQ" if bits == 64 else f"{order}IIIBBH")
        #: One 32-bit, one 16-bit number.
        self.number = Struct(f"{order}I")
        self.half = Struct(f"{order}H")
        #: vn_version, vn_cnt, vn_file, vn_aux, vn_next; the same in ELF32 and ELF64, as the next
        #: three.
        self.verneed = Struct(f"{order}HHIII")
        #: vna_hash, vna_flags, vna_other, vna_name, vna_next.
        self.vernaux = Struct(f"{order}IHHII")
        #: vd_version, vd_flags, vd_ndx, vd_cnt, vd_hash, vd_aux, vd_next.
        self.verdef = Struct(f"{order}HHHHIII")
        #: vda_name, vda_next.
        self.verdaux = Struct(f"{order}II")


@cache
def layout(bits: int, little_endian: bool) -> Layout:
    """The layout of ELF32 or ELF64 files in one byte order."""
    return Layout(bits, little_endian)


# All of `elf` reads through `ByteSource`, so the same reader serves files, members of wheels and
# range requests to an index.


class CachedSource:
    """A source in front of another one that keeps the blocks which small reads touched.

    A dozen small tables close together then cost one read. Reads of more than a few blocks go
    straight through. Offsets outside the file give short or empty reads, never an error: they come
    from files that may lie.
    """

    #: Bytes per block: one page, which the kernel reads anyway.
    BLOCK = 4096
    #: Reads over more blocks than this are not kept.
    WIDEST = 16
    #: Blocks kept, oldest dropped first: 2 MiB.
    MOST_BLOCKS = 512

    def __init__(self, source: ByteSource, size: int) -> None:
        self._source = source
        self.size = size
        self._blocks: dict[int, bytes] = {}

    def read(self, offset: int, length: int) -> bytes:
        """See `ByteSource.read`; negative or too large offsets give no bytes."""
        length = min(length, self.size - offset)
        if offset < 0 or length <= 0:
            return b""
        first = offset // self.BLOCK
        last = (offset + length - 1) // self.BLOCK
        start = offset - first * self.BLOCK
        if first == last:
            return self._block(first)[start : start + length]
        if last - first >= self.WIDEST:
            return self._source.read(offset, length)
        data = b"".join([self._block(number) for number in range(first, last + 1)])
        return data[start : start + length]

    def _block(self, number: int) -> bytes:
        block = self._blocks.get(number)
        if block is None:
            start = number * self.BLOCK
            block = self._source.read(start, min(self.BLOCK, self.size - start))
            if len(self._blocks) >= self.MOST_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            self._blocks[number] = block
        return block


class PlainSource(CachedSource):
    """A source of parts of a file: the blocks around what is read may not be there."""

    def read(self, offset: int, length: int) -> bytes:
        """See `CachedSource.read`."""
        length = min(length, self.size - offset)
        return b"" if offset < 0 or length <= 0 else self._source.read(offset, length)


class AheadSource:
    """A source in front of another one for callers that read header after header.

    A small read takes some bytes more than requested, and the next ones are served from those.
    """

    #: Bytes that a small read takes at least, and bytes of the largest small one.
    AHEAD = 256
    SMALL = 4096

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._at = 0
        self._data = b""

    def read(self, offset: int, length: int) -> bytes:
        """See `ByteSource.read`."""
        start = offset - self._at
        if start >= 0 and start + length <= len(self._data):
            return self._data[start : start + length]
        if length > self.SMALL:
            return self._source.read(offset, length)
        self._data = self._source.read(offset, max(length, self.AHEAD))
        self._at = offset
        return self._data[:length]


# Static archives: `ar` files whose members are relocatable objects.
#
# Source: ar(5), in the dialects of System V and GNU (`/12` points into a table of long names) and
# BSD (`#1/12` is followed by the name).


ARCHIVE_MAGIC = b"!<arch>\n"
THIN_ARCHIVE_MAGIC = b"!<thin>\n"

_HEADER_SIZE = 60
_END_OF_HEADER = b"`\n"
#: Members that are no objects: symbol tables and the table of long names.
_TABLES = (b"/", b"//", b"/SYM64/", b"__.SYMDEF")
#: The largest library of a vendor has some ten thousand.
MOST_MEMBERS = 1 << 16


def archive_members(source: ByteSource, size: int, unread: list[str]) -> Iterator[Slice]:
    """Yield the members in file order, none twice; problems go to `unread`."""
    if source.read(0, len(THIN_ARCHIVE_MAGIC)) == THIN_ARCHIVE_MAGIC:
        unread.append("a thin archive: its members are separate files; scan those instead")
        return
    at = len(ARCHIVE_MAGIC)
    count = 0
    while at < size:
        head = source.read(at, _HEADER_SIZE)
        digits = head[48:58].strip()
        if not head.endswith(_END_OF_HEADER) or len(head) < _HEADER_SIZE or not digits.isdigit():
            unread.append(f"the archive is damaged: there is no member at offset {at}")
            return
        start, length = at + _HEADER_SIZE, int(digits)
        if start + length > size:
            unread.append(f"the archive is cut short inside the member at offset {at}")
            return
        at = start + length + length % 2
        name = head[:16].rstrip()
        if name.startswith(b"#1/") and name[3:].isdigit():
            name_length = min(int(name[3:]), length)
            name = source.read(start, min(name_length, 16)).rstrip(b"\0")
            start, length = start + name_length, length - name_length
        if name.startswith(_TABLES[3]) or name in _TABLES:
            continue
        if count == MOST_MEMBERS:
            unread.append(f"only the first {MOST_MEMBERS} members of the archive were read")
            return
        count += 1
        yield Slice(source, start, length)
