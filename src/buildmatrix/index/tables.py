"""The tables of single libraries in a wheel: what they link, need and define, and nothing else.

Linkers put the tables of symbols first, and the dynamic section, which says where they are, near
the end: see `index.ends`. Each library is read by itself, so the answer about it depends on its own
bytes alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from buildmatrix.binaries.ending import read_end
from buildmatrix.binaries.head_facts import Prefix, collect_linking
from buildmatrix.binaries.model import Elf
from buildmatrix.binaries.reader import read_elf
from buildmatrix.elf.headers import Malformed
from buildmatrix.elf.source import BytesSource
from buildmatrix.index.amounts import DYNAMIC_ENDS, HEAD, is_small
from buildmatrix.index.ending import Ending, inflate_end
from buildmatrix.index.heads import FIRST_PAGE
from buildmatrix.index.model import Member, Tables
from buildmatrix.index.parts import LARGEST_HEAD, Ranged
from buildmatrix.trees.base import Unreadable
from buildmatrix.trees.wheel import WheelTree
from buildmatrix.trees.zipdirectory import DEFLATED

#: Compressed bytes that are read as its beginning, until they hold its symbols. From the last but
#: one on, the symbols that it defines are enough: their hashes come before all names.
BEGINNINGS = (HEAD, 256 << 10, 1 << 20, 4 << 20)


def read_tables(source: Ranged, paths: Iterable[str]) -> Mapping[str, Tables]:
    """Return the tables of libraries, by path.

    Raises `Unreadable` when `source` is no ZIP archive, and what it raises.
    """
    tables: dict[str, Tables] = {}
    # Wheels hold no links: a library comes under each of its names.
    same: dict[tuple[int, int], Elf | None] = {}
    with WheelTree(source) as tree:
        members = {member.path: member for member in tree.members}
        for path in paths:
            member = members.get(path)
            if member is None:
                tables[path] = Tables(None)
                continue
            content, cost = (member.crc, member.size), 0
            if content not in same:
                reading = _Reading(source, tree, member)
                with suppress(Unreadable, Malformed):
                    same[content] = reading.read()
                same.setdefault(content, None)
                cost = reading.cost
            tables[path] = Tables(same[content], cost)
    return tables


class _Reading:
    """A look at one member, and the bytes that it costs."""

    def __init__(self, source: Ranged, tree: WheelTree, member: Member) -> None:
        self._source = source
        self._tree = tree
        self._member = member
        self.cost = 0

    def read(self) -> Elf | None:
        """The tables. Raises `Unreadable` and Malformed."""
        member, tree = self._member, self._tree
        if is_small(member):
            self.cost = member.compressed
            data = tree.packed(member.path).unpack()
            return read_elf(BytesSource(data), len(data), deep=False)
        self.cost = beginning = HEAD
        page = tree.beginning(member.path, HEAD, LARGEST_HEAD)
        elf = _collect(page, member.size, ())
        linking: tuple[tuple[int, bytes], ...] = ()
        if elf is not None and not elf.dynamic_read:
            linking = self._read_linking(page[:FIRST_PAGE])
            elf = _collect(page, member.size, linking)
        for length in BEGINNINGS:
            if elf is None or not elf.dynamic_read or elf.binding is not None:
                break
            if length == HEAD:
                continue
            length = min(length, member.compressed)
            self.cost += max(0, length - beginning)
            beginning = max(beginning, length)
            data = tree.beginning(member.path, length, LARGEST_HEAD)
            elf = _collect(data, member.size, linking)
            if elf is not None and elf.binding is None and length >= BEGINNINGS[-2]:
                elf = _collect(data, member.size, linking, exports_only=True)
        return elf if elf is not None and elf.dynamic_read else None

    def _read_linking(self, page: bytes) -> tuple[tuple[int, bytes], ...]:
        """Offset and bytes of what the loader links by, at the end of the member."""
        entry, start = self._tree.place(self._member.path)
        before = self.cost
        for length in DYNAMIC_ENDS:
            length = min(length, entry.compressed)
            self.cost = before + length
            data = self._source.read(start + entry.compressed - length, length)
            end = inflate_end(data) if entry.method == DEFLATED else Ending(data, data, data)
            sections = read_end(page, end, entry.size) if end is not None else None
            if sections is None and length >= DYNAMIC_ENDS[1]:
                break
            if sections is not None and any(
                at < sections.dynamic_end <= at + len(part) for at, part in sections.linking
            ):
                return sections.linking
            if length == entry.compressed:
                break
        return ()


def _collect(
    data: bytes,
    size: int,
    linking: Iterable[tuple[int, bytes]],
    *,
    exports_only: bool = False,
) -> Elf | None:
    """Return the facts of a file's beginning, and of parts that were read elsewhere."""
    prefix = Prefix(BytesSource(data))
    prefix.end = len(data)
    prefix.lent += linking
    return collect_linking(size, prefix, exports_only=exports_only)
