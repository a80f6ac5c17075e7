"""Which parts of a file hold device code, and which hold data and code of the host.

A byte belongs to one region at most, however the sections of a hostile file overlap: scanning all
regions reads each byte of the file once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from buildmatrix.elf import layout as abi
from buildmatrix.elf.dynamic import Dynamic
from buildmatrix.elf.headers import Headers, SectionHeader

#: Sections that compilers fill with device code and nothing else; names may go on after these.
DEVICE_SECTIONS = (
    ".nv_fatbin",
    "__nv_relfatbin",
    ".hip_fatbin",
    "__CLANG_OFFLOAD_BUNDLE__",
    ".llvm.offloading",
)
#: Sections of the host that need not be searched: unwinding and offset tables have no strings, and
#: the interpreter is read by itself.
SKIPPED = (".eh_frame", ".gcc_except_table", ".got", ".plt", ".interp")

#: Bytes per read of a search: a window then stays in the cache of the processor for all passes over
#: it. Of 64 KiB to 4 MiB, 128 to 512 KiB were the fastest.
CHUNK = 512 << 10
#: Bytes kept before and after what a window is searched for, so that no match is cut in two.
BEFORE = 256
AFTER = 128


@dataclass(frozen=True, slots=True)
class Region:
    """A run of bytes in the file; `section` is its name where sections exist."""

    offset: int
    size: int
    section: str | None
    executable: bool

    @property
    def end(self) -> int:
        """Offset of the first byte behind it."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a region. Matches that begin in `data[start:stop]` are its own."""

    #: File offset of `data[0]`.
    offset: int
    data: bytes
    start: int
    stop: int


def device_regions(headers: Headers, size: int) -> tuple[Region, ...]:
    """The sections that hold device code by their name, in file order."""
    return tuple(
        disjoint((_region(s) for s in headers.sections if s.name.startswith(DEVICE_SECTIONS)), size)
    )


def host_regions(headers: Headers, dynamic: Dynamic, size: int) -> tuple[Region, ...]:
    """What is loaded as data or code of the host, in file order.

    Symbol and string tables are left out: names in there load nothing. So are debug information
    and bytes outside all sections, where patchelf leaves old names. Without section headers these
    are the segments, less the dynamic string table.
    """
    if headers.sections:
        regions = [
            _region(s)
            for s in headers.sections
            if s.type == abi.SHT_PROGBITS
            and s.flags & abi.SHF_ALLOC
            and not s.name.startswith(DEVICE_SECTIONS)
            and not s.name.startswith(SKIPPED)
        ]
        return tuple(disjoint(regions, size))
    strings_end = dynamic.strings_at + dynamic.strings_size
    separate = code_is_separate(headers)
    regions = []
    for segment in headers.segments:
        if segment.type == abi.PT_LOAD:
            code = separate and bool(segment.flags & abi.PF_X)
            end = segment.offset + segment.size
            before = min(end, max(segment.offset, dynamic.strings_at))
            after = max(segment.offset, min(end, strings_end))
            regions.append(Region(segment.offset, before - segment.offset, None, code))
            regions.append(Region(after, end - after, None, code))
    return tuple(disjoint(regions, size))


def code_is_separate(headers: Headers) -> bool:
    """Whether an executable segment holds nothing but code.

    So it is where the file's headers lie in a segment for constants. Without `-z separate-code`
    linkers put headers, code and constants into one.
    """
    loads = [segment for segment in headers.segments if segment.type == abi.PT_LOAD]
    first = min(loads, key=lambda segment: segment.offset, default=None)
    return first is not None and not first.flags & (abi.PF_X | abi.PF_W)


def _region(section: SectionHeader) -> Region:
    executable = bool(section.flags & abi.SHF_EXECINSTR)
    return Region(section.offset, section.on_disk, section.name, executable)


def disjoint(regions: Iterable[Region], size: int) -> Iterator[Region]:
    """The regions in file order, cut to the file and to what no earlier one covers."""
    covered = 0
    for region in sorted(regions, key=lambda r: (r.offset, -r.size)):
        start = max(region.offset, covered)
        end = min(region.end, size)
        if start < end:
            yield Region(start, end - start, region.section, region.executable)
            covered = end
