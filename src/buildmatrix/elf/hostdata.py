"""The search through data and code of the host: names of libraries, marks, bare device code.

Each byte is read once and looked at in a few passes. Device code that lies in data is told from its
headers and leapt over: most of a library of kernels is never read.
"""

from __future__ import annotations

from buildmatrix.elf.devicecode import NEEDLES, DeviceCodeFinder, place_of
from buildmatrix.elf.literals import SO, LiteralFinder
from buildmatrix.elf.marks import MARKS, MarkFinder
from buildmatrix.elf.regions import AFTER, BEFORE, CHUNK, Region, Window
from buildmatrix.elf.sieve import Sieve
from buildmatrix.elf.source import ByteSource

_NAMES = {needle: name for name, needle in MARKS.items()}
#: The bytes that most needles have and most data has rarely.
_SIEVE = Sieve([SO, *NEEDLES, *_NAMES], anchors=b".CL")
#: How far into a container its needle may begin.
_FARTHEST = max(NEEDLES.values())


class HostData:
    """Searches the regions of one file, which come in file order."""

    def __init__(self, source: ByteSource, device: DeviceCodeFinder) -> None:
        self._source = source
        self._device = device
        self.literals = LiteralFinder()
        self.marks = MarkFinder()
        #: Offset of the first byte behind the last container that was found.
        self._covered = 0

    def search(self, region: Region) -> None:
        """Adds what is in a region. Raises OSError."""
        at = region.offset
        while at < region.end:
            low = max(region.offset, at - BEFORE)
            wanted = min(at + CHUNK + AFTER, region.end)
            data = self._source.read(low, wanted - low)
            end = low + len(data)
            # The last bytes are left to the next window, which sees what follows them.
            stop = end if end == region.end or end < wanted else end - AFTER
            if stop <= at:
                return
            window = Window(low, data, at - low, stop - low)
            if region.executable:
                self.literals.search(window, region)
            else:
                self._look(window, region)
            at = max(stop, self._covered)

    def _look(self, window: Window, region: Region) -> None:
        for begin, needle in _SIEVE.hits(window.data, window.start, window.stop + _FARTHEST):
            at = window.offset + begin
            if needle in NEEDLES:
                place = place_of(needle, begin, window)
                if place is not None and window.offset + place >= self._covered:
                    end = self._device.take(window.offset + place, region)
                    self._covered = max(self._covered, end)
            elif begin >= window.stop or at < self._covered:
                continue
            elif needle == SO:
                self.literals.look(window, region, begin)
            else:
                self.marks.add(_NAMES[needle], at)
