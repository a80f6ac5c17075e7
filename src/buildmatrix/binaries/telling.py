"""From what passed by of an ELF file to its facts (see `binaries.head`)."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from buildmatrix.binaries.kept import Kept
from buildmatrix.binaries.model import Elf
from buildmatrix.binaries.passing import Found
from buildmatrix.binaries.reader import read_interpreter, tables_told
from buildmatrix.device_code import bundles, codeobject
from buildmatrix.device_code.entries import Entry
from buildmatrix.device_code.model import DeviceCode
from buildmatrix.device_code.sums import Sums
from buildmatrix.elf import layout as abi
from buildmatrix.elf.dynamic import Dynamic, read_dynamic
from buildmatrix.elf.headers import Headers, Segment, read_headers
from buildmatrix.elf.literals import MOST_NAMES
from buildmatrix.elf.model import Literal, Mark
from buildmatrix.elf.notes import MOST_BYTES, read_notes
from buildmatrix.elf.regions import (
    Region,
    code_is_separate,
    device_regions,
    disjoint,
    host_regions,
)
from buildmatrix.elf.source import CachedSource, PlainSource
from buildmatrix.elf.versions import Versions, read_versions

#: How far the string table of the dynamic section is looked for. That of libtensorflow_cc.so,
#: with half a million symbols, begins after 20 MB.
LATEST_TABLE = 48 << 20
#: Bytes that a table which the program headers name may have to be kept. patchelf moved one of
#: 25 MB in libpaddle.so.
LARGEST_TABLE = 64 << 20
#: Bytes before the section headers that are kept, and as many more as those have: the names of
#: sections lie there, which take 10 to 40 bytes each.
BEFORE_SECTIONS = 256 << 10

INCOMPLETE = "the file was read up to byte {}: the list may be incomplete"

#: Names that the C runtime's start files put into every such table, and versions of glibc, which
#: stand in data as well, for dlvsym(3).
_TABLE_NAME = re.compile(rb"\0(?:__gmon_start__|_ITM_deregisterTMCloneTable|__cxa_finalize)\0")
_TABLE_NAME_OR_VERSION = re.compile(rb"(?:%b)|\0GLIBC_2\.[0-9.]{1,8}\0" % _TABLE_NAME.pattern)
#: One of these is in whatever matches one of those, and is found many times faster.
_TABLE_WORDS = (b"__gmon_start__", b"_ITM_deregisterTMCloneTable", b"__cxa_finalize", b"GLIBC_2.")
_LONGEST_TABLE_NAME = 32
#: A section that is one image, whose target stands in its name.
_IMAGE_SECTION = bundles.MAGIC.decode()
#: What ends a table of strings. Runs of NUL do not: tools overwrite search paths with them.
_TABLE_END = re.compile(rb"[\x01-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Head:
    """What the bytes that were read say, and what more of them would bring."""

    elf: Elf
    #: Byte up to which the file has to be read for a complete list of the libraries that it links;
    #: None when it is complete.
    linking_end: int | None
    #: Byte up to which host data and code, and with them device code and literals, may lie.
    loaded_end: int
    #: Whether all of the file was read, and some table or data was not where it should be.
    misplaced: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What the headers at the start of a file say about where the rest is."""

    headers: Headers
    #: What is loaded, in file order; the whole file where nothing is.
    regions: tuple[Region, ...]
    #: Whether the executable ones hold nothing but code.
    separate: bool
    #: Places of the tables that are read in the end.
    tables: tuple[tuple[int, int], ...]
    #: Segments that may hold nothing but tables that patchelf put there.
    moved: tuple[Segment, ...]
    #: Where the dynamic section, and what was moved, ends; None when there is none.
    linking_end: int | None
    loaded_end: int
    #: Where the first segment ends: the loader's tables lie in it, or patchelf has moved them.
    first_end: int
    #: Where what the linker laid out for loading ends: symbols and names of sections follow.
    linked_end: int


