"""Libraries and Python modules of Windows and macOS, and what those of Windows link.

Microsoft, PE Format: headers, section table, import and delay-load import directories.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack_from

from buildmatrix.elf.source import ByteSource

#: First bytes -> kind. A Mach-O file for several machines begins as a Java class does.
MAGICS = ((b"MZ", "pe"), (b"\xcf\xfa\xed\xfe", "macho"), (b"\xca\xfe\xba\xbe", "macho"))
#: What libraries and Python modules in code of the machine are called, on any system.
SUFFIXES = frozenset({"dll", "dylib", "pyd", "so"})
_HEADERS = 4 << 10
_MOST_SECTIONS = 100
_MOST_LINKS = 500
_LONGEST_NAME = 260
#: Directories of imports: their number, bytes of an entry, and where it has the name.
_DIRECTORIES = ((1, 20, 12), (13, 32, 4))


def detect_kind(name: str, head: bytes) -> str | None:
    """Return `pe` or `macho` for a library or module of Windows or macOS, else None."""
    if name.rpartition(".")[2].lower() not in SUFFIXES:
        return None
    return next((kind for magic, kind in MAGICS if head.startswith(magic)), None)


def read_links(source: ByteSource) -> tuple[str, ...]:
    """Return the libraries that a PE file links; of a damaged file, those before the damage."""
    head = source.read(0, _HEADERS)
    if len(head) < 64:
        return ()
    (start,) = unpack_from("<I", head, 60)
    if start > len(head) - 24 or head[start : start + 4] != b"PE\0\0":
        return ()
    sections, optional = unpack_from("<H", head, start + 6)[0], start + 24
    table = optional + unpack_from("<H", head, start + 20)[0]
    at = optional + (112 if head[optional : optional + 2] == b"\x0b\x02" else 96)
    places = [
        (address, size, offset)
        for number in range(min(sections, _MOST_SECTIONS))
        if len(part := head[table + 40 * number : table + 40 * (number + 1)]) == 40
        for _, address, size, offset in [unpack_from("<4I", part, 8)]
    ]
    names: dict[str, None] = {}
    for number, length, field in _DIRECTORIES:
        entry = at + 8 * number
        if entry + 8 <= min(table, len(head)):
            (address,) = unpack_from("<I", head, entry)
            names |= dict.fromkeys(_names(source, places, address, length, field))
    return tuple(names)


def _names(
    source: ByteSource, places: list[tuple[int, int, int]], address: int, length: int, field: int
) -> Iterator[str]:
    begin = _offset(places, address)
    entries = source.read(begin, length * _MOST_LINKS) if begin else b""
    for at in range(0, len(entries) - length + 1, length):
        offset = _offset(places, unpack_from("<I", entries, at + field)[0])
        if not offset:
            return
        name = source.read(offset, _LONGEST_NAME).partition(b"\0")[0]
        if name.isascii() and name.decode().isprintable():
            yield name.decode()


def _offset(places: list[tuple[int, int, int]], address: int) -> int:
    """Return the place of an address in the file; 0 for none."""
    for start, size, offset in places:
        if address and start <= address < start + size:
            return address - start + offset
    return 0
