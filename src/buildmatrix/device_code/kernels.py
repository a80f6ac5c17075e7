"""Kernel names from the first bytes of a piece of device code.

No tables are followed: compilers put the names of sections and symbols first, so the beginning has
them, compressed or not. In a cubin each kernel has a section for its constants, and each function
one for its code; AMD code objects have a symbol `NAME.kd` per kernel; PTX declares kernels.
"""

from __future__ import annotations

import re
import zlib

from buildmatrix.device_code import bundles, fatbin
from buildmatrix.device_code.entries import CodeEntry
from buildmatrix.elf.source import ByteSource

#: Decompressed bytes of a piece that are examined.
HEAD = 32 << 10
#: Bytes on disk read for them.
_PACKED = 128 << 10
#: Longest name, in characters; names in CUTLASS reach four thousand.
LONGEST_NAME = 512
_NAME = rb"(?P<name>[A-Za-z_$.][\w$.]{0,%d})" % (LONGEST_NAME - 1)
#: Patterns by kind of code. The last pattern of a list shows if there is any code at all.
_PATTERNS = {
    "sass": (
        re.compile(rb"\0\.nv\.constant0\.%b" % _NAME),
        re.compile(rb"\0\.text\.%b" % _NAME),
    ),
    "ptx": (re.compile(rb"\.entry\s+%b" % _NAME),),
    "amdgcn": (re.compile(rb"\0%b\.kd(?=\0)" % _NAME),),
}
#: A part of a name mangled per the Itanium C++ ABI: a length, then as many letters.
_PART = re.compile(r"L?(\d{1,4})")
_ANONYMOUS = "_GLOBAL__N_"


def read_kernel_names(
    source: ByteSource, entry: CodeEntry, most: int
) -> tuple[tuple[str, ...], bool]:
    """Return up to `most` kernel names of a piece, and True if it certainly has none.

    Returns no names for an unreadable piece or an unsupported format.
    """
    patterns = _PATTERNS.get(entry.kind, ())
    try:
        data, is_whole = _head(source, entry) if patterns else (b"", False)
    except (ValueError, zlib.error):
        return (), False
    for pattern in patterns:
        # A name that runs past these bytes is incomplete.
        names = dict.fromkeys(
            match["name"].decode()
            for match in pattern.finditer(data)
            if is_whole or match.end() < len(data)
        )
        if names:
            return tuple(names)[:most], False
    return (), is_whole and bool(data)


def _head(source: ByteSource, entry: CodeEntry) -> tuple[bytes, bool]:
    """Return the first bytes of a piece, True if that is all. Raises ValueError, zlib.error."""
    if entry.format == "nv-fatbin":
        return fatbin.read_payload(source, entry, _PACKED, HEAD)
    if entry.format == "hip-ccob":
        return bundles.read_first_image(source, entry, _PACKED, HEAD), False
    if entry.compressed:
        return b"", False
    return source.read(entry.offset, min(HEAD, entry.size)), entry.size <= HEAD


def demangle(symbol: str) -> str:
    """Return `at::native::fill_kernel` for a mangled name, without arguments; others unchanged."""
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
