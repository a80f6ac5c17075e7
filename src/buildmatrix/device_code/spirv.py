"""SPIR-V modules in a file or in host data, outside of containers.

Source: Khronos, SPIR-V specification 1.6, sections 2.3 (physical layout) and 2.4 (logical layout).
"""

from __future__ import annotations

import re
from struct import Struct, unpack_from

from buildmatrix.device_code.entries import CodeContainer, CodeEntry
from buildmatrix.elf.source import ByteSource

MAGIC = b"\x03\x02\x23\x07"

#: magic, version, generator, bound, schema.
_HEADER = Struct("<4sIIII")
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
_PREAMBLE = 4 << 10
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


def read(source: ByteSource, offset: int, limit: int) -> CodeContainer | None:
    """Read the module at `offset`; `limit` is the end of the section or region holding it."""
    architecture = read_addressing_model(source, offset, limit)
    if architecture is None:
        return None
    size = _measure(source, offset, min(limit, offset + _LONGEST))
    return CodeContainer((CodeEntry("spirv", "spirv", architecture, offset, size),), offset + size)


def read_addressing_model(source: ByteSource, offset: int, limit: int) -> str | None:
    """Return the addressing model of the module at `offset`; None if there is no module.

    A module has the magic number and, behind declarations only, an instruction for the memory
    model. No other data looks like that, not even a SPIR-V parser.
    """
    data = source.read(offset, min(_PREAMBLE, limit - offset))
    if len(data) < _HEADER.size:
        return None
    magic, version, _, bound, schema = _HEADER.unpack_from(data)
    if (
        magic != MAGIC
        or not 0x00010000 <= version <= _NEWEST
        or version & 0xFF
        or not 0 < bound <= _LARGEST_BOUND
        or schema
    ):
        return None
    at = _HEADER.size
    while at + 8 <= len(data):
        opcode, words = _instruction(data, at)
        if opcode == _OP_MEMORY_MODEL and at > _HEADER.size:
            return _ARCHS.get(int.from_bytes(data[at + 4 : at + 8], "little"))
        if opcode not in _DECLARATIONS or not words:
            return None
        at += 4 * words
    return None


def _measure(source: ByteSource, offset: int, limit: int) -> int:
    """Return the size of a module in bytes; it ends with its last function."""
    near = source.read(offset, min(_NEAR, limit - offset))
    return _find_end(near) or _walk(source, offset, limit)


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
    inside = data[len(MAGIC) : match.end()]
    return match.end() if _FUNCTION in inside and MAGIC not in inside else None


def _walk(source: ByteSource, offset: int, limit: int) -> int:
    """Return the size of a module in bytes, walking its instructions.

    All bytes walked count as the module; otherwise modules hidden in broken ones would take
    quadratic time.
    """
    at = offset + _HEADER.size
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


def _instruction(data: bytes, at: int) -> tuple[int, int]:
    """Opcode and number of words of an instruction."""
    word = int.from_bytes(data[at : at + 4], "little")
    return word & 0xFFFF, word >> 16