def plan_of(headers: Headers, size: int) -> Plan:
    """The plan for a file of `size` bytes whose first page was read."""
    loads = [one for one in headers.segments if one.type == abi.PT_LOAD]
    with_bss = [one.address for one in loads if one.memory > one.size]
    # Linkers put what has no bytes in the file last; patchelf puts its segments behind that.
    moved = tuple(one for one in loads if with_bss and one.address > max(with_bss))
    dynamic = [one for one in headers.segments if one.type == abi.PT_DYNAMIC]
    small = [
        one
        for one in headers.segments
        if one.type in (abi.PT_DYNAMIC, abi.PT_NOTE, abi.PT_INTERP) or one in moved
    ]
    tables = [(one.offset, one.offset + min(one.size, LARGEST_TABLE)) for one in small]
    if headers.sections_at:
        length = min(headers.sections_size, LARGEST_TABLE)
        before = headers.sections_at - length - BEFORE_SECTIONS
        tables.append((before, headers.sections_at + length))
    tables.append((size - BEFORE_SECTIONS, size))
    regions = [Region(one.offset, one.size, None, bool(one.flags & abi.PF_X)) for one in loads] or [
        Region(0, size, None, executable=False)
    ]
    ends = [min(size, one.offset + one.size) for one in (*dynamic, *moved)]
    regions = list(disjoint(regions, size))
    return Plan(
        headers=headers,
        regions=tuple(regions),
        separate=code_is_separate(headers),
        tables=tuple(tables),
        moved=moved,
        linking_end=max(ends) if dynamic else None,
        loaded_end=max((region.end for region in regions), default=0),
        first_end=regions[0].end if regions else 0,
        linked_end=max((one.offset + one.size for one in loads if one not in moved), default=0),
    )


class StringTable:
    """Finds the string table of the dynamic section among the bytes before `limit`.

    `moved`: it may lie elsewhere, so that data may come first.
    """

    def __init__(self, limit: int, *, moved: bool = False) -> None:
        self._name = _TABLE_NAME if moved else _TABLE_NAME_OR_VERSION
        self._limit = limit
        #: Whether it is still to be found, or still goes on.
        self.open = limit > 0
        self.found = False
        #: Where it ends, as far as it has passed by; 0 where it was not found.
        self.end = 0
        self._passed = 0
        self._last = b""

    def search(self, data: bytes) -> None:
        """The bytes that follow those before."""
        self._passed += len(data)
        if not self.open:
            return
        data = self._last + data
        start = self._passed - len(data)
        at = 0
        if not self.found:
            held = any(word in data for word in _TABLE_WORDS)
            name = self._name.search(data) if held else None
            if name is None:
                self._last = data[-_LONGEST_TABLE_NAME:]
                self.open = self._passed < min(self._limit, LATEST_TABLE)
                return
            self.found, self._last = True, b""
            at = name.end() - 1
        end = _TABLE_END.search(data, at)
        self.open = end is None and self._passed < self._limit
        self.end = start + end.start() if end else self._passed


