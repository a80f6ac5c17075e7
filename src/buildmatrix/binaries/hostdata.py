"""Search of host data and code for library names, marks and device code.

Each byte is read once and scanned in a few passes. Device code in data is recognized by its headers
and skipped, so most of a kernel library is never read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cache

from buildmatrix.device_code.finder import NEEDLES, DeviceCodeFinder, locate_container
from buildmatrix.elf.literals import SO, LiteralFinder
from buildmatrix.elf.marks import MARKS, MarkFinder
from buildmatrix.elf.regions import AFTER, BEFORE, CHUNK, Region, Window
from buildmatrix.elf.sieve import Sieve
from buildmatrix.elf.source import ByteSource

_NAMES = {needle: name for name, needle in MARKS.items()}
#: Bytes that most needles contain and that are rare in data.
_ANCHORS = b".CL"
#: Largest distance of a needle from the start of its container.
_FARTHEST = max(NEEDLES.values())
#: Hits of finished needles after which these are no longer searched for.
_MOST_IDLE = 1 << 16
#: Longest span of several regions that are searched at once.
_LONGEST_RUN = 64 << 10


@cache
def _build_sieve(without: frozenset[bytes]) -> Sieve:
    return Sieve([needle for needle in (SO, *NEEDLES, *_NAMES) if needle not in without], _ANCHORS)


class HostData:
    """Searches the regions of one file, in file order."""

    def __init__(self, source: ByteSource, device: DeviceCodeFinder) -> None:
        self._source = source
        self._device = device
        self.literals = LiteralFinder()
        self.marks = MarkFinder()
        #: Offset behind the last container found.
        self._covered = 0
        self._sieve = _build_sieve(frozenset())
        self._idle = 0

    def search(self, regions: Iterable[Region]) -> None:
        """Add the contents of the regions. Raises OSError."""
        run: list[Region] = []
        for region in regions:
            if run and region.end - run[0].offset > _LONGEST_RUN:
                self._search_run(run)
                run = []
            run.append(region)
        if run:
            self._search_run(run)

    def _search_run(self, run: Sequence[Region]) -> None:
        """Search many small regions at once: objects with a section per function have thousands."""
        if len(run) == 1:
            self._search_region(run[0])
            return
        low = run[0].offset
        data = self._source.read(low, run[-1].end - low)
        starts = [region.offset for region in run]
        for begin, needle in self._sieve.hits(data, 0, len(data)):
            at = low + begin
            region = run[bisect_right(starts, at) - 1]
            if at + len(needle) <= region.end and (needle == SO or not region.executable):
                region_data = data[region.offset - low : region.end - low]
                window = Window(region.offset, region_data, 0, len(region_data))
                self._record_hit(window, region, at - region.offset, needle)
        self._drop_finished()

    def _search_region(self, region: Region) -> None:
        at = region.offset
        while at < region.end:
            low = max(region.offset, at - BEFORE)
            limit = min(at + CHUNK + AFTER, region.end)
            data = self._source.read(low, limit - low)
            end = low + len(data)
            # The last bytes belong to the next window, which sees their successors.
            stop = end if end == region.end or end < limit else end - AFTER
            if stop <= at:
                return
            window = Window(low, data, at - low, stop - low)
            if region.executable:
                self.literals.search(window, region)
            else:
                last = window.stop + _FARTHEST
                for begin, needle in self._sieve.hits(data, window.start, last):
                    self._record_hit(window, region, begin, needle)
                self._drop_finished()
            at = max(stop, self._covered)

    def _record_hit(self, window: Window, region: Region, begin: int, needle: bytes) -> None:
        """Record the hit of a needle at `begin` of a window."""
        at = window.offset + begin
        if self._is_done(needle):
            self._idle += 1
        elif needle in NEEDLES:
            place = locate_container(needle, begin, window)
            if place is not None and window.offset + place >= self._covered:
                end = self._device.add_containers(window.offset + place, region)
                self._covered = max(self._covered, end)
        elif begin >= window.stop or at < self._covered:
            return
        elif needle == SO:
            self.literals.look(window, region, begin)
        else:
            self.marks.add(_NAMES[needle], at)

    def _drop_finished(self) -> None:
        """Drop finished needles once they have many hits."""
        if self._idle > _MOST_IDLE:
            self._idle = 0
            idle = (needle for needle in (SO, *NEEDLES, *_NAMES) if self._is_done(needle))
            self._sieve = _build_sieve(frozenset(idle))

    def _is_done(self, needle: bytes) -> bool:
        """True if hits of this needle are no longer recorded."""
        if needle == SO:
            return self.literals.incomplete
        return self._device.ended if needle in NEEDLES else _NAMES[needle] in self.marks
