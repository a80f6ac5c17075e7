"""Facts of an ELF file from its stream (see `facts.binaries.stream`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from buildmatrix.facts.binaries import codeobject, fat_binaries
from buildmatrix.facts.binaries.groups import Sums
from buildmatrix.facts.binaries.hostdata import SearchResults
from buildmatrix.facts.binaries.reader import make_table_facts, read_interpreter
from buildmatrix.facts.elf import layout as abi
from buildmatrix.facts.elf.headers import Dynamic, Headers, Segment, read_dynamic, read_headers
from buildmatrix.facts.elf.layout import CachedSource, PlainSource
from buildmatrix.facts.elf.model import DeviceCode, Elf, Literal, Mark
from buildmatrix.facts.elf.notes import MOST_BYTES, Versions, read_notes, read_versions
from buildmatrix.facts.elf.search import (
    CHUNK,
    Region,
    code_is_separate,
    device_regions,
    disjoint,
    host_regions,
)
from buildmatrix.facts.elf.symbols import read_binding
from buildmatrix.facts.trees.base import ByteSource

#: Limit of the search for the string table of the dynamic section. In libtensorflow_cc.so, with
#: half a million symbols, it begins after 20 MB.
LATEST_TABLE = 48 << 20

INCOMPLETE = "the file was read up to byte {}: the list may be incomplete"

#: Names that the C runtime's start files put into every such table, and versions of glibc, which
#: are in data as well, for dlvsym(3).
_TABLE_NAME = re.compile(rb"\0(?:__gmon_start__|_ITM_deregisterTMCloneTable|__cxa_finalize)\0")
_TABLE_NAME_OR_VERSION = re.compile(rb"(?:%b)|\0GLIBC_2\.[0-9.]{1,8}\0" % _TABLE_NAME.pattern)
#: Every match contains one of these words, which are found many times faster.
_TABLE_WORDS = (b"__gmon_start__", b"_ITM_deregisterTMCloneTable", b"__cxa_finalize", b"GLIBC_2.")
_LONGEST_TABLE_NAME = 32
#: A section that is one image, with the target in its name.
_IMAGE_SECTION = fat_binaries.BUNDLE_MAGIC.decode()
#: End of a string table. A run of NULs does not end it: tools overwrite search paths with them.
_TABLE_END = re.compile(rb"[\x01-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Head:
    """Facts from the bytes read, and the offsets where more facts may be."""

    elf: Elf
    #: Byte up to which the file must be read for a complete list of linked libraries; None if
    #: complete.
    linking_end: int | None
    #: Byte up to which host data and code, and so device code and literals, may lie.
    loaded_end: int


@dataclass(frozen=True, slots=True)
class ReadingPlan:
    """Location of the parts of a file, from the headers at its start."""

    headers: Headers
    #: Loaded regions, in file order; the whole file if none is loaded.
    regions: tuple[Region, ...]
    #: True if the executable regions contain only code.
    separate: bool
    #: Segments that may contain only tables moved there by patchelf.
    moved: tuple[Segment, ...]
    #: End of the dynamic section and of moved tables; None if there is no dynamic section.
    linking_end: int | None
    loaded_end: int
    #: End of the first segment. It holds the loader's tables, unless patchelf moved them.
    first_end: int


def plan_reading(headers: Headers, size: int) -> ReadingPlan:
    """Plan the reading of a file of `size` bytes from its first page."""
    loads = [segment for segment in headers.segments if segment.type == abi.PT_LOAD]
    with_bss = [segment.address for segment in loads if segment.memory > segment.size]
    # Linkers put sections without bytes in the file last; patchelf puts its segments behind them.
    moved = tuple(segment for segment in loads if with_bss and segment.address > max(with_bss))
    dynamic = [segment for segment in headers.segments if segment.type == abi.PT_DYNAMIC]
    regions = [
        Region(segment.offset, segment.size, None, bool(segment.flags & abi.PF_X))
        for segment in loads
    ] or [Region(0, size, None, executable=False)]
    ends = [min(size, segment.offset + segment.size) for segment in (*dynamic, *moved)]
    regions = list(disjoint(regions, size))
    return ReadingPlan(
        headers=headers,
        regions=tuple(regions),
        separate=code_is_separate(headers),
        moved=moved,
        linking_end=max(ends) if dynamic else None,
        loaded_end=max((region.end for region in regions), default=0),
        first_end=regions[0].end if regions else 0,
    )


class Prefix:
    """The first bytes of a file, up to `end`, and further parts provided by `lend`."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self.end = 0
        self.lent: list[tuple[int, bytes]] = []

    def has(self, start: int, end: int) -> bool:
        """True if all bytes from `start` to `end` are available."""
        return end <= self.end or any(
            at <= start and end <= at + len(data) for at, data in self.lent
        )

    def read(self, offset: int, length: int) -> bytes:
        """See `ByteSource.read`; stops before the first missing byte."""
        end = offset + length
        data = b""
        if offset < self.end:
            data = self._source.read(offset, min(end, self.end) - offset)
            offset += len(data)
        for at, part in self.lent:
            if at <= offset < min(end, at + len(part)):
                data += part[offset - at : end - at]
                offset = min(end, at + len(part))
        return data