def tell(size: int, kept: Kept, plan: Plan, found: Found, table: StringTable) -> Head:
    """What is known of a file of `size` bytes."""
    read = kept.passed if kept.passed < size else None
    kept.missing = False
    source = CachedSource(kept, size)
    headers = read_headers(source)
    assert headers is not None  # it was read from the same bytes before
    if read is not None and headers.unread:
        headers = replace(headers, sections=())
    dynamic, linking = _dynamic(PlainSource(kept, size), headers, kept, read)
    versions = _versions(source, headers, dynamic, read)
    known = tuple(
        one
        for one in headers.segments
        if one.type not in (abi.PT_NOTE, abi.PT_INTERP)
        or kept.has(one.offset, one.offset + min(one.size, MOST_BYTES))
    )
    with_notes = replace(
        headers,
        segments=known,
        sections=tuple(
            one
            for one in headers.sections
            if one.type != abi.SHT_NOTE or kept.has(one.offset, one.offset + one.size)
        ),
    )
    notes = read_notes(source, with_notes)
    headers.unread.extend(found.unread)
    if found.incomplete:
        headers.unread.append(f"more than {MOST_NAMES} names of libraries: only the first are kept")
    host: tuple[Region, ...] | None = None
    if headers.sections or read is None:
        host = host_regions(headers, dynamic, size)
    misplaced = read is None and kept.missing
    if misplaced:
        headers.unread.append("some of its tables are not where tables are, and were passed over")
    elif read is None and _is_outside(plan, device_regions(headers, size)):
        headers.unread.append("some of its device code is not loaded, and was passed over")
        misplaced = True
    elif read is None and _data_in_code(plan, (*device_regions(headers, size), *(host or ()))):
        headers.unread.append("some of its data lies among code, and was passed over")
        misplaced = True
    telling = _Telling(size, read, kept, plan, headers, dynamic, host, found, table)
    interpreter = read_interpreter(source, with_notes)
    elf = replace(
        tables_told(headers, dynamic, versions, notes, interpreter),
        device_code=telling.device_code(),
        literals=telling.literals(),
        marks=telling.marks(),
        dynamic_read=linking is None,
        linked_names=() if linking is None else telling.linked_names(),
        read=read,
        unread_data=0 if read is None else _data_behind(read, plan),
        unread=() if read is not None else tuple(headers.unread),
    )
    return Head(elf, plan.linking_end if linking else None, plan.loaded_end, misplaced)


def _data_behind(read: int, plan: Plan) -> int:
    """Bytes of data from `read` on."""
    return sum(
        max(0, region.end - max(region.offset, read))
        for region in plan.regions
        if not (region.executable and plan.separate)
    )


def _is_outside(plan: Plan, sections: Iterable[Region]) -> bool:
    """Whether a section with device code in it lies where nothing is loaded from."""
    return any(
        not _is_image(section)
        and not any(one.offset <= section.offset and section.end <= one.end for one in plan.regions)
        for section in sections
    )


def _data_in_code(plan: Plan, sections: Iterable[Region]) -> bool:
    """Whether data lies where the segments say that there is nothing but code."""
    code = [one for one in plan.regions if one.executable and plan.separate]
    return any(
        not data.executable and data.offset < one.end and one.offset < data.end
        for data in sections
        for one in code
    )


def _dynamic(
    source: CachedSource, headers: Headers, kept: Kept, read: int | None
) -> tuple[Dynamic, bool | None]:
    """The dynamic section where it was read, and whether more bytes would tell more of it.

    None for the second: it was read in full.
    """
    place = next((one for one in headers.segments if one.type == abi.PT_DYNAMIC), None)
    if place is not None and read is not None:
        there = kept.has(place.offset, place.offset + place.size)
        if not there:
            return Dynamic(), True
    before = len(headers.unread)
    dynamic = read_dynamic(source, headers)
    missing = len(headers.unread) > before
    return dynamic, True if missing and read is not None else None


def _versions(
    source: CachedSource, headers: Headers, dynamic: Dynamic, read: int | None
) -> Versions:
    before = len(headers.unread)
    versions = read_versions(source, headers, dynamic)
    return Versions() if read is not None and len(headers.unread) > before else versions


