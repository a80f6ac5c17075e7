"""PTX text in host data: programs that the driver compiles at run time.

Source: NVIDIA, PTX ISA 9.0, section 11.1 (PTX Module Directives): `.version`, `.target` and
`.address_size` come first, in this order. `fatbin` reads the PTX in fat binaries.
"""

from __future__ import annotations

import re

from buildmatrix.device_code.entries import CodeContainer, CodeEntry
from buildmatrix.elf.source import ByteSource

MAGIC = b".version "
#: Directive searched for. It is rarer than `MAGIC`, which precedes it by at most `BEFORE` bytes.
SEARCHED = b".address_size "
BEFORE = 200

_HEAD = re.compile(
    rb"\.version +(?P<language>[0-9]{1,2}\.[0-9]{1,2})\s+"
    rb"\.target +sm_(?P<sm>[0-9]{1,4}[af]?)\b[^\n]{0,80}\n\s*"
    rb"\.address_size +(?:32|64)\b"
)
#: A text without a function is the header of a program to be assembled at run time.
_PROGRAM = re.compile(rb"\.(?:entry|func)\b")
#: Bytes that contain the beginning of the first function.
_PREAMBLE = 4 << 10
_STEP = 64 << 10


def read(source: ByteSource, offset: int, limit: int) -> CodeContainer | None:
    """Read the program at `offset`; `limit` is the end of the section or region holding it."""
    start = source.read(offset, min(_PREAMBLE, limit - offset))
    head = _HEAD.match(start)
    if head is None or not _PROGRAM.search(start.partition(b"\0")[0]):
        return None
    end = offset
    while end < limit:
        data = source.read(end, min(_STEP, limit - end))
        nul = data.find(b"\0")
        end += nul if nul >= 0 else len(data)
        if nul >= 0 or not data:
            break
    arch = f"compute_{head['sm'].decode()}"
    language = head["language"].decode()
    entry = CodeEntry("ptx-text", "ptx", arch, offset, end - offset, language=language)
    return CodeContainer((entry,), end)