@dataclass(frozen=True, slots=True)
class _StringTable:
    """String table of the dynamic section, as far as it can be told from others."""

    is_found: bool = False
    #: End of the table, as far as it was read; 0 if it was not found.
    end: int = 0
    #: True if it continues behind the bytes read.
    open: bool = False


def _find_string_table(prefix: Prefix, plan: ReadingPlan) -> _StringTable:
    """Find the table in the first segment, if it was not moved away."""
    limit = plan.first_end if plan.linking_end else 0
    # If the table may be elsewhere, data may come first.
    pattern = _TABLE_NAME if plan.moved else _TABLE_NAME_OR_VERSION
    start = None
    at = 0
    while at < min(limit, prefix.end, LATEST_TABLE if start is None else limit):
        low = max(0, at - _LONGEST_TABLE_NAME)
        data = prefix.read(low, min(CHUNK, limit - low))
        after = low + len(data)
        if start is None and any(word in data for word in _TABLE_WORDS):
            name = pattern.search(data)
            start = None if name is None else low + name.end() - 1
        if start is not None:
            end = _TABLE_END.search(data, max(0, start - low))
            if end is not None:
                return _StringTable(True, low + end.start())
        if after <= at:
            break
        at = after
    if start is None:
        return _StringTable()
    return _StringTable(True, at, open=at < limit)


def collect_linking(size: int, prefix: Prefix, *, exports_only: bool = False) -> Elf | None:
    """Return what the tables of a file of `size` bytes say, without a search of its bytes.

    None for other files. `Elf.dynamic_read` says if the dynamic section was there, `Elf.binding` if
    all symbols were; with `exports_only` those that it defines are enough. Raises Malformed.
    """
    headers = read_headers(CachedSource(prefix, size))
    if headers is None:
        return None
    tables = _read_tables(size, prefix, headers, exports_only=exports_only)
    return replace(tables.elf, dynamic_read=tables.is_complete, read=prefix.end)


@dataclass(frozen=True, slots=True)
class _Tables:
    """The tables of a file, as far as they were read."""

    elf: Elf
    headers: Headers
    dynamic: Dynamic
    #: Whether all of the dynamic section was read.
    is_complete: bool


def _read_tables(
    size: int, prefix: Prefix, headers: Headers, *, exports_only: bool = False
) -> _Tables:
    source = CachedSource(prefix, size)
    if headers.unread:
        headers = replace(headers, sections=())
    plain = PlainSource(prefix, size)
    dynamic, is_complete = _read_dynamic(plain, headers, prefix)
    before = len(headers.unread)
    versions = read_versions(source, headers, dynamic)
    if len(headers.unread) > before:
        versions = Versions()
    binding = None
    has_all = exports_only or versions.needs or abi.DT_VERNEED not in dynamic.tags
    if is_complete and has_all and headers.machine not in codeobject.CODE_OBJECT_KINDS:
        binding = read_binding(plain, headers, dynamic, versions, exports_only=exports_only)
    with_notes = replace(
        headers,
        segments=tuple(
            segment
            for segment in headers.segments
            if segment.type not in (abi.PT_NOTE, abi.PT_INTERP)
            or prefix.has(segment.offset, segment.offset + min(segment.size, MOST_BYTES))
        ),
        sections=tuple(
            section
            for section in headers.sections
            if section.type != abi.SHT_NOTE
            or prefix.has(section.offset, section.offset + section.size)
        ),
    )
    elf = make_table_facts(
        headers,
        dynamic,
        versions,
        read_notes(source, with_notes),
        read_interpreter(source, with_notes),
        binding,
    )
    return _Tables(elf, headers, dynamic, is_complete)


def collect_head(size: int, prefix: Prefix, plan: ReadingPlan, results: SearchResults) -> Head:
    """Collect the facts known about a file of `size` bytes."""
    headers = read_headers(CachedSource(prefix, size))
    assert headers is not None  # it was read from the same bytes before
    tables = _read_tables(size, prefix, headers)
    headers, dynamic, is_complete = tables.headers, tables.dynamic, tables.is_complete
    host = host_regions(headers, dynamic, size) if headers.sections else None
    table = _find_string_table(prefix, plan)
    telling = _HeadFacts(size, prefix, plan, headers, dynamic, host, results, table)
    elf = replace(
        tables.elf,
        device_code=telling.device_code(),
        literals=telling.literals(),
        marks=telling.marks(),
        dynamic_read=is_complete,
        linked_names=() if is_complete else telling.linked_names(),
        read=prefix.end,
        unread_data=_count_unread_data(prefix.end, plan),
    )
    return Head(elf, None if is_complete else plan.linking_end, plan.loaded_end)


