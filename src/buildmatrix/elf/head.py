"""What the first bytes of an ELF file say, however many there are.

For files that are read from their start on and not to their end: members of a wheel on an index,
which deflate lets nobody enter in the middle. Linkers put the string table of the dynamic section
first and the section itself near the end, patchelf moves the table behind everything; the program
headers, in the first page, tell where both are.

Nothing is told that the full reader (`elf.reader`) would not tell, and no list counts as complete
that may not be: `Elf.read` says up to where the file was read. Who reads to the end gets what the
full reader says.

Where there are no section headers yet, device code is found by its magic numbers in what is loaded,
and a name counts as a literal unless it stands in the string table of the dynamic section, which
the names of the C runtime in it give away.
"""

from __future__ import annotations

from buildmatrix.elf import codeobject
from buildmatrix.elf.headers import Malformed, read_headers
from buildmatrix.elf.kept import BLOCK, Kept
from buildmatrix.elf.passing import PassingSearch
from buildmatrix.elf.regions import CHUNK
from buildmatrix.elf.source import CachedSource
from buildmatrix.elf.telling import Head, Plan, StringTable, plan_of, tell

__all__ = ["Head", "HeadReader", "Malformed", "read_head"]

#: Bytes from the start that are kept: headers, notes, and in most files the tables of linking.
EARLY = 1 << 20
#: Bytes that the headers are read from, before the rest is searched.
FIRST_PAGES = 64 << 10
#: Bytes behind the string table of the dynamic section that are kept: symbol versions lie there.
BEHIND_TABLE = 8 << 20
#: What is kept of one file; tables of strings take a tenth of their size.
MOST_KEPT = 32 << 20

_SECTION_NAMES = b"\0.shstrtab\0"


def read_head(data: bytes, size: int) -> Head | None:
    """What `data`, the beginning of a file of `size` bytes, says; None when it is no ELF.

    Raises:
        Malformed: the header itself cannot be used.
    """
    reader = HeadReader(size)
    reader.feed(data)
    return reader.head()


class HeadReader:
    """Takes the bytes of one file in order; `head` tells what they said, and ends it.

    Time and memory are bounded whatever the bytes say.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept = Kept(MOST_KEPT, self._is_wanted, EARLY)
        self._start = bytearray()
        self._plan: Plan | None = None
        self._search: PassingSearch | None = None
        self._table = StringTable(0)

    @property
    def offset(self) -> int:
        """Bytes that were taken."""
        return self._kept.passed

    @property
    def device_code_seen(self) -> bool:
        """Whether all entries of at least one container of device code have passed by."""
        return self._search is not None and self._search.complete > 0

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

    def head(self) -> Head | None:
        """What all bytes said; None when they are no ELF file. Raises Malformed."""
        if self._search is None and not self._begin():
            return None
        assert self._search is not None and self._plan is not None
        self._search.finish()
        return tell(self._size, self._kept, self._plan, self._search.found, self._table)

    def _begin(self) -> bool:
        headers = read_headers(CachedSource(self._kept, self._size))
        if headers is None:
            return False
        self._plan = plan_of(headers, self._size)
        limit = self._plan.first_end if self._plan.linking_end else 0
        self._table = StringTable(limit, moved=bool(self._plan.moved))
        device = headers.machine in codeobject.KINDS
        # Nothing in device code is for the host's loader.
        self._search = PassingSearch(() if device else self._plan.regions)
        start, self._start = bytes(self._start), bytearray()
        self._table.search(start)
        self._search.feed(start)
        return True

    def _take(self, data: bytes) -> None:
        assert self._search is not None
        was_open = self._table.open
        for at in range(0, len(data), CHUNK):
            piece = data[at : at + CHUNK]
            self._table.search(piece)
            self._keep(piece)
            self._search.feed(piece)
        if was_open and not self._table.open:
            self._kept.review()

    def _keep(self, data: bytes) -> None:
        """Keeps what tables may need; linkers put the names of sections before larger tables."""
        assert self._plan is not None
        if self.offset + len(data) <= self._plan.linked_end:
            self._kept.add(data)
            return
        for at in range(0, len(data), BLOCK):
            self._kept.add(data[at : at + BLOCK])
            if _SECTION_NAMES in data[max(0, at - len(_SECTION_NAMES)) : at + BLOCK]:
                self._kept.hold()

    def _is_wanted(self, start: int, end: int) -> bool:
        if start < EARLY or self._plan is None:
            return start < EARLY
        if self._table.open or start < self._table.end + BEHIND_TABLE:
            return True
        return any(first < end and start < last for first, last in self._plan.tables)
