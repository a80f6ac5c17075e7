"""Names of kernels, from the first bytes of a piece of device code.

No tables are followed: compilers put the names of sections and symbols first, so the beginning has
them whether or not the piece is compressed. In a cubin each kernel has a section for its constants,
and each function one for its code; AMD's code objects have a symbol `NAME.kd` per kernel; PTX
declares them.
"""

from __future__ import annotations

import re
import zlib

from buildmatrix.device_code import bundles, fatbin
from buildmatrix.device_code.entries import CodeEntry
from buildmatrix.elf.source import ByteSource

#: Decompressed bytes of a piece that are looked at.
HEAD = 32 << 10
#: Bytes of it on disk that they are read from.
_PACKED = 128 << 10
#: Characters of a name that are kept; those of CUTLASS go on to four thousand.
LONGEST_NAME = 512
_NAME = rb"(?P<name>[A-Za-z_$.][\w$.]{0,%d})" % (LONGEST_NAME - 1)
#: By the kind of code. The last one of a list says whether there is any code at all.
_PATTERNS = {
    "sass": (
        re.compile(rb"\0\.nv\.constant0\.%b" % _NAME),
        re.compile(rb"\0\.text\.%b" % _NAME),
    ),
    "ptx": (re.compile(rb"\.entry\s+%b" % _NAME),),
    "amdgcn": (re.compile(rb"\0%b\.kd(?=\0)" % _NAME),),
}
#: Parts of a name as the Itanium C++ ABI mangles it: a length, then as many letters.
_PART = re.compile(r"L?(\d{1,4})")
_ANONYMOUS = "_GLOBAL__N_"


def kernels(source: ByteSource, entry: CodeEntry, most: int) -> tuple[tuple[str, ...], bool]:
    """Names of kernels in a piece, at most so many, and whether there are none for sure.

    Nothing where the piece cannot be read, or is in a format that is not looked into.
    """
    patterns = _PATTERNS.get(entry.kind, ())
    try:
        data, is_whole = _head(source, entry) if patterns else (b"", False)
    except (ValueError, zlib.error):
        return (), False
    for pattern in patterns:
        # What goes on behind these bytes is not the whole name.
        names = dict.fromkeys(
            match["name"].decode()
            for match in pattern.finditer(data)
            if is_whole or match.end() < len(data)
        )
        if names:
            return tuple(names)[:most], False
    return (), is_whole and bool(data)


def _head(source: ByteSource, entry: CodeEntry) -> tuple[bytes, bool]:
    """The first bytes of a piece, and whether they are all. Raises ValueError or zlib.error."""
    if entry.format == "nv-fatbin":
        return fatbin.payload(source, entry, _PACKED, HEAD)
    if entry.format == "hip-ccob":
        return bundles.first_image(source, entry, _PACKED, HEAD), False
    if entry.compressed:
        return b"", False
    return source.read(entry.offset, min(HEAD, entry.size)), entry.size <= HEAD


def readable_name(symbol: str) -> str:
    """`at::native::fill_kernel` for a mangled name, without its arguments; else as it is."""
    if not symbol.startswith("_Z"):
        return symbol
    at = 3 if symbol.startswith("_ZN") else 2
    parts: list[str] = []
    while match := _PART.match(symbol, at):
        end = match.end() + int(match[1])
        part = symbol[match.end() : end]
        if not part.startswith(_ANONYMOUS):
            parts.append(part)
        at = end
        if symbol[2] != "N":
            break
    return "::".join(parts) or symbol