def _count_unread_data(read: int, plan: ReadingPlan) -> int:
    """Return the number of data bytes from `read` on."""
    return sum(
        max(0, region.end - max(region.offset, read))
        for region in plan.regions
        if not (region.executable and plan.separate)
    )


def _read_dynamic(source: CachedSource, headers: Headers, prefix: Prefix) -> tuple[Dynamic, bool]:
    """Read the dynamic section as far as possible; True if that is all of it."""
    place = next((segment for segment in headers.segments if segment.type == abi.PT_DYNAMIC), None)
    if place is not None and not prefix.has(place.offset, place.offset + place.size):
        return Dynamic(), False
    before = len(headers.unread)
    dynamic = read_dynamic(source, headers)
    return dynamic, len(headers.unread) == before


@dataclass(frozen=True, slots=True)
class _HeadFacts:
    """Filter that selects the search results that count."""

    size: int
    prefix: Prefix
    plan: ReadingPlan
    headers: Headers
    dynamic: Dynamic
    #: Host data and code, where known.
    host: tuple[Region, ...] | None
    results: SearchResults
    table: _StringTable

    def device_code(self) -> tuple[DeviceCode, ...]:
        """Return the device code, with a note if the list may be incomplete."""
        headers = self.headers
        entry = codeobject.entry_of_file(self.prefix, headers, self.size)
        if entry is not None:
            return (entry,)
        device = device_regions(headers, self.size)
        places = (*device, *(self.plan.regions if self.host is None else self.host))
        if self.host is None and not self._is_loaded():
            return ()
        sums = Sums(headers.unread)
        for code in (*self.results.device_code, *self.results.modules):
            region = _find_region(places, code.offset)
            if region is not None and not _is_image(region):
                sums.add(code, region.section)
        note = INCOMPLETE.format(self.prefix.end)
        return tuple(
            replace(device_code, note=device_code.note or note)
            for device_code in sums.device_code()
        )

    def literals(self) -> tuple[Literal, ...]:
        """Return the names in data and code, each once; an exact one wins over others."""
        names: dict[str, Literal] = {}
        for literal in self.results.literals:
            region = self._find_own_region(literal.offset)
            if region is None or (region.executable and not literal.text.startswith("lib")):
                continue
            present = names.get(literal.text)
            if present is None or (literal.exact, literal.packed) > (present.exact, present.packed):
                names[literal.text] = replace(literal, section=region.section)
        return tuple(sorted(names.values(), key=lambda name: name.offset))

    def marks(self) -> tuple[Mark, ...]:
        """Return the marks in data."""
        return tuple(
            mark
            for mark in self.results.marks
            if (region := self._find_own_region(mark.offset)) is not None
            # A segment that is executable may hold data as well.
            and (self.host is None or not region.executable)
        )

    def linked_names(self) -> tuple[str, ...]:
        """Return the names in the string table, if it is the one that the loader reads.

        A version that the file defines may extend the name of a library (`libsndfile.so.1.0` of
        `libsndfile.so.1`): no file links by both.
        """
        if self.plan.moved or not self.table.is_found:
            return ()
        names = (
            literal.text
            for literal in self.results.literals
            if literal.exact
            and literal.offset < self.table.end
            and not self._is_read_elsewhere(literal.offset)
            and self.prefix.read(literal.offset - 1, 1) == b"\0"
        )
        unique = dict.fromkeys(names)
        return tuple(
            name
            for name in unique
            if not any(name[: dot.start()] in unique for dot in re.finditer(r"\.", name))
        )

    def _is_loaded(self) -> bool:
        return any(segment.type == abi.PT_LOAD for segment in self.headers.segments)

    def _is_read_elsewhere(self, offset: int) -> bool:
        """True if a byte belongs to the interpreter name or a note, which are read separately."""
        return any(
            0 <= offset - segment.offset < segment.size
            for segment in self.headers.segments
            if segment.type in (abi.PT_INTERP, abi.PT_NOTE)
        )

    def _find_own_region(self, offset: int) -> Region | None:
        """Return the region of host data or code with a byte; None for tables and dead bytes."""
        if self.host is not None:
            return _find_region(self.host, offset)
        if (
            not self._is_loaded()
            or self._is_read_elsewhere(offset)
            or offset < self._find_tables_end()
        ):
            return None
        if 0 <= offset - self.dynamic.strings_at < self.dynamic.strings_size:
            return None
        if any(0 <= offset - segment.offset < segment.size for segment in self.plan.moved):
            return None
        return _find_region(self.plan.regions, offset)

    def _find_tables_end(self) -> int:
        """Return where the loader's tables in the first segment end, as far as known."""
        if self.table.is_found:
            return self.size if self.table.open else self.table.end
        if self.plan.moved or self.plan.linking_end is None or self.dynamic.strings_size:
            return 0
        return self.plan.first_end


def _is_image(region: Region) -> bool:
    return (region.section or "").startswith(_IMAGE_SECTION)


def _find_region(regions: Iterable[Region], offset: int) -> Region | None:
    return next((region for region in regions if region.offset <= offset < region.end), None)
