"""Intermediate code, which drivers compile: PTX, SPIR-V and LLVM bitcode."""

from __future__ import annotations

import re
from struct import Struct, unpack_from

from buildmatrix.facts.elf.model import CodeContainer, DeviceCode
from buildmatrix.facts.trees.base import ByteSource

# PTX.
#
# Source: NVIDIA, PTX ISA 9.0, section 11.1 (PTX Module Directives): `.version`, `.target` and
# `.address_size` come first, in this order. `fatbin` reads the PTX in fat binaries.


PTX_MAGIC = b".version "
#: Directive searched for, rarer than `PTX_MAGIC`, which precedes it by up to `PTX_BEFORE` bytes.
PTX_SEARCHED = b".address_size "
PTX_BEFORE = 200

_PTX_HEAD = re.compile(
    rb"\.version +(?P<language>[0-9]{1,2}\.[0-9]{1,2})\s+"
    rb"\.target +sm_(?P<sm>[0-9]{1,4}[af]?)\b[^\n]{0,80}\n\s*"
    rb"\.address_size +(?:32|64)\b"
)
#: A text without a function is the header of a program to be assembled at run time.
_PROGRAM = re.compile(rb"\.(?:entry|func)\b")
#: Bytes that contain the beginning of the first function.
_PTX_PREAMBLE = 4 << 10
_PTX_STEP = 64 << 10


def read_ptx(source: ByteSource, offset: int, limit: int) -> CodeContainer | None:
    """Read the program at `offset`; `limit` is the end of the section or region holding it."""
    start = source.read(offset, min(_PTX_PREAMBLE, limit - offset))
    head = _PTX_HEAD.match(start)
    if head is None or not _PROGRAM.search(start.partition(b"\0")[0]):
        return None
    end = offset
    while end < limit:
        data = source.read(end, min(_PTX_STEP, limit - end))
        nul = data.find(b"\0")
        end += nul if nul >= 0 else len(data)
        if nul >= 0 or not data:
            break
    arch = f"compute_{head['sm'].decode()}"
    language = head["language"].decode()
    entry = DeviceCode("ptx-text", "ptx", arch, 1, end - offset, offset, language=language)
    return CodeContainer((entry,), end)


# SPIR-V.
#
# Source: Khronos, SPIR-V specification 1.6, sections 2.3 (physical layout) and 2.4 (logical
# layout).


SPIRV_MAGIC = b"\x03\x02\x23\x07"

#: magic, version, generator, bound, schema.
_SPIRV_HEADER = Struct("<4sIIII")
_NEWEST = 0x00010F00
_LARGEST_BOUND = 1 << 26

_OP_MEMORY_MODEL = 14
_OP_FUNCTION_END = 56
#: OpExtension, OpExtInstImport, OpCapability: the only instructions before the memory model.
_DECLARATIONS = (10, 11, 17)
#: Limit that tells instructions from text: the second byte of text makes a larger number.
_OPCODES = 0x2000
#: OpFunction, and OpLine and OpNoLine, which may precede it.
_BETWEEN_FUNCTIONS = (54, 8, 317)

#: Bytes that must contain the memory model.
_SPIRV_PREAMBLE = 4 << 10
#: Size limit of a module in host data; the largest seen has five million bytes.
_LONGEST = 8 << 20
#: Bytes of a module read per step: first, and at most.
_FIRST_STEP = 1 << 10
_LARGEST_STEP = 64 << 10
#: Bytes in which most modules end.
_NEAR = 32 << 10
#: OpFunctionEnd without an instruction behind it that may stand between functions; OpFunction.
_END = re.compile(rb"\x38\0\x01\0(?!\x36\0\x05\0|\x08\0\x04\0|\x3d\x01\x01\0)")
_FUNCTION = b"\x36\0\x05\0"
#: The identifier with the same number as OpFunctionEnd.
_LOOKS_LIKE_END = 1 << 16 | _OP_FUNCTION_END

#: Addressing models; the names are those of LLVM's targets.
_ARCHS = {0: "spirv", 1: "spirv32", 2: "spirv64", 5348: "spirv"}


def read_spirv(source: ByteSource, offset: int, limit: int) -> CodeContainer | None:
    """Read the module at `offset`; `limit` is the end of the section or region holding it."""
    architecture = read_addressing_model(source, offset, limit)
    if architecture is None:
        return None
    limit = min(limit, offset + _LONGEST)
    near = source.read(offset, min(_NEAR, limit - offset))
    # A module ends with its last function.
    size = _find_end(near) or _walk(source, offset, limit)
    code = DeviceCode("spirv", "spirv", architecture, 1, size, offset)
    return CodeContainer((code,), offset + size)


def read_addressing_model(source: ByteSource, offset: int, limit: int) -> str | None:
    """Return the addressing model of the module at `offset`; None if there is no module.

    A module has the magic number and, behind declarations only, an instruction for the memory
    model. No other data looks like that, not even a SPIR-V parser.
    """
    data = source.read(offset, min(_SPIRV_PREAMBLE, limit - offset))
    if len(data) < _SPIRV_HEADER.size:
        return None
    magic, version, _, bound, schema = _SPIRV_HEADER.unpack_from(data)
    if (
        magic != SPIRV_MAGIC
        or not 0x00010000 <= version <= _NEWEST
        or version & 0xFF
        or not 0 < bound <= _LARGEST_BOUND
        or schema
    ):
        return None
    at = _SPIRV_HEADER.size
    while at + 8 <= len(data):
        word = int.from_bytes(data[at : at + 4], "little")
        opcode, words = word & 0xFFFF, word >> 16
        if opcode == _OP_MEMORY_MODEL and at > _SPIRV_HEADER.size:
            return _ARCHS.get(int.from_bytes(data[at + 4 : at + 8], "little"))
        if opcode not in _DECLARATIONS or not words:
            return None
        at += 4 * words
    return None


