"""Static archives: `ar` files whose members are relocatable objects.

Source: ar(5), in the dialects of System V and GNU (`/12` points into a table of long names) and BSD
(`#1/12` is followed by the name).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from buildmatrix.elf.source import ByteSource

MAGIC = b"!<arch>\n"
THIN_MAGIC = b"!<thin>\n"

_HEADER_SIZE = 60
_END_OF_HEADER = b"`\n"
#: Members that are no objects: symbol tables and the table of long names.
_TABLES = (b"/", b"//", b"/SYM64/", b"__.SYMDEF")
#: The largest library of a vendor has some ten thousand.
MOST_MEMBERS = 1 << 16


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """One file in an archive: `offset` of its bytes in the archive, `size` in bytes."""

    offset: int
    size: int


class MemberSource:
    """The bytes of one member."""

    def __init__(self, source: ByteSource, member: ArchiveMember) -> None:
        self._source = source
        self._member = member

    def read(self, offset: int, length: int) -> bytes:
        """See `ByteSource.read`."""
        length = min(length, self._member.size - offset)
        return self._source.read(self._member.offset + offset, length) if length > 0 else b""


def members(source: ByteSource, size: int, unread: list[str]) -> Iterator[ArchiveMember]:
    """The members in file order, none twice; trouble goes to `unread`."""
    if source.read(0, len(THIN_MAGIC)) == THIN_MAGIC:
        unread.append("a thin archive: its members lie in other files, scan those")
        return
    at = len(MAGIC)
    count = 0
    while at < size:
        head = source.read(at, _HEADER_SIZE)
        digits = head[48:58].strip()
        if not head.endswith(_END_OF_HEADER) or len(head) < _HEADER_SIZE or not digits.isdigit():
            unread.append(f"the archive is damaged: there is no member at offset {at}")
            return
        start, length = at + _HEADER_SIZE, int(digits)
        if start + length > size:
            unread.append(f"the archive is cut short inside the member at offset {at}")
            return
        at = start + length + length % 2
        name = head[:16].rstrip()
        if name.startswith(b"#1/") and name[3:].isdigit():
            name_length = min(int(name[3:]), length)
            name = source.read(start, min(name_length, 16)).rstrip(b"\0")
            start, length = start + name_length, length - name_length
        if name.startswith(_TABLES[3]) or name in _TABLES:
            continue
        if count == MOST_MEMBERS:
            unread.append(f"only the first {MOST_MEMBERS} members of the archive were read")
            return
        count += 1
        yield ArchiveMember(start, length)
