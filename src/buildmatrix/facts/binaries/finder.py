"""All device code of one file, summed up per format, kind and architecture.

Sections made for device code are walked from container to container, reading headers only. The rest
of the file is searched for containers in host data, since section names do not show everything:
libcufft 12 has 23,984 of them in other sections, and libcupti holds cubins without a section for
them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from buildmatrix.facts.binaries import codeobject, fat_binaries, intermediate
from buildmatrix.facts.binaries.groups import Groups, Sums
from buildmatrix.facts.elf import layout as abi
from buildmatrix.facts.elf.headers import Headers
from buildmatrix.facts.elf.model import CodeContainer, CodeGroup, DeviceCode
from buildmatrix.facts.elf.search import Region, Window, device_regions
from buildmatrix.facts.elf.sieve import Sieve
from buildmatrix.facts.trees.base import ByteSource

_Read = Callable[[ByteSource, int, int], CodeContainer | None]
_READERS: dict[bytes, _Read] = {
    fat_binaries.FATBIN_MAGIC: fat_binaries.read_fatbin,
    fat_binaries.BUNDLE_MAGIC: fat_binaries.read_bundle,
    fat_binaries.COMPRESSED_BUNDLE_MAGIC: fat_binaries.read_compressed_bundle,
    fat_binaries.OFFLOAD_MAGIC: fat_binaries.read_offload_binary,
    abi.MAGIC: codeobject.read_code_object,
    intermediate.SPIRV_MAGIC: intermediate.read_spirv,
    intermediate.PTX_MAGIC: intermediate.read_ptx,
}
_LONGEST_MAGIC = max(map(len, _READERS))
_MAGICS = re.compile(b"|".join(map(re.escape, _READERS)))
#: Byte sequences searched for in host data, with the distance from the start of the container. For
#: SPIR-V it is the second half of the magic number and the start of the version. PTX text begins
#: somewhere before (`locate_container`). OffloadBinary always has its section.
NEEDLES: Mapping[bytes, int] = MappingProxyType(
    {
        fat_binaries.FATBIN_MAGIC: 0,
        fat_binaries.COMPRESSED_BUNDLE_MAGIC: 0,
        fat_binaries.BUNDLE_MAGIC: 0,
        abi.MAGIC: 0,
        intermediate.SPIRV_MAGIC[2:] + b"\0": 2,
        intermediate.PTX_SEARCHED: 0,
    }
)
_SIEVE = Sieve(NEEDLES, anchors=b".CL")
#: Bytes between two containers in a row; the padding is zeros.
_LONGEST_GAP = 64

#: Entries and containers counted in one file; libcufft has fifty thousand.
MOST_ENTRIES = 1 << 20
#: Magic numbers in host data that are examined.
MOST_CANDIDATES = 1 << 18
#: Magic numbers without a container in device-code sections; real files have none.
MOST_FAILURES = 1 << 13
#: Compressed bundles opened: each takes 1 ms in real files, 12 ms in hostile ones.
MOST_OPENED = 1 << 11
#: Bytes searched in total; a sparse file may claim any size.
MOST_SEARCHED = 4 << 30
#: Bytes read per step in the search for the next container: first, and at most.
_FIRST_STEP = 4 << 10
_LARGEST_STEP = 1 << 20

#: Format assumed for an unreadable section, by its name.
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


@dataclass(slots=True)
class SearchCost:
    """Reading costs so far, shared by the members of an archive."""

    #: Compressed bundles opened.
    opened: int = 0
    #: Bytes searched.
    searched: int = 0

    def search(self, count: int, unread: list[str]) -> int:
        """Return how many of `count` more bytes may be searched; a shortfall goes to `unread`."""
        granted = min(count, MOST_SEARCHED - self.searched)
        self.searched += granted
        if granted < count:
            unread.append(f"only the first {MOST_SEARCHED} bytes of data were searched")
        return granted


def locate_container(needle: bytes, begin: int, window: Window) -> int | None:
    """Return where in the window the container of a needle at `begin` starts; None if nowhere.

    A container is found in the window in which it begins; PTX may have begun before.
    """
    if needle == intermediate.PTX_SEARCHED:
        if begin >= window.stop:
            return None
        place = window.data.rfind(
            intermediate.PTX_MAGIC, max(0, begin - intermediate.PTX_BEFORE), begin
        )
        return place if place >= 0 else None
    place = begin - NEEDLES[needle]
    return place if window.start <= place < window.stop else None


def find_candidates(window: Window) -> list[int]:
    """Return the file offsets in this window where a container may begin, in order."""
    stop = window.stop + max(NEEDLES.values())
    hits = _SIEVE.hits(window.data, window.start, stop)
    places = (locate_container(needle, begin, window) for begin, needle in hits)
    return sorted(window.offset + place for place in places if place is not None)


@dataclass(slots=True)
class DeviceCodeFinder:
    """Sums up the entries of one file and records the bytes that they take up."""

    source: ByteSource
    unread: list[str]
    spent: SearchCost = field(default_factory=SearchCost)
    _sums: Sums = field(init=False)
    _groups: Groups = field(init=False)
    _starts: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _entries: int = 0
    _failures: int = 0
    #: True once no more places in host data are examined.
    ended: bool = False
    #: Places examined.
    _tried: int = 0

    def __post_init__(self) -> None:
        self._sums = Sums(self.unread)
        self._groups = Groups(self.source)

    def read_sections(self, headers: Headers, size: int) -> None:
        """Add device code of the file itself and of its device-code sections."""
        entry = codeobject.entry_of_file(self.source, headers, size)
        if entry is not None:
            self._sums.add(entry)
        moved = self._read_kpack(headers, size)
        for region in device_regions(headers, size):
            name = region.section or ""
            if name.startswith(fat_binaries.BUNDLE_MAGIC.decode()):
                image = fat_binaries.read_bundle_section(
                    self.source, region.offset, region.size, name
                )
                if image is not None:
                    self._sums.add(image, name)
            elif not self.read_region(region) and not moved:
                container = next((f for s, f in _FORMATS.items() if name.startswith(s)), name)
                note = "nothing in the section could be read"
                self._sums.add(
                    DeviceCode(
                        container, "unknown", None, 1, region.size, region.offset, name, note
                    )
                )

    def add_containers(self, offset: int, region: Region) -> int:
        """Add the container that may begin at `offset`, and those directly behind it.

        Returns the offset behind the last one, or `offset`. Calls come in file order.
        """
        end = offset
        place: int | None = offset
        while place is not None and self._may_try():
            container = self.read_at(place, region.end)
            if container is None:
                break
            self.add(container, region)
            self._starts.append(place)
            self._ends.append(container.end)
            end = container.end
            head = self.source.read(end, min(_LONGEST_GAP, region.end - end))
            packed = head.lstrip(b"\0")
            place = end + len(head) - len(packed) if _MAGICS.match(packed) else None
        return end

    def _may_try(self) -> bool:
        """True if one more place may be examined; reaching the limit is reported once."""
        if self.ended:
            return False
        self._tried += 1
        if self._tried > MOST_CANDIDATES:
            self.unread.append(f"more than {MOST_CANDIDATES} places look like device code")
            self.ended = True
        elif self.is_full():
            self.ended = True
        return not self.ended

    def covers(self, offset: int) -> bool:
        """True if a container found in host data covers the byte at `offset`."""
        index = bisect_right(self._starts, offset) - 1
        return index >= 0 and offset < self._ends[index]

    def device_code(self) -> tuple[DeviceCode, ...]:
        """Return the sums, in an order that depends only on the bytes."""
        return self._sums.device_code()

    def code_groups(self) -> tuple[CodeGroup, ...]:
        """Return the groups of objects with different targets; reads kernel names."""
        return self._groups.groups()

    def read_region(self, region: Region) -> bool:
        """Add all containers of a region that consists of them; return False if there are none."""
        any_found = False
        before = self._failures
        at = region.offset
        while (place := self._next_magic(at, region.end)) is not None:
            container = self.read_at(place, region.end)
            if container is None:
                at = place + 1
                self._failures += 1
                if self._failures > MOST_FAILURES:
                    self.unread.append(
                        f"{region.section or 'the file'} is full of broken device code"
                    )
                    return any_found
                continue
            any_found = True
            self.add(container, region)
            at = container.end
            if self.is_full():
                break
        if any_found and self._failures > before:
            self.unread.append(
                f"{region.section or 'the file'} holds {self._failures - before} pieces of device"
                " code that are damaged or cut short"
            )
        return any_found

    def _next_magic(self, at: int, end: int) -> int | None:
        """Return the offset of the next magic number; containers are adjacent, so usually `at`."""
        step = _FIRST_STEP
        while at < end:
            data = self.source.read(at, min(step, end - at))
            match = _MAGICS.search(data)
            passed = match.start() if match else len(data)
            if self.spent.search(passed, self.unread) < passed:
                return None
            if match:
                return at + match.start()
            if len(data) < _LONGEST_MAGIC:
                return None
            at += len(data) - _LONGEST_MAGIC + 1
            step = min(4 * step, _LARGEST_STEP)
        return None

    def read_at(self, offset: int, limit: int) -> CodeContainer | None:
        """Read the container at `offset` without counting it; `limit` ends its possible holder."""
        head = self.source.read(offset, min(_LONGEST_MAGIC, limit - offset))
        match = _MAGICS.match(head)
        if match is None:
            return None
        if match.group() == fat_binaries.COMPRESSED_BUNDLE_MAGIC:
            self.spent.opened += 1
            opened = self.spent.opened <= MOST_OPENED
            return fat_binaries.read_compressed_bundle(self.source, offset, limit, opened=opened)
        return _READERS[match.group()](self.source, offset, limit)

    def is_full(self) -> bool:
        """True if the entry limit is reached, which is then reported."""
        if self._entries < MOST_ENTRIES:
            return False
        self.unread.append(f"only the first {MOST_ENTRIES} pieces of device code were read")
        return True

    def add(self, container: CodeContainer, region: Region) -> None:
        """Add the entries of a container."""
        self._entries += 1 + len(container.entries)
        self._groups.add(container, region.section)
        for entry in container.entries:
            self._sums.add(entry, region.section)

    def _read_kpack(self, headers: Headers, size: int) -> bool:
        """Add code moved to a `.kpack` file, which leaves `.hip_fatbin` full of zeros."""
        for section in headers.sections:
            moved = section.name == _KPACK_SECTION
            if section.name == ".hipFatBinSegment":
                end = min(section.offset + section.on_disk, size)
                places = range(section.offset, end, _WRAPPER_SIZE)[:_MOST_WRAPPERS]
                moved = any(self.source.read(at, 4) == _KPACK_WRAPPER for at in places)
            if moved:
                note = "the code was moved to a .kpack file"
                entry = DeviceCode("hip-kpack", "unknown", None, 1, 0, section.offset, note=note)
                self._sums.add(entry, section.name)
                return True
        return False


def read_containers(
    source: ByteSource, size: int, unread: list[str], spent: SearchCost | None = None
) -> tuple[DeviceCode, ...] | None:
    """Read all containers of a file that consists of them; None if it has none.

    Containers may hold only host code. Problems go to `unread`.
    """
    device = DeviceCodeFinder(source, unread, spent or SearchCost())
    is_made_of_them = device.read_region(Region(0, size, None, executable=False))
    return device.device_code() if is_made_of_them else None