def _find_end(data: bytes) -> int | None:
    """Return where the module that `data` begins with ends; None if that takes a walk.

    A pattern finds the end twenty times as fast, as libraries with thousands of modules need.
    Modules without a function before the end, or with identifiers that look like it, take the walk.
    """
    if int.from_bytes(data[12:16], "little") > _LOOKS_LIKE_END:
        return None
    match = _END.search(data)
    if match is None or match.end() % 4 or match.end() + 4 > len(data):
        return None
    inside = data[len(SPIRV_MAGIC) : match.end()]
    return match.end() if _FUNCTION in inside and SPIRV_MAGIC not in inside else None


def _walk(source: ByteSource, offset: int, limit: int) -> int:
    """Return the size of a module in bytes, walking its instructions.

    All bytes walked count as the module; otherwise modules hidden in broken ones would take
    quadratic time.
    """
    at = offset + _SPIRV_HEADER.size
    ended = False
    step = _FIRST_STEP
    while at + 4 <= limit:
        data = source.read(at, min(step, limit - at))
        step = min(4 * step, _LARGEST_STEP)
        count = len(data) // 4
        index, remaining = 0, (limit - at) // 4
        words = unpack_from(f"<{count}I", data)
        while index < count:
            opcode, length = words[index] & 0xFFFF, words[index] >> 16
            if (
                not 0 < length <= remaining - index
                or not 0 < opcode < _OPCODES
                or (ended and opcode not in _BETWEEN_FUNCTIONS)
            ):
                return at + 4 * index - offset
            ended = opcode == _OP_FUNCTION_END
            index += length
        if not count:
            break
        at += 4 * index
    return at - offset


# LLVM bitcode.
#
# Source: LLVM's docs/BitCodeFormat.rst. Bitcode is a stream of bits, lowest first, in blocks. The
# triple is a record of the module block that LLVM writes without an abbreviation.


BITCODE_MAGIC = b"BC\xc0\xde"
BITCODE_WRAPPER_MAGIC = b"\xde\xc0\x17\x0b"

#: Bytes searched. Blocks of attributes and types come first and take some ten kilobytes.
_SEARCHED = 1 << 20
_MOST_ITEMS = 4096
_LONGEST_TRIPLE = 256

_END_BLOCK, _ENTER_BLOCK, _DEFINE_ABBREVIATION, _RECORD = range(4)
_MODULE_BLOCK = 8
_TRIPLE = 2


def read_triple(source: ByteSource, offset: int, limit: int) -> str | None:
    """Return `nvptx64-nvidia-cuda`, `amdgcn-amd-amdhsa`, `x86_64-...`; None if unreadable."""
    data = source.read(offset, min(_SEARCHED, limit - offset))
    if data.startswith(BITCODE_WRAPPER_MAGIC):
        # magic, version, offset, size, CPU type
        start = int.from_bytes(data[8:12], "little")
        data = source.read(offset + start, max(0, min(_SEARCHED, limit - offset - start)))
    if not data.startswith(BITCODE_MAGIC):
        return None
    try:
        return _read_module_triple(_Bits(data))
    except _BrokenBitcode:
        return None


class _BrokenBitcode(Exception):
    """The stream is truncated or uses a feature that this reader does not support."""


class _Bits:
    """Bit reader, lowest bit of each byte first."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 8 * len(BITCODE_MAGIC)

    def fixed(self, width: int) -> int:
        """Read a number of `width` bits."""
        first, last = self.at // 8, (self.at + width + 7) // 8
        if last > len(self._data):
            raise _BrokenBitcode
        word = int.from_bytes(self._data[first:last], "little") >> self.at % 8
        self.at += width
        return word & (1 << width) - 1

    def variable(self, width: int) -> int:
        """Read a number in groups of `width` bits; the highest bit says if another follows."""
        more = 1 << width - 1
        value = shift = 0
        while shift < 64:
            group = self.fixed(width)
            value |= (group & more - 1) << shift
            if not group & more:
                return value
            shift += width - 1
        raise _BrokenBitcode

    def align(self) -> None:
        """Continue at the next multiple of 32 bits."""
        self.at += -self.at % 32


def _read_module_triple(bits: _Bits) -> str | None:
    width, inside = 2, False
    for _ in range(_MOST_ITEMS):
        code = bits.fixed(width)
        if code == _ENTER_BLOCK:
            block, new_width = bits.variable(8), bits.variable(4)
            bits.align()
            words = bits.fixed(32)
            if block == _MODULE_BLOCK and not inside and 2 <= new_width <= 32:
                width, inside = new_width, True
            else:
                bits.at += 32 * words
        elif code == _DEFINE_ABBREVIATION and inside:
            _skip_abbreviation(bits)
        elif code == _RECORD and inside:
            number, count = bits.variable(6), bits.variable(6)
            if number == _TRIPLE and count <= _LONGEST_TRIPLE:
                letters = bytes(bits.variable(6) & 0xFF for _ in range(count))
                return letters.decode("ascii", "replace")
            if count > _SEARCHED:
                raise _BrokenBitcode
            for _ in range(count):
                bits.variable(6)
        else:
            # The end of the module, or an abbreviated record: the triple would have come before.
            return None
    return None


def _skip_abbreviation(bits: _Bits) -> None:
    for _ in range(bits.variable(5)):
        if bits.fixed(1):
            bits.variable(8)
        elif bits.fixed(3) in (1, 2):
            bits.variable(5)
