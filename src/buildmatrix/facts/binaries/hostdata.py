"""Search for library names, marks and device code, in place or in a single pass.

Each byte is read once and scanned in a few passes. Device code in data is recognized by its headers
and skipped, so most of a kernel library is never read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from buildmatrix.facts.binaries import fat_binaries
from buildmatrix.facts.binaries.finder import (
    MOST_CANDIDATES,
    NEEDLES,
    DeviceCodeFinder,
    find_candidates,
    locate_container,
)
from buildmatrix.facts.elf.model import CodeContainer, DeviceCode, Literal, Mark
from buildmatrix.facts.elf.search import (
    AFTER,
    BEFORE,
    CHUNK,
    MARKS,
    SO,
    LiteralFinder,
    MarkFinder,
    Region,
    Window,
)
from buildmatrix.facts.elf.sieve import Sieve
from buildmatrix.facts.trees.base import ByteSource

# In place


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


# In a single pass, with the finders of `facts.binaries.reader`, which can seek. Here bytes arrive
# in order and are dropped once searched; only a window is held in memory.


#: Bytes behind a magic number that must be available before a container is read: its tables, and
#: the first block of a compressed one.
_ENOUGH = 256 << 10
#: Most bytes held for a container whose reader needs more.
_MOST_HELD = 8 << 20


@dataclass(frozen=True, slots=True)
class SearchResults:
    """Results of a search so far; names have all their places, in any part of the file."""

    device_code: tuple[DeviceCode, ...]
    #: SPIR-V modules one by one, since some sections are counted whole.
    modules: tuple[DeviceCode, ...]
    literals: tuple[Literal, ...]
    marks: tuple[Mark, ...]


class StreamSearch:
    """Searches `regions`, in file order, of a file passed to `feed` from its first byte on.

    With `code_only`, executable regions are searched only for names.
    """

    def __init__(self, regions: Sequence[Region], *, code_only: bool = False) -> None:
        self._regions = list(regions)
        self._code_only = code_only
        self._source = _WindowSource()
        self._position = 0
        #: End of the last container.
        self._covered = 0
        #: Offset up to which magic numbers were searched, and the ones found but not examined.
        self._looked = 0
        self._places: list[int] = []
        self._tried = 0
        #: A fat binary whose entries are read as they arrive, and the offset of the next one. It
        #: begins at the last of the places.
        self._fatbin: fat_binaries.OpenedFatbin | None = None
        self._fatbin_at = 0
        self._unread: list[str] = []
        self._device = DeviceCodeFinder(self._source, self._unread)
        self._literals = LiteralFinder(everywhere=True)
        self._marks = MarkFinder()
        self._modules: list[DeviceCode] = []
        #: Device-code containers whose entries were all read.
        self.complete = 0

    @property
    def device_code(self) -> int:
        """Bytes of device code found so far."""
        return sum(code.size for code in self._device.device_code())

    @property
    def results(self) -> SearchResults:
        """Results so far."""
        return SearchResults(
            self._device.device_code(),
            tuple(self._modules),
            self._literals.literals(),
            self._marks.marks(),
        )

    def feed(self, data: bytes) -> None:
        """Search the next bytes of the file."""
        self._source.add(data)
        self._advance(final=False)

    def finish(self) -> None:
        """Search the bytes held back; no more bytes will follow."""
        self._advance(final=True)

    def _advance(self, *, final: bool) -> None:
        while self._step(final=final):
            self._source.drop(self._position - BEFORE)
        # Bytes between and behind loaded segments are not searched.
        self._source.drop(self._position - BEFORE)

    def _step(self, *, final: bool) -> bool:
        """Do the next piece of work; return False if there is none, or if it needs more bytes."""
        if self._fatbin is not None:
            return self._follow(self._fatbin, self._regions[0], final=final)
        while self._regions and self._regions[0].end <= self._position:
            del self._regions[0]
        if not self._regions:
            self._position = self._source.end
            return False
        region = self._regions[0]
        self._position = max(self._position, region.offset)
        if self._looked <= self._position and not self._look(region, final=final):
            return False
        while self._places:
            place = self._places[-1]
            # PTX text may begin before the part that was searched.
            if place >= self._covered and not self._try(place, region, final=final):
                return False
            if self._fatbin is not None:
                return True
            del self._places[-1:]
        self._search(self._looked, region)
        return True

    def _look(self, region: Region, *, final: bool) -> bool:
        """Search the next piece of the region for magic numbers; return False if too short."""
        end = min(self._source.end, region.end)
        last = final or end == region.end
        stop = end if last else end - AFTER
        if stop - self._position < (1 if last else CHUNK):
            return False
        self._looked = min(stop, self._position + CHUNK)
        if self._is_code(region):
            return True
        places = find_candidates(self._make_window(self._looked, region))[::-1]
        self._tried += len(places)
        if self._tried <= MOST_CANDIDATES:
            self._places = places
        elif self._tried - len(places) <= MOST_CANDIDATES:
            self._unread.append(f"more than {MOST_CANDIDATES} places look like device code")
        return True

    def _try(self, place: int, region: Region, *, final: bool) -> bool:
        """Read the container that may begin at `place`; return False if more bytes are needed."""
        available = self._source.end - place
        final = final or self._source.end >= region.end
        if not final and available < _ENOUGH:
            return False
        self._source.crossed = False
        if self._source.read(place, len(fat_binaries.FATBIN_MAGIC)) == fat_binaries.FATBIN_MAGIC:
            self._fatbin = fat_binaries.open_fatbin(self._source, place, region.end)
            self._fatbin_at = self._fatbin.start if self._fatbin is not None else 0
            return True
        container = self._device.read_at(place, region.end)
        if self._source.crossed and not final and available < _MOST_HELD:
            return False
        if container is not None:
            if self._source.crossed or container.end > self._source.end:
                entries = tuple(entry for entry in container.entries if entry.arch is not None)
                container = replace(container, entries=entries)
            self._accept(container, place, region)
        return True

    def _follow(self, opened: fat_binaries.OpenedFatbin, region: Region, *, final: bool) -> bool:
        """Read the next entry of a fat binary; return False if more bytes are needed."""
        header_end = self._fatbin_at + fat_binaries.FATBIN_HEADER
        complete = header_end > opened.end
        if not complete and not final:
            if header_end <= self._source.end:
                header_end = fat_binaries.find_header_end(self._source, self._fatbin_at)
            if header_end > self._source.end:
                return False
        entry = next(opened.entries, None)
        if self._fatbin_at == opened.start:
            ends = entry is not None and entry.offset + entry.size == opened.end
            if entry is None or (entry.kind == "unknown" and ends):
                # The magic number alone proves nothing: constants of a parser look like it.
                self._fatbin = None
                del self._places[-1:]
                return True
            self._search(self._places[-1], region)
        if entry is None:
            self._fatbin = None
            self.complete += complete
            self._position = self._covered = opened.end
            self._places = [place for place in self._places if place >= self._position]
            return True
        self._device.add(CodeContainer((entry,), entry.offset + entry.size), region)
        self._fatbin_at = self._position = entry.offset + entry.size
        return True

    def _accept(self, container: CodeContainer, place: int, region: Region) -> None:
        self._search(place, region)
        if container.entries and container.entries[0].format == "spirv":
            self._modules.extend(container.entries)
        elif not self._device.is_full():
            self._device.add(container, region)
        self.complete += container.end <= self._source.end
        self._covered = container.end
        self._position = max(self._position, container.end)

    def _search(self, stop: int, region: Region) -> None:
        """Search the bytes before `stop` that were not searched yet."""
        if stop > self._position:
            window = self._make_window(stop, region)
            is_code = self._is_code(region)
            self._literals.search(window, Region(region.offset, region.size, None, is_code))
            if not is_code:
                self._marks.search(window)
            self._position = stop

    def _is_code(self, region: Region) -> bool:
        return self._code_only and region.executable

    def _make_window(self, stop: int, region: Region) -> Window:
        low = max(self._source.start, region.offset, self._position - BEFORE)
        data = self._source.read(low, min(stop + AFTER, region.end, self._source.end) - low)
        return Window(low, data, self._position - low, stop - low)


@dataclass(slots=True)
class _WindowSource:
    """A `ByteSource` of the most recent bytes."""

    #: File offset of the first byte held.
    start: int = 0
    #: True if a read asked for bytes that were dropped or are still to come.
    crossed: bool = False
    _data: bytearray = field(default_factory=bytearray)

    @property
    def end(self) -> int:
        """File offset behind the last byte received."""
        return self.start + len(self._data)

    def add(self, data: bytes) -> None:
        """Append the next bytes."""
        self._data += data

    def drop(self, before: int) -> None:
        """Release the bytes before the file offset `before`."""
        count = min(before - self.start, len(self._data))
        if count > 0:
            del self._data[:count]
            self.start += count

    def read(self, offset: int, length: int) -> bytes:
        """See `ByteSource.read`."""
        if length <= 0:
            return b""
        if not self.start <= offset or offset + length > self.end:
            self.crossed = True
        if offset < self.start:
            return b""
        return bytes(memoryview(self._data)[offset - self.start : offset - self.start + length])
