"""Facts from the first bytes of an ELF file, however many there are.

For files read from their start and not to their end: wheel members on an index, as deflate has no
entry points in the middle. Linkers put the string table of the dynamic section first and the
section itself near the end; patchelf moves the table behind everything. The program headers, in the
first page, locate both.

All facts here are facts that the full reader (`binaries.reader`) would report too, and no possibly
incomplete list counts as complete: `Elf.read` records how far the file was read. With all bytes,
use the full reader.

Without section headers, device code is found by magic numbers in loaded segments, and a name counts
as a literal unless it is in the string table of the dynamic section, which the names of the C
runtime identify.
"""

from __future__ import annotations

from buildmatrix.binaries.head_facts import Head, Prefix, ReadingPlan, collect_head, plan_reading
from buildmatrix.binaries.passing import StreamSearch
from buildmatrix.device_code import codeobject
from buildmatrix.elf.headers import Malformed, read_headers
from buildmatrix.elf.regions import CHUNK
from buildmatrix.elf.source import ByteSource, CachedSource

__all__ = ["Head", "HeadReader", "Malformed"]

#: Bytes that the headers are read from, before the rest is searched.
FIRST_PAGES = 64 << 10


class HeadReader:
    """Reads a file of `size` bytes from its start; `head` ends the reading and returns the facts.

    `source` must return the same bytes when asked again. Time and memory are bounded for any input.
    """

    def __init__(self, source: ByteSource, size: int) -> None:
        self._size = size
        self._prefix = Prefix(source)
        self._plan: ReadingPlan | None = None
        self._search: StreamSearch | None = None
        #: Offset up to which the bytes were searched.
        self._searched = 0

    @property
    def offset(self) -> int:
        """Number of bytes read."""
        return self._prefix.end

    @property
    def device_code_seen(self) -> int | None:
        """Bytes of device code read; None until a container was read to its end."""
        if self._search is None or not self._search.complete:
            return None
        return self._search.device_code

    def read_to(self, end: int) -> None:
        """Read on, up to the byte `end`. Raises Malformed, and what the source raises."""
        self._prefix.end = min(end, self._size)
        if self._search is not None or self.offset >= min(self._size, FIRST_PAGES):
            self._advance()

    def lend(self, start: int, data: bytes) -> None:
        """Provide bytes from `start` on that may hold tables, without reading up to them."""
        self._prefix.lent.append((start, data))

    def head(self) -> Head | None:
        """Return the facts from all bytes read; None if not an ELF file. Raises Malformed."""
        self._advance()
        if self._plan is None or self._search is None:
            return None
        self._search.finish()
        return collect_head(self._size, self._prefix, self._plan, self._search.results)

    def _advance(self) -> None:
        if self._search is None:
            headers = read_headers(CachedSource(self._prefix, self._size))
            if headers is None:
                return
            self._plan = plan_reading(headers, self._size)
            # Nothing in device code is for the host's loader.
            regions = () if headers.machine in codeobject.KINDS else self._plan.regions
            self._search = StreamSearch(regions, code_only=self._plan.separate)
        while data := self._prefix.read(
            self._searched, min(CHUNK, self._prefix.end - self._searched)
        ):
            self._search.feed(data)
            self._searched += len(data)