@dataclass(frozen=True, slots=True)
class _Telling:
    """Which of the things that were found count."""

    size: int
    read: int | None
    kept: Kept
    plan: Plan
    headers: Headers
    dynamic: Dynamic
    #: Data and code of the host, where that is known.
    host: tuple[Region, ...] | None
    found: Found
    table: StringTable

    def device_code(self) -> tuple[DeviceCode, ...]:
        """Device code, with a note where the list may be incomplete."""
        headers = self.headers
        whole = codeobject.whole(headers.machine, headers.flags, headers.abi_version, self.size)
        if whole is not None:
            return (
                DeviceCode(whole.format, whole.kind, whole.arch, 1, whole.size, 0, note=whole.note),
            )
        device = device_regions(headers, self.size)
        places = (*device, *(self.plan.regions if self.host is None else self.host))
        if self.host is None and not self._is_loaded():
            return ()
        sums = Sums(headers.unread)
        for code in self.found.device_code:
            region = _region_of(places, code.offset)
            if region is not None and not _is_image(region):
                sums.merge(replace(code, section=region.section))
        for module in self.found.modules:
            region = _region_of(places, module.offset)
            if region is not None and not _is_image(region):
                sums.add(module, region.section)
        for region in device if self.read is None else ():
            for entry in self._whole(region):
                sums.add(entry, region.section)
        if self.read is None:
            return sums.found()
        note = INCOMPLETE.format(self.read)
        return tuple(replace(one, note=one.note or note) for one in sums.found())

    def _whole(self, region: Region) -> Iterator[Entry]:
        """The one entry of a section that is one image, or in which nothing was found."""
        name = region.section or ""
        if _is_image(region):
            meaning = bundles.target(name.removeprefix(_IMAGE_SECTION))
            if meaning is not None:
                yield Entry(*meaning, region.offset, region.size)
            return
        starts = self.found.starts
        after = bisect_left(starts, region.offset)
        if after == len(starts) or starts[after] >= region.end:
            note = "nothing in the section could be read while it passed by"
            yield Entry(name, "unknown", None, region.offset, region.size, note=note)

    def literals(self) -> tuple[Literal, ...]:
        """Names in data and code, each once; an exact one stands for the others."""
        names: dict[str, Literal] = {}
        for one in self.found.literals:
            region = self._region(one.offset)
            if region is None or (region.executable and not one.text.startswith("lib")):
                continue
            known = names.get(one.text)
            if known is None or (one.exact, one.packed) > (known.exact, known.packed):
                names[one.text] = replace(one, section=region.section)
        return tuple(sorted(names.values(), key=lambda one: one.offset))

    def marks(self) -> tuple[Mark, ...]:
        """Marks in data."""
        return tuple(
            one
            for one in self.found.marks
            if (region := self._region(one.offset)) is not None
            # A segment that is executable may hold data as well.
            and (self.host is None or not region.executable)
        )

    def linked_names(self) -> tuple[str, ...]:
        """Names in the string table, where it is the one that the loader reads."""
        if self.plan.moved or not self.table.found:
            return ()
        names = (
            one.text
            for one in self.found.literals
            if one.exact
            and one.offset < self.table.end
            and not self._is_told(one.offset)
            and self.kept.read(one.offset - 1, 1) == b"\0"
        )
        return tuple(dict.fromkeys(names))

    def _is_loaded(self) -> bool:
        return any(one.type == abi.PT_LOAD for one in self.headers.segments)

    def _is_told(self, offset: int) -> bool:
        """Whether a byte is of the interpreter's name or a note, which are told by themselves."""
        return any(
            0 <= offset - one.offset < one.size
            for one in self.headers.segments
            if one.type in (abi.PT_INTERP, abi.PT_NOTE)
        )

    def _region(self, offset: int) -> Region | None:
        """The region of host data or code that holds a byte; None for tables and dead bytes."""
        if self.host is not None:
            return _region_of(self.host, offset)
        if not self._is_loaded() or self._is_told(offset) or offset < self._tables_end():
            return None
        if 0 <= offset - self.dynamic.strings_at < self.dynamic.strings_size:
            return None
        if any(0 <= offset - one.offset < one.size for one in self.plan.moved):
            return None
        return _region_of(self.plan.regions, offset)

    def _tables_end(self) -> int:
        """Up to where the first segment holds the tables of linking, as far as that is known."""
        if self.table.found:
            return self.size if self.table.open else self.table.end
        if self.plan.moved or self.plan.linking_end is None or self.dynamic.strings_size:
            return 0
        return self.plan.first_end


def _is_image(region: Region) -> bool:
    return (region.section or "").startswith(_IMAGE_SECTION)


def _region_of(regions: Iterable[Region], offset: int) -> Region | None:
    return next((one for one in regions if one.offset <= offset < one.end), None)
