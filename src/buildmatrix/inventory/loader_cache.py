"""Reader for /etc/ld.so.cache, ld.so's index of the folders in ld.so.conf.

Format: `struct cache_file_new` of glibc's sysdeps/generic/dl-cache.h, "glibc-ld.so.cache1.1", which
may follow the old format in the same file, in either byte order.
"""

from __future__ import annotations

from struct import Struct

from buildmatrix.inventory.model import CachedLibrary

#: File size limit; a full desktop's has 300 KB.
LARGEST_CACHE = 16 << 20
MOST_ENTRIES = 100_000
LONGEST_STRING = 4096

_MAGIC = b"glibc-ld.so.cache1.1"
#: nlibs, len_strings, flags, padding, extension_offset, unused.
_HEADER = "IIB3xI12x"
#: flags, key, value, osversion, hwcap.
_ENTRY = "iIIIQ"
#: magic and count; then tag, flags, offset and size of each section.
_EXTENSION = "II"
_SECTION = "IIII"
_EXTENSION_MAGIC = 0xEAA42174
_TAG_HWCAPS = 1
#: Flag: the low word of hwcap is an index into the names of glibc-hwcaps folders.
_IS_HWCAPS = 1 << 62
_BIG_ENDIAN = 3


def read_cache(data: bytes) -> tuple[CachedLibrary, ...]:
    """Return the entries in file order. Raises ValueError, one sentence, for broken bytes."""
    start = data.find(_MAGIC)
    if start < 0:
        raise ValueError("no ld.so.cache of the format 1.1")
    data = data[start:]
    order = "<"
    header = Struct(order + _HEADER)
    if len(data) < len(_MAGIC) + header.size:
        raise ValueError("ld.so.cache ends inside its header")
    if data[len(_MAGIC) + 8] & 3 == _BIG_ENDIAN:
        order = ">"
        header = Struct(order + _HEADER)
    count, _, _, extension = header.unpack_from(data, len(_MAGIC))
    entry = Struct(order + _ENTRY)
    first = len(_MAGIC) + header.size
    if count > MOST_ENTRIES or first + count * entry.size > len(data):
        raise ValueError(f"ld.so.cache says that it has {count} entries, which it has not")
    levels = _read_hwcaps(data, order, extension)
    cached_libraries: list[CachedLibrary] = []
    for flags, key, value, _, hwcap in entry.iter_unpack(data[first : first + count * entry.size]):
        level: str | None = None
        if hwcap & _IS_HWCAPS:
            index = hwcap & 0xFFFFFFFF
            level = levels[index] if index < len(levels) else "unknown"
        elif hwcap:
            level = "unknown"
        cached_libraries.append(
            CachedLibrary(_read_string(data, key), _read_string(data, value), flags, level)
        )
    return tuple(cached_libraries)


def _read_hwcaps(data: bytes, order: str, offset: int) -> list[str]:
    """Return the names of the glibc-hwcaps folders."""
    extension, section = Struct(order + _EXTENSION), Struct(order + _SECTION)
    if not offset or offset + extension.size > len(data):
        return []
    magic, count = extension.unpack_from(data, offset)
    if magic != _EXTENSION_MAGIC:
        return []
    for number in range(min(count, 64)):
        at = offset + extension.size + number * section.size
        if at + section.size > len(data):
            break
        tag, _, start, size = section.unpack_from(data, at)
        if tag == _TAG_HWCAPS and start + size <= len(data):
            names = Struct(order + "I").iter_unpack(data[start : start + size // 4 * 4][:1024])
            return [_read_string(data, name) for (name,) in names]
    return []


def _read_string(data: bytes, offset: int) -> str:
    end = data.find(b"\0", offset, offset + LONGEST_STRING)
    if end < 0:
        raise ValueError("ld.so.cache names a string that lies outside of it")
    return data[offset:end].decode("utf-8", "backslashreplace")
