"""cpio archives, including RPM packages and initial RAM disks.

Formats: cpio(5), with and without checksums ("newc"), POSIX ("odc") and binary; the RPM file
format, versions 3 and 4 (rpm-software-management.github.io/rpm/manual/format_v4.html).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from buildmatrix.facts.trees.archive import CHUNK, Slice
from buildmatrix.facts.trees.base import Unreadable
from buildmatrix.facts.trees.tar import MAX_MEMBERS

RPM_MAGIC = b"\xed\xab\xee\xdb"
_NEW = re.compile(rb"07070[12][0-9A-Fa-f]{104}")
_POSIX = re.compile(rb"070707[0-7]{70}")
_BINARY = {b"\xc7\x71": struct.Struct("<13H"), b"\x71\xc7": struct.Struct(">13H")}
#: Bytes of the longest header.
HEADER = 110
_MAX_NAME = 4096
_END_NAME = "TRAILER!!!"
_KIND, _FILE = 0o170000, 0o100000

#: Bytes before the first header of an RPM package, and the layout of a header.
_LEAD = 96
_RPM_HEADER = struct.Struct(">4s4xII")
_RPM_HEADER_MAGIC = b"\x8e\xad\xe8\x01"


@dataclass(frozen=True, slots=True)
class _Header:
    mode: int
    size: int
    name_size: int
    #: Bytes of the header, and alignment of names and files.
    length: int
    padding: int

    def name_end(self, at: int) -> int:
        """Return the end of the padded name of the entry at `at`."""
        return at + _pad(self.length + self.name_size, self.padding)


def is_cpio(head: bytes) -> bool:
    """Return True if the first bytes of a file are those of a cpio archive."""
    header = _parse_header(head)
    if header is None or not 1 < header.name_size <= _MAX_NAME:
        return False
    # A binary header has a magic of only two bytes: also check the NUL that ends the name.
    end = header.length + header.name_size - 1
    return end >= len(head) or head[end] == 0


def iter_files(archive: Slice) -> Iterator[tuple[str, Slice]]:
    """Yield the files of the archive in order, with their names as stored. Raises `Unreadable`."""
    at = 0
    for _ in range(MAX_MEMBERS):
        header = _parse_header(archive.read(at, min(HEADER, archive.size - at)))
        if header is None or not 1 < header.name_size <= _MAX_NAME:
            raise Unreadable(f"no readable cpio archive: there is no header at {at}")
        name = archive.read(at + header.length, header.name_size).rstrip(b"\0")
        start = header.name_end(at)
        text = name.decode("utf-8", "surrogateescape")
        if text == _END_NAME:
            _check_end(archive, start)
            return
        if start + header.size > archive.size:
            raise Unreadable("the archive ends inside of it: it is truncated")
        if header.mode & _KIND == _FILE:
            yield text, Slice(archive, start, header.size)
        at = start + _pad(header.size, header.padding)
    raise Unreadable(f"the archive has more than {MAX_MEMBERS} entries")


def rpm_payload(package: Slice) -> Slice:
    """Return the archive in an RPM package, maybe compressed. Raises `Unreadable`."""
    at = _LEAD
    for padding in (8, 1):
        head = package.read(at, min(_RPM_HEADER.size, package.size - at))
        if len(head) < _RPM_HEADER.size or not head.startswith(_RPM_HEADER_MAGIC):
            raise Unreadable("no readable RPM package: a header is not where it should be")
        _, entries, size = _RPM_HEADER.unpack(head)
        at += _pad(_RPM_HEADER.size + 16 * entries + size, padding)
    if at >= package.size:
        raise Unreadable("no readable RPM package: it ends before its files")
    return Slice(package, at, package.size - at)


def _parse_header(head: bytes) -> _Header | None:
    if _NEW.match(head):
        fields = [int(head[at : at + 8], 16) for at in range(6, HEADER, 8)]
        return _Header(fields[1], fields[6], fields[11], HEADER, 4)
    if _POSIX.match(head):
        mode, name_size, size = (int(head[slice(*at)], 8) for at in ((18, 24), (59, 65), (65, 76)))
        return _Header(mode, size, name_size, 76, 1)
    binary = _BINARY.get(head[:2])
    if binary is None or len(head) < binary.size:
        return None
    fields = list(binary.unpack(head[: binary.size]))
    return _Header(fields[3], fields[11] << 16 | fields[12], fields[10], binary.size, 2)


def _pad(size: int, padding: int) -> int:
    return size + -size % padding


def _check_end(archive: Slice, at: int) -> None:
    """Raise `Unreadable` if data follows the end: the kernel would read on."""
    while at < archive.size:
        data = archive.source.read(archive.offset + at, min(CHUNK, archive.size - at))
        if not data:
            return
        if data.strip(b"\0"):
            raise Unreadable("more follows the end of the archive, which was not read")
        at += len(data)
