"""cpio archives, and the RPM packages and initial RAM disks that are such.

Formats: cpio(5), without and with checksums ("newc"), of POSIX ("odc") and in binary; the RPM file
format, version 3 and 4 (rpm-software-management.github.io/rpm/manual/format_v4.html).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from buildmatrix.trees.archive import CHUNK, Slice
from buildmatrix.trees.base import Unreadable
from buildmatrix.trees.tar import MOST_MEMBERS

RPM_MAGIC = b"\xed\xab\xee\xdb"
_NEW = re.compile(rb"07070[12][0-9A-Fa-f]{104}")
_POSIX = re.compile(rb"070707[0-7]{70}")
_BINARY = {b"\xc7\x71": struct.Struct("<13H"), b"\x71\xc7": struct.Struct(">13H")}
#: Bytes of the longest header.
HEADER = 110
_LONGEST_NAME = 4096
_END = "TRAILER!!!"
_KIND, _FILE = 0o170000, 0o100000

#: Bytes before the first header of an RPM package, and what a header begins with.
_LEAD = 96
_RPM_HEADER = struct.Struct(">4s4xII")
_RPM_HEADER_MAGIC = b"\x8e\xad\xe8\x01"


@dataclass(frozen=True, slots=True)
class CpioFile:
    """One file: its name as stored, and its bytes."""

    name: str
    data: Slice


@dataclass(frozen=True, slots=True)
class _Header:
    mode: int
    size: int
    name_size: int
    #: Bytes of the header, and what names and files are padded to.
    length: int
    padding: int

    def name_end(self, at: int) -> int:
        """Where the padded name of the entry at `at` ends."""
        return at + _padded(self.length + self.name_size, self.padding)


def is_cpio(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a cpio archive."""
    header = _header(head)
    if header is None or not 1 < header.name_size <= _LONGEST_NAME:
        return False
    # The magic of a binary one is two bytes; names end with a NUL.
    end = header.length + header.name_size - 1
    return end >= len(head) or head[end] == 0


def files(archive: Slice) -> Iterator[CpioFile]:
    """The files of the archive, in order. Raises `Unreadable`."""
    at = 0
    for _ in range(MOST_MEMBERS):
        header = _header(archive.read(at, min(HEADER, archive.size - at)))
        if header is None or not 1 < header.name_size <= _LONGEST_NAME:
            raise Unreadable(f"no readable cpio archive: there is no header at {at}")
        name = archive.read(at + header.length, header.name_size).rstrip(b"\0")
        start = header.name_end(at)
        text = name.decode("utf-8", "surrogateescape")
        if text == _END:
            _check_end(archive, start)
            return
        if start + header.size > archive.size:
            raise Unreadable("the archive ends inside of it: it is truncated")
        if header.mode & _KIND == _FILE:
            yield CpioFile(text, Slice(archive, start, header.size))
        at = start + _padded(header.size, header.padding)
    raise Unreadable(f"the archive has more than {MOST_MEMBERS} entries")


def rpm_payload(package: Slice) -> Slice:
    """The archive of the files in an RPM package, which may be compressed. Raises `Unreadable`."""
    at = _LEAD
    for padding in (8, 1):
        head = package.read(at, min(_RPM_HEADER.size, package.size - at))
        if len(head) < _RPM_HEADER.size or not head.startswith(_RPM_HEADER_MAGIC):
            raise Unreadable("no readable RPM package: a header is not where it should be")
        _, entries, size = _RPM_HEADER.unpack(head)
        at += _padded(_RPM_HEADER.size + 16 * entries + size, padding)
    if at >= package.size:
        raise Unreadable("no readable RPM package: it ends before its files")
    return Slice(package, at, package.size - at)


def _header(head: bytes) -> _Header | None:
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


def _padded(size: int, padding: int) -> int:
    return size + -size % padding


def _check_end(archive: Slice, at: int) -> None:
    """What follows the end is zeros. The kernel reads on, in whatever else follows."""
    while at < archive.size:
        data = archive.source.read(archive.offset + at, min(CHUNK, archive.size - at))
        if not data:
            return
        if data.strip(b"\0"):
            raise Unreadable("more follows the end of the archive, which was not read")
        at += len(data)
