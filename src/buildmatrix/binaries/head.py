"""What the first bytes of an ELF file say, however many there are.

For files that are read from their start on and not to their end: members of a wheel on an index,
which deflate lets nobody enter in the middle. Linkers put the string table of the dynamic section
first and the section itself near the end, patchelf moves the table behind everything; the program
headers, in the first page, tell where both are.

Nothing is told that the full reader (`binaries.reader`) would not tell, and no list counts as
complete that may not be: `Elf.read` says up to where the file was read. Who reads to the end gets
what the full reader says.

Where there are no section headers yet, device code is found by its magic numbers in what is loaded,
and a name counts as a literal unless it stands in the string table of the dynamic section, which
the names of the C runtime in it give away.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from buildmatrix.binaries.kept import BLOCK, Kept
from buildmatrix.binaries.model import Elf
from buildmatrix.binaries.passing import PassingSearch
from buildmatrix.binaries.telling import LATEST_TABLE, Head, Plan, StringTable, plan_of, tell
from buildmatrix.device_code import codeobject
from buildmatrix.elf.headers import Malformed, read_headers
from buildmatrix.elf.regions import CHUNK
from buildmatrix.elf.source import ByteSource, CachedSource

__all__ = ["Head", "HeadReader", "Malformed", "read_forward", "read_head"]

#: Bytes from the start that are kept: headers, notes, and in most files the tables of linking.
EARLY = 1 << 20
#: Bytes that the headers are read from, before the rest is searched.
FIRST_PAGES = 64 << 10
#: Bytes behind the string table of the dynamic section that are kept: symbol versions lie there.
BEHIND_TABLE = 8 << 20
#: What is kept of one file; tables of strings take a tenth of their size.
MOST_KEPT = 32 << 20

#: Bytes that `read_forward` takes at once.
PIECE = 1 << 20

_SECTION_NAMES = b"\0.shstrtab\0"


def read_head(data: bytes, size: int) -> Head | None:
    """What `data`, the beginning of a file of `size` bytes, says; None when it is no ELF.

    Raises:
        Malformed: the header itself cannot be used.
    """
    reader = HeadReader(size)
    reader.feed(data)
    return reader.head()


def read_forward(source: ByteSource, size: int) -> Elf | None:
    """What `binaries.reader.read_elf` says, of a source that is read once from start to end.

    None when it is no ELF, or has a table or data where none was expected when it passed by.

    Raises:
        Malformed: the header itself cannot be used.
        OSError: the source could not be read.
    """
    reader = HeadReader(size)
    for at in range(0, size, PIECE):
        reader.feed(source.read(at, PIECE))
    head = reader.head()
    return None if head is None or head.misplaced else head.elf


class HeadReader:
    """Takes the bytes of one file in order; `head` tells what they said, and ends it.

    Time and memory are bounded whatever the bytes say.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._wanted = _Wanted()
        self._kept = Kept(MOST_KEPT, self._wanted, EARLY)
        self._start = bytearray()
        self._search: PassingSearch | None = None

    @property
    def offset(self) -> int:
        """Bytes that were taken."""
        return self._kept.passed

    @property
    def device_code_seen(self) -> int | None:
        """Bytes of device code that have passed by; None until a container was read to its end."""
        if self._search is None or not self._search.complete:
            return None
        return self._search.device_code

    def feed(self, data: bytes) -> None:
        """The bytes that follow those before. Raises Malformed."""
        if self._search is None:
            room = max(0, FIRST_PAGES - len(self._start))
            start, data = data[:room], data[room:]
            self._kept.add(start)
            self._start += start
            if len(self._start) < min(self._size, FIRST_PAGES) or not self._begin():
                return
        self._take(data)

    def lend(self, start: int, data: bytes) -> None:
        """Bytes from `start` on that tables may lie in, and that no `feed` will bring."""
        self._kept.lend(start, data)

    def head(self) -> Head | None:
        """What all bytes said; None when they are no ELF file. Raises Malformed."""
        if self._search is None and not self._begin():
            return None
        plan, table = self._wanted.plan, self._wanted.table
        assert self._search is not None and plan is not None
        self._search.finish()
        return tell(self._size, self._kept, plan, self._search.found, table)

    def _begin(self) -> bool:
        headers = read_headers(CachedSource(self._kept, self._size))
        if headers is None:
            return False
        plan = plan_of(headers, self._size)
        limit = plan.first_end if plan.linking_end else 0
        table = StringTable(limit, moved=bool(plan.moved))
        self._wanted.plan, self._wanted.table = plan, table
        device = headers.machine in codeobject.KINDS
        # Nothing in device code is for the host's loader.
        regions = () if device else plan.regions
        self._search = PassingSearch(regions, code_only=plan.separate)
        start, self._start = bytes(self._start), bytearray()
        table.search(start)
        self._search.feed(start)
        return True

    def _take(self, data: bytes) -> None:
        assert self._search is not None
        table = self._wanted.table
        was_open = table.open
        for at in range(0, len(data), CHUNK):
            piece = data[at : at + CHUNK]
            table.search(piece)
            self._keep(piece)
            self._search.feed(piece)
        if was_open and not table.open:
            self._kept.review()

    def _keep(self, data: bytes) -> None:
        """Keeps what tables may need; linkers put the names of sections before larger tables."""
        assert self._wanted.plan is not None
        if self.offset + len(data) <= self._wanted.plan.linked_end:
            self._kept.add(data)
            return
        for at in range(0, len(data), BLOCK):
            self._kept.add(data[at : at + BLOCK])
            if _SECTION_NAMES in data[max(0, at - len(_SECTION_NAMES)) : at + BLOCK]:
                self._kept.hold()


@dataclass(slots=True)
class _Wanted:
    """Which blocks of a file are kept. No part of its reader, which would then keep itself alive.

    Workers run without the collector of such circles.
    """

    plan: Plan | None = None
    table: StringTable = field(default_factory=lambda: StringTable(0))

    def __call__(self, start: int, end: int) -> bool:
        if start < EARLY or self.plan is None:
            return start < EARLY
        until = self.table.end + BEHIND_TABLE
        if self.plan.moved and not self.table.found:
            # Only the strings may have been moved away from the other tables.
            until = max(until, min(self.plan.first_end, LATEST_TABLE))
        if self.table.open or start < until:
            return True
        return any(first < end and start < last for first, last in self.plan.tables)
