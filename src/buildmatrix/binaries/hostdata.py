"""The search through data and code of the host: names of libraries, marks, bare device code.

Each byte is read once and looked at in a few passes. Device code that lies in data is recognized by
its headers and leapt over: most of a library of kernels is never read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cache

from buildmatrix.device_code.finder import NEEDLES, DeviceCodeFinder, place_of
from buildmatrix.elf.literals import SO, LiteralFinder
from buildmatrix.elf.marks import MARKS, MarkFinder
from buildmatrix.elf.regions import AFTER, BEFORE, CHUNK, Region, Window
from buildmatrix.elf.sieve import Sieve
from buildmatrix.elf.source import ByteSource

_NAMES = {needle: name for name, needle in MARKS.items()}
#: The bytes that most needles have and most data has rarely.
_ANCHORS = b".CL"
#: How far into a container its needle may begin.
_FARTHEST = max(NEEDLES.values())
#: Hits of needles that are not needed any more after which they are not searched for.
_MOST_IDLE = 1 << 16
#: Bytes from the first to the last of several regions that are searched at once.
_LONGEST_RUN = 64 << 10


@cache
def _sieve(without: frozenset[bytes]) -> Sieve:
    return Sieve([needle for needle in (SO, *NEEDLES, *_NAMES) if needle not in without], _ANCHORS)


class HostData:
    """Searches the regions of one file, which come in file order."""

    def __init__(self, source: ByteSource, device: DeviceCodeFinder) -> None:
        self._source = source
        self._device = device
        self.literals = LiteralFinder()
        self.marks = MarkFinder()
        #: Offset of the first byte behind the last container that was found.
        self._covered = 0
        self._sieve = _sieve(frozenset())
        self._idle = 0

    def search(self, regions: Iterable[Region]) -> None:
        """Adds what is in the regions. Raises OSError."""
        run: list[Region] = []
        for region in regions:
            if run and region.end - run[0].offset > _LONGEST_RUN:
                self._search_run(run)
                run = []
            run.append(region)
        if run:
            self._search_run(run)

    def _search_run(self, run: Sequence[Region]) -> None:
        """Objects with a section for each function have thousands of a few bytes."""
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
                self._take(window, region, at - region.offset, needle)
        self._review()

    def _search_region(self, region: Region) -> None:
        at = region.offset
        while at < region.end:
            low = max(region.offset, at - BEFORE)
            limit = min(at + CHUNK + AFTER, region.end)
            data = self._source.read(low, limit - low)
            end = low + len(data)
            # The last bytes are left to the next window, which sees what follows them.
            stop = end if end == region.end or end < limit else end - AFTER
            if stop <= at:
                return
            window = Window(low, data, at - low, stop - low)
            if region.executable:
                self.literals.search(window, region)
            else:
                last = window.stop + _FARTHEST
                for begin, needle in self._sieve.hits(data, window.start, last):
                    self._take(window, region, begin, needle)
                self._review()
            at = max(stop, self._covered)

    def _take(self, window: Window, region: Region, begin: int, needle: bytes) -> None:
        """Adds what a needle at `begin` of a window stands for."""
        at = window.offset + begin
        if self._is_done(needle):
            self._idle += 1
        elif needle in NEEDLES:
            place = place_of(needle, begin, window)
            if place is not None and window.offset + place >= self._covered:
                end = self._device.take(window.offset + place, region)
                self._covered = max(self._covered, end)
        elif begin >= window.stop or at < self._covered:
            return
        elif needle == SO:
            self.literals.look(window, region, begin)
        else:
            self.marks.add(_NAMES[needle], at)

    def _review(self) -> None:
        """Goes on without the needles that are not needed any more, where they are many."""
        if self._idle > _MOST_IDLE:
            self._idle = 0
            idle = (needle for needle in (SO, *NEEDLES, *_NAMES) if self._is_done(needle))
            self._sieve = _sieve(frozenset(idle))

    def _is_done(self, needle: bytes) -> bool:
        """Whether what a needle stands for is not taken any more."""
        if needle == SO:
            return self.literals.incomplete
        return self._device.ended if needle in NEEDLES else _NAMES[needle] in self.marks
