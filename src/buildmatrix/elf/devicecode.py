"""All device code of one file, summed up per format, kind and architecture.

Sections that are made for device code are walked from container to container; only headers are
read. The rest of the file is searched for containers that lie bare in data of the host, since names
of sections do not tell everything: libcufft 12 has 23,984 of them in other sections, and libcupti
holds cubins without a section for them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from buildmatrix.elf import bundles, codeobject, fatbin, offloadbinary, spirv
from buildmatrix.elf import layout as abi
from buildmatrix.elf.entries import Container, Entry
from buildmatrix.elf.headers import Headers
from buildmatrix.elf.model import DeviceCode
from buildmatrix.elf.regions import Region, Window, device_regions
from buildmatrix.elf.source import ByteSource
from buildmatrix.elf.sums import Sums

_Read = Callable[[ByteSource, int, int], Container | None]
_READERS: dict[bytes, _Read] = {
    fatbin.MAGIC: fatbin.read,
    bundles.MAGIC: bundles.read,
    bundles.COMPRESSED_MAGIC: bundles.read_compressed,
    offloadbinary.MAGIC: offloadbinary.read,
    abi.MAGIC: codeobject.read,
    spirv.MAGIC: spirv.read,
}
_LONGEST_MAGIC = max(map(len, _READERS))
_MAGICS = re.compile(b"|".join(map(re.escape, _READERS)))
#: What is searched for in host data, and how far behind the start of the magic number it lies. One
#: pass per pattern is six times as fast as one over all: a pattern that is one literal is searched
#: for with memchr on its first byte, which had better be rare. The last one is the second half of
#: SPIR-V's number with the start of its version. OffloadBinary always has its section.
_SEARCHED = tuple(
    (re.compile(re.escape(pattern)), behind)
    for pattern, behind in (
        (fatbin.MAGIC, 0),
        (bundles.COMPRESSED_MAGIC, 0),
        (abi.MAGIC, 0),
        (spirv.MAGIC[2:] + b"\0", 2),
    )
)

#: Entries and containers counted in one file; libcufft has fifty thousand.
MOST_ENTRIES = 1 << 20
#: Magic numbers in host data that are looked at.
MOST_CANDIDATES = 1 << 18
#: Magic numbers in sections of device code without a container behind them; real files have none.
MOST_FAILURES = 1 << 13
#: Compressed bundles that are opened: at 1 ms each in real files, at 12 ms in hostile ones.
MOST_OPENED = 1 << 11
#: Bytes read in the search for the next container: first, and at most.
_FIRST_STEP = 4 << 10
_LARGEST_STEP = 1 << 20

#: What the format would be, had a section by that name anything readable in it.
_FORMATS = {
    ".nv_fatbin": "nv-fatbin",
    "__nv_relfatbin": "nv-fatbin",
    ".hip_fatbin": "hip-bundle",
    ".llvm.offloading": "offload-binary",
}
_KPACK_SECTION = ".rocm_kpack_ref"
_KPACK_WRAPPER = b"HIPK"
_WRAPPER_SIZE = 24
_MOST_WRAPPERS = 64


class CandidateFinder:
    """Collects the places in host data where a container may begin."""

    def __init__(self) -> None:
        self.places: list[tuple[int, Region]] = []
        #: True when there are more than are looked at.
        self.incomplete = False

    def search(self, window: Window, region: Region) -> None:
        """Adds the magic numbers that begin in this window."""
        stop = window.stop + _LONGEST_MAGIC - 1
        found = [
            match.start() - behind
            for pattern, behind in _SEARCHED
            for match in pattern.finditer(window.data, window.start + behind, stop)
            if match.start() - behind < window.stop
        ]
        # A long pattern is found faster so.
        at = window.data.find(bundles.MAGIC, window.start, stop)
        while 0 <= at < window.stop:
            found.append(at)
            at = window.data.find(bundles.MAGIC, at + 1, stop)
        found.sort()
        left = MOST_CANDIDATES - len(self.places)
        self.incomplete |= len(found) > left
        self.places += [(window.offset + start, region) for start in found[:left]]


@dataclass(slots=True)
class DeviceCodeFinder:
    """Sums up the entries of one file, and remembers which bytes they take up."""

    source: ByteSource
    unread: list[str]
    _sums: Sums = field(init=False)
    _starts: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _entries: int = 0
    _failures: int = 0
    _opened: int = 0

    def __post_init__(self) -> None:
        self._sums = Sums(self.unread)

    def read_sections(self, headers: Headers, size: int) -> None:
        """Adds what the file itself and its sections for device code hold."""
        whole = codeobject.whole(headers.machine, headers.flags, headers.abi_version, size)
        if whole is not None:
            self._sums.add(whole, None)
        moved = self._read_kpack(headers, size)
        for region in device_regions(headers, size):
            name = region.section or ""
            if name.startswith(bundles.MAGIC.decode()):
                image = bundles.read_section(self.source, region.offset, region.size, name)
                if image is not None:
                    self._sums.add(image, name)
            elif not self.read_region(region) and not moved:
                container = next((f for s, f in _FORMATS.items() if name.startswith(s)), name)
                note = "nothing in the section could be read"
                self._sums.add(
                    Entry(container, "unknown", None, region.offset, region.size, note=note), name
                )

    def read_candidates(self, candidates: CandidateFinder) -> None:
        """Adds the containers among the candidates, which come in file order."""
        covered = 0
        for offset, region in candidates.places:
            if offset >= covered and (container := self._read(offset, region.end)):
                self._count(container, region)
                self._starts.append(offset)
                self._ends.append(container.end)
                covered = container.end
                if self._is_full():
                    break
        if candidates.incomplete:
            self.unread.append(f"more than {MOST_CANDIDATES} places look like device code")

    def holds(self, offset: int) -> bool:
        """Whether a container that was found in host data covers the byte at `offset`."""
        index = bisect_right(self._starts, offset) - 1
        return index >= 0 and offset < self._ends[index]

    def found(self) -> tuple[DeviceCode, ...]:
        """The sums, in an order that depends on the bytes only."""
        return self._sums.found()

    def read_region(self, region: Region) -> bool:
        """Adds all containers of a region that is made of them; False when there is none."""
        any_found = False
        at = region.offset
        while (place := _next_magic(self.source, at, region.end)) is not None:
            container = self._read(place, region.end)
            if container is None:
                at = place + 1
                self._failures += 1
                if self._failures > MOST_FAILURES:
                    self.unread.append(
                        f"{region.section or 'the file'} is full of broken device code"
                    )
                    break
                continue
            any_found = True
            self._count(container, region)
            at = container.end
            if self._is_full():
                break
        return any_found

    def _read(self, offset: int, limit: int) -> Container | None:
        head = self.source.read(offset, min(_LONGEST_MAGIC, limit - offset))
        found = _MAGICS.match(head)
        if found is None:
            return None
        if found.group() == bundles.COMPRESSED_MAGIC:
            self._opened += 1
            opened = self._opened <= MOST_OPENED
            return bundles.read_compressed(self.source, offset, limit, opened=opened)
        return _READERS[found.group()](self.source, offset, limit)

    def _is_full(self) -> bool:
        if self._entries < MOST_ENTRIES:
            return False
        self.unread.append(f"only the first {MOST_ENTRIES} pieces of device code were read")
        return True

    def _count(self, container: Container, region: Region) -> None:
        self._entries += 1 + len(container.entries)
        for entry in container.entries:
            self._sums.add(entry, region.section)

    def _read_kpack(self, headers: Headers, size: int) -> bool:
        """Adds code that was moved to a `.kpack` file; `.hip_fatbin` is then full of zeros."""
        for section in headers.sections:
            moved = section.name == _KPACK_SECTION
            if section.name == ".hipFatBinSegment":
                end = min(section.offset + section.on_disk, size)
                places = range(section.offset, end, _WRAPPER_SIZE)[:_MOST_WRAPPERS]
                moved = any(self.source.read(at, 4) == _KPACK_WRAPPER for at in places)
            if moved:
                note = "the code was moved to a .kpack file"
                entry = Entry("hip-kpack", "unknown", None, section.offset, 0, note=note)
                self._sums.add(entry, section.name)
                return True
        return False


def read_containers(source: ByteSource, size: int, unread: list[str]) -> tuple[DeviceCode, ...]:
    """All containers of a file that consists of them; trouble goes to `unread`."""
    device = DeviceCodeFinder(source, unread)
    device.read_region(Region(0, size, None, executable=False))
    return device.found()


def _next_magic(source: ByteSource, at: int, end: int) -> int | None:
    """Where the next magic number begins; containers follow each other, so mostly at once."""
    step = _FIRST_STEP
    while at < end:
        data = source.read(at, min(step, end - at))
        found = _MAGICS.search(data)
        if found:
            return at + found.start()
        if len(data) < _LONGEST_MAGIC:
            return None
        at += len(data) - _LONGEST_MAGIC + 1
        step = min(4 * step, _LARGEST_STEP)
    return None
