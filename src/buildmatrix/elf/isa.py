"""Instruction levels of x86-64 in the GNU properties of an object.

Source: x86-64 psABI, "Program Property"; sysdeps/x86/dl-prop.h of glibc, whose ld.so refuses an
object that needs a level which the processor lacks. `-z x86-64-v3` of the linker, and `-mneeded` of
the compiler, write that. What is only used has its own switch in the program, and is no condition.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from buildmatrix.elf.layout import Layout

#: GNU_PROPERTY_X86_ISA_1_NEEDED and _USED: a bit per level, the lowest for the baseline.
ISA_NEEDED = 0xC000_8002
ISA_USED = 0xC001_0002

_LEVEL = re.compile(r"x86-64(?:-v([1-9][0-9]?))?")


@dataclass(frozen=True, slots=True)
class InstructionLevels:
    """The highest level of each property, `x86-64` or `x86-64-v3`; None where there is none."""

    needed: str | None = None
    used: str | None = None
    #: Whether a property goes on behind the end of its note, or has a size that it cannot have.
    is_damaged: bool = False


def read_levels(value: bytes, layout: Layout) -> InstructionLevels:
    """What the properties of one note (NT_GNU_PROPERTY_TYPE_0) say.

    Properties are sorted by their numbers and padded to the size of an address.
    """
    head, padding = layout.property, layout.bits // 8
    masks: dict[int, int] = {}
    at = 0
    while at + head.size <= len(value):
        kind, size = head.unpack_from(value, at)
        at += head.size
        if at + size > len(value) or (kind in (ISA_NEEDED, ISA_USED) and size != 4):
            return InstructionLevels(_name(masks, ISA_NEEDED), is_damaged=True)
        if size == 4:
            masks.setdefault(kind, layout.number.unpack_from(value, at)[0])
        at += -(-size // padding) * padding
    return InstructionLevels(_name(masks, ISA_NEEDED), _name(masks, ISA_USED))


def _name(masks: dict[int, int], kind: int) -> str | None:
    level = masks.get(kind, 0).bit_length()
    return None if level == 0 else "x86-64" if level == 1 else f"x86-64-v{level}"


def level_number(name: str) -> int | None:
    """1 for `x86-64`, 3 for `x86-64-v3`; None for what is no such level."""
    match = _LEVEL.fullmatch(name)
    return None if match is None else int(match[1] or 1)
