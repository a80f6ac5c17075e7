"""The symbols of one object, read on demand: what it needs from which library, and what it offers.

No verdict needs them, and a large library has some hundred thousand, so `read_elf` leaves them out.
Source: gABI chapter 4, "Symbol Table".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from buildmatrix.elf import layout as abi
from buildmatrix.elf.dynamic import Dynamic, read_dynamic
from buildmatrix.elf.headers import Headers, read_headers, text
from buildmatrix.elf.model import Symbols, Undefined
from buildmatrix.elf.source import ByteSource, CachedSource
from buildmatrix.elf.versions import read_versions

#: Names kept of each kind: undefined and defined.
MOST_NAMES = 1 << 17
#: Entries of a table that are looked at.
MOST_SYMBOLS = 1 << 20
#: Bytes of one string table that are read at once, and of all names that are kept of it.
MOST_TABLE_BYTES = 24 << 20
MOST_NAME_BYTES = 24 << 20
MOST_UNDEFINED_BYTES = 8 << 20
#: One name; templates of C++ reach some ten thousand characters.
LONGEST_NAME = 1 << 16

_SHORT_NAME = 512
#: Bytes of a symbol table read at once.
_RUN = 256 << 10

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class _TableSymbol:
    name: str
    #: Place in the table, which is the place in the table of versions.
    index: int
    defined: bool
    binding: int


def read_symbols(source: ByteSource, size: int) -> Symbols | None:
    """The symbols of the ELF file in `source`, `size` bytes long; None when it is no ELF.

    Time and memory are bounded; what is left out is in `Symbols.unread`.

    Raises:
        Malformed: the header itself cannot be used.
        OSError: the source could not be read.
    """
    cached = CachedSource(source, size)
    headers = read_headers(cached)
    if headers is None:
        return None
    dynamic = read_dynamic(cached, headers)
    place = _dynamic_table(cached, headers, dynamic)
    if place is not None:
        undefined, defined = _dynamic_symbols(cached, headers, dynamic, place)
    else:
        # A relocatable object has one table for everything.
        undefined, defined = _static_symbols(cached, headers)
    return Symbols(undefined, defined, tuple(dict.fromkeys(headers.unread)))


@dataclass(frozen=True, slots=True)
class _SymbolTable:
    """Where a symbol table and its strings lie, in bytes."""

    offset: int
    count: int
    strings_at: int
    strings_size: int


def _section_table(headers: Headers, kind: int) -> _SymbolTable | None:
    for section in headers.sections:
        if section.type == kind and section.link < len(headers.sections):
            strings = headers.sections[section.link]
            count = section.size // headers.layout.symbol.size
            return _SymbolTable(section.offset, count, strings.offset, strings.on_disk)
    return None


def _dynamic_table(source: CachedSource, headers: Headers, dynamic: Dynamic) -> _SymbolTable | None:
    """The dynamic symbols; their number stands in the section header or in a hash table."""
    place = _section_table(headers, abi.SHT_DYNSYM)
    if place is not None:
        return place
    offset = headers.file_offset(dynamic.tags.get(abi.DT_SYMTAB, -1))
    if offset is None:
        return None
    count = _count(source, headers, dynamic)
    return _SymbolTable(offset, count, dynamic.strings_at, dynamic.strings_size)


def _count(source: CachedSource, headers: Headers, dynamic: Dynamic) -> int:
    number = headers.layout.number
    table = headers.file_offset(dynamic.tags.get(abi.DT_HASH, -1))
    if table is not None:
        # nbucket, nchain: every symbol has its place in the chain.
        data = source.read(table, 8)
        return int.from_bytes(data[4:], "little" if headers.layout.little_endian else "big")
    table = headers.file_offset(dynamic.tags.get(abi.DT_GNU_HASH, -1))
    data = source.read(table, 16) if table is not None else b""
    if table is None or len(data) < 16:
        headers.unread.append("the number of dynamic symbols is not known")
        return 0
    # nbuckets, symoffset, bloom_size, bloom_shift; buckets, and chains that end with an odd hash.
    buckets, first, bloom, _ = (value for (value,) in number.iter_unpack(data))
    at = table + 16 + bloom * (headers.layout.bits // 8)
    raw = source.read(at, min(buckets, MOST_SYMBOLS) * 4)
    last = max((value for (value,) in number.iter_unpack(raw[: len(raw) // 4 * 4])), default=0)
    if last < first:
        return int(first)
    chain = at + buckets * 4 + (last - first) * 4
    for step in range(MOST_SYMBOLS):
        data = source.read(chain + step * 4, 4)
        if len(data) < 4 or number.unpack(data)[0] & 1:
            return last + step + 1
    return last


def _entries(source: CachedSource, headers: Headers, place: _SymbolTable) -> Iterator[_TableSymbol]:
    """The symbols with a name, except those that only stand for sections and files."""
    row = headers.layout.symbol
    names = _Names(source, place)
    count = min(place.count, MOST_SYMBOLS)
    for start in range(0, count, _RUN // row.size):
        length = min(_RUN // row.size, count - start)
        data = source.read(place.offset + start * row.size, length * row.size)
        for number, fields in enumerate(row.iter_unpack(data[: len(data) // row.size * row.size])):
            if headers.layout.bits == 64:
                name_at, info, _, section, _, _ = fields
            else:
                name_at, _, _, info, _, section = fields
            if name_at and info & 0xF not in (abi.STT_SECTION, abi.STT_FILE):
                defined = section != abi.SHN_UNDEF
                name = names.at(name_at, defined=defined)
                if name:
                    yield _TableSymbol(name, start + number, defined, info >> 4)
        if len(data) < length * row.size:
            headers.unread.append("a symbol table goes on behind the end of the file")
            break
    if place.count > MOST_SYMBOLS:
        headers.unread.append(f"only {MOST_SYMBOLS} of {place.count} symbols were looked at")
    if names.missing:
        headers.unread.append(
            f"{names.missing} names of symbols are left out: too long in sum, or not in the file"
        )


class _Names:
    """The names of one table. Its start is read at once, for their order is any."""

    def __init__(self, source: CachedSource, place: _SymbolTable) -> None:
        self._source = source
        self._table = place
        self._data = source.read(place.strings_at, min(place.strings_size, MOST_TABLE_BYTES))
        self._budgets = {False: MOST_UNDEFINED_BYTES, True: MOST_NAME_BYTES}
        #: Names that could not be read.
        self.missing = 0

    def at(self, index: int, *, defined: bool) -> str | None:
        """The name at `index` of the table."""
        if self._budgets[defined] > 0:
            data, begin = self._data, index
            if index + LONGEST_NAME > len(data) and len(data) < self._table.strings_size:
                data, begin = self._apart(index), 0
            end = data.find(b"\0", begin, begin + LONGEST_NAME)
            # Looking for an end that does not come costs as much as a long name.
            self._budgets[defined] -= end - begin if end >= 0 else LONGEST_NAME
            if end >= 0:
                return text(data[begin:end])
        self.missing += 1
        return None

    def _apart(self, index: int) -> bytes:
        """The bytes of one name, and what follows it."""
        remaining = max(0, self._table.strings_size - index)
        at = self._table.strings_at + index
        short = self._source.read(at, min(remaining, _SHORT_NAME))
        return short if b"\0" in short else self._source.read(at, min(remaining, LONGEST_NAME))


class _DistinctSymbols(Generic[Item]):
    """Different symbols in the order of the table, at most `MOST_NAMES`."""

    def __init__(self) -> None:
        self._items: dict[Item, None] = {}
        self._full = False

    def add(self, item: Item) -> None:
        """Keeps one more, if there is room."""
        if len(self._items) < MOST_NAMES:
            self._items[item] = None
        else:
            self._full |= item not in self._items

    def items(self, headers: Headers) -> tuple[Item, ...]:
        """What was kept; `headers.unread` says so where there was more."""
        if self._full:
            headers.unread.append(f"more than {MOST_NAMES} names of symbols: the first are kept")
        return tuple(self._items)


def _dynamic_symbols(
    source: CachedSource, headers: Headers, dynamic: Dynamic, place: _SymbolTable
) -> tuple[tuple[Undefined, ...], tuple[str, ...]]:
    versions = read_versions(source, headers, dynamic).names
    numbers = b""
    table = headers.file_offset(dynamic.tags.get(abi.DT_VERSYM, -1))
    if table is not None and versions:
        numbers = source.read(table, min(place.count, MOST_SYMBOLS) * 2)
    undefined: _DistinctSymbols[Undefined] = _DistinctSymbols()
    defined: _DistinctSymbols[str] = _DistinctSymbols()
    for entry in _entries(source, headers, place):
        if entry.defined:
            defined.add(entry.name)
        else:
            library, version = None, None
            if 2 * entry.index + 2 <= len(numbers):
                (number,) = headers.layout.half.unpack_from(numbers, 2 * entry.index)
                library, version = versions.get(number & 0x7FFF, (None, None))
            weak = entry.binding == abi.STB_WEAK
            undefined.add(Undefined(entry.name, version, library, weak))
    return undefined.items(headers), defined.items(headers)


def _static_symbols(
    source: CachedSource, headers: Headers
) -> tuple[tuple[Undefined, ...], tuple[str, ...]]:
    """What a relocatable object needs and offers."""
    place = _section_table(headers, abi.SHT_SYMTAB)
    undefined: _DistinctSymbols[Undefined] = _DistinctSymbols()
    defined: _DistinctSymbols[str] = _DistinctSymbols()
    for entry in _entries(source, headers, place) if place is not None else ():
        if not entry.defined:
            undefined.add(Undefined(entry.name, weak=entry.binding == abi.STB_WEAK))
        elif entry.binding != abi.STB_LOCAL:
            defined.add(entry.name)
    return undefined.items(headers), defined.items(headers)
