"""What the first bytes of an ELF file say, however many there are.

For files that are read from their start on and not to their end: members of a wheel on an index,
which deflate does not let a reader enter in the middle. Linkers put the string table of the dynamic
section first and the section itself near the end, patchelf moves the table behind everything; the
program headers, in the first page, say where both are.

Nothing is reported that the full reader (`binaries.reader`) would not report, and no list counts as
complete that may not be: `Elf.read` says up to where the file was read. With all bytes, use the
full reader.

Where there are no section headers yet, device code is found by its magic numbers in what is loaded,
and a name counts as a literal unless it stands in the string table of the dynamic section, which
the names of the C runtime in it identify.
"""

from __future__ import annotations

from buildmatrix.binaries.head_facts import Head, Prefix, ReadingPlan, head_of, plan_of
from buildmatrix.binaries.passing import PassingSearch
from buildmatrix.device_code import codeobject
from buildmatrix.elf.headers import Malformed, read_headers
from buildmatrix.elf.regions import CHUNK
from buildmatrix.elf.source import ByteSource, CachedSource

__all__ = ["Head", "HeadReader", "Malformed"]

#: Bytes that the headers are read from, before the rest is searched.
FIRST_PAGES = 64 << 10


class HeadReader:
    """Reads a file of `size` bytes from its start on; `head` returns its facts, and ends it.

    `source` has to give again what it gave before. Time and memory are bounded whatever the bytes
    say.
    """

    def __init__(self, source: ByteSource, size: int) -> None:
        self._size = size
        self._prefix = Prefix(source)
        self._plan: ReadingPlan | None = None
        self._search: PassingSearch | None = None
        #: Up to where it was searched.
        self._searched = 0

    @property
    def offset(self) -> int:
        """Bytes that were read."""
        return self._prefix.end

    @property
    def device_code_seen(self) -> int | None:
        """Bytes of device code that were read; None until a container was read to its end."""
        if self._search is None or not self._search.complete:
            return None
        return self._search.device_code

    def read_to(self, end: int) -> None:
        """Read on, up to the byte `end`. Raises Malformed, and what the source raises."""
        self._prefix.end = min(end, self._size)
        if self._search is not None or self.offset >= min(self._size, FIRST_PAGES):
            self._advance()

    def lend(self, start: int, data: bytes) -> None:
        """Bytes from `start` on that tables may lie in, and that are not read."""
        self._prefix.lent.append((start, data))

    def head(self) -> Head | None:
        """What all bytes said; None when they are no ELF file. Raises Malformed."""
        self._advance()
        if self._plan is None or self._search is None:
            return None
        self._search.finish()
        return head_of(self._size, self._prefix, self._plan, self._search.results)

    def _advance(self) -> None:
        if self._search is None:
            headers = read_headers(CachedSource(self._prefix, self._size))
            if headers is None:
                return
            self._plan = plan_of(headers, self._size)
            # Nothing in device code is for the host's loader.
            regions = () if headers.machine in codeobject.KINDS else self._plan.regions
            self._search = PassingSearch(regions, code_only=self._plan.separate)
        while data := self._prefix.read(
            self._searched, min(CHUNK, self._prefix.end - self._searched)
        ):
            self._search.feed(data)
            self._searched += len(data)
