"""The symbols of one object: those that it needs, by library, and those that it defines.

A large library has some hundred thousand. So the facts of a file have only what the loader needs
(`read_binding`): names of needed symbols, and the hash table of defined ones. All names are read on
demand (`read_symbols`). Source: gABI chapter 4, "Symbol Table"; for the hash table of GNU,
https://flapenguin.me/elf-dt-gnu-hash and `dl_new_hash` in glibc's elf/dl-lookup.c.
"""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import mul
from struct import iter_unpack

from buildmatrix.facts.elf import layout as abi
from buildmatrix.facts.elf.headers import Dynamic, Headers, read_dynamic, read_headers, text
from buildmatrix.facts.elf.layout import CachedSource
from buildmatrix.facts.elf.model import Binding, SymbolNeed, Symbols, Undefined
from buildmatrix.facts.elf.notes import Versions, read_versions
from buildmatrix.facts.trees.base import ByteSource

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

#: Versions of the C library and of GCC's libraries. Each addition to these has a new one, so a
#: library that has the version has the symbol, too.
_RELEASES = ("GLIBC_", "GLIBCXX_", "CXXABI_", "GCC_", "GFORTRAN_", "GOMP_", "OMP_", "LIBATOMIC_")
#: The C API of Python: the tags of a wheel say which interpreters have it.
_PYTHON = (b"Py", b"_Py")
#: Bytes of names that are read at once.
_WINDOW = 64 << 10


@dataclass(frozen=True, slots=True)
class _TableSymbol:
    name: str
    #: Place in the table, which is the place in the table of versions.
    index: int
    defined: bool
    binding: int


def read_symbols(source: ByteSource, size: int, *, needs_only: bool = False) -> Symbols | None:
    """Return the symbols of the ELF file in `source`, `size` bytes long; None if it is not ELF.

    Time and memory are bounded; `Symbols.unread` names omissions. With `needs_only`, those that it
    defines are left out, which may be many more.

    Raises:
        Malformed: the header itself cannot be used.
        OSError: the source could not be read.
    """
    cached = CachedSource(source, size)
    headers = read_headers(cached)
    if headers is None:
        return None
    dynamic = read_dynamic(cached, headers)
    table = _dynamic_table(cached, headers, dynamic)
    versions: Mapping[int, tuple[str | None, str]] = {}
    numbers = b""
    is_dynamic = table is not None
    if table is not None:
        versions = read_versions(cached, headers, dynamic).names
        at = headers.file_offset(dynamic.tags.get(abi.DT_VERSYM, -1))
        if at is not None and versions:
            numbers = cached.read(at, min(table.count, MOST_SYMBOLS) * 2)
    else:
        # A relocatable object has one table for everything.
        table = _section_table(headers, abi.SHT_SYMTAB)
    undefined: dict[Undefined, None] = {}
    defined: dict[str, None] = {}
    found = _entries(cached, headers, table, needs_only) if table is not None else ()
    for entry in found:
        if entry.defined:
            if len(defined) <= MOST_NAMES and (is_dynamic or entry.binding != abi.STB_LOCAL):
                defined[entry.name] = None
        elif len(undefined) <= MOST_NAMES:
            library, version = None, None
            if 2 * entry.index + 2 <= len(numbers):
                (number,) = headers.layout.half.unpack_from(numbers, 2 * entry.index)
                library, version = versions.get(number & 0x7FFF, (None, None))
            weak = entry.binding == abi.STB_WEAK
            undefined[Undefined(entry.name, version, library, weak)] = None
    if max(len(undefined), len(defined)) > MOST_NAMES:
        headers.unread.append(f"more than {MOST_NAMES} symbol names: only the first were read")
    return Symbols(
        tuple(undefined)[:MOST_NAMES],
        tuple(defined)[:MOST_NAMES],
        tuple(dict.fromkeys(headers.unread)),
    )


@dataclass(frozen=True, slots=True)
class _SymbolTable:
    """Location of a symbol table and its strings, in bytes."""

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
    """Locate the dynamic symbols; their number is in the section header or in a hash table."""
    place = _section_table(headers, abi.SHT_DYNSYM)
    if place is not None:
        return place
    offset = headers.file_offset(dynamic.tags.get(abi.DT_SYMTAB, -1))
    if offset is None:
        return None
    count = _count(source, headers, dynamic)
    return _SymbolTable(offset, count, dynamic.strings_at, dynamic.strings_size)


def _count(source: CachedSource, headers: Headers, dynamic: Dynamic) -> int:
    table = headers.file_offset(dynamic.tags.get(abi.DT_HASH, -1))
    if table is not None:
        # nbucket, nchain: every symbol has its place in the chain.
        data = source.read(table, 8)
        return int.from_bytes(data[4:], "little" if headers.layout.little_endian else "big")
    table = headers.file_offset(dynamic.tags.get(abi.DT_GNU_HASH, -1))
    hashed = _hashes(source, headers, table) if table is not None else None
    if hashed is None:
        headers.unread.append("the number of dynamic symbols is unknown")
        return 0
    return hashed.first + len(hashed.values) // 4


def _entries(
    source: CachedSource, headers: Headers, place: _SymbolTable, needs_only: bool = False
) -> Iterator[_TableSymbol]:
    """Yield the symbols with a name, except those of sections and files."""
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
                if defined and needs_only:
                    continue
                name = names.at(name_at, defined=defined)
                if name:
                    yield _TableSymbol(name, start + number, defined, info >> 4)
        if len(data) < length * row.size:
            headers.unread.append("a symbol table extends beyond the end of the file")
            break
    if place.count > MOST_SYMBOLS:
        headers.unread.append(f"only {MOST_SYMBOLS} of {place.count} symbols were read")
    if names.missing:
        headers.unread.append(
            f"{names.missing} symbol names were skipped: too long in total, or outside the file"
        )


class _Names:
    """Names of one table, whose start is read at once, as they are in any order."""

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


def read_binding(
    source: CachedSource,
    headers: Headers,
    dynamic: Dynamic,
    versions: Versions,
    *,
    exports_only: bool = False,
) -> Binding | None:
    """Read the symbols that the loader binds; None where `source` does not hold all of them.

    Left out of the needs are weak symbols, the C API of Python, and symbols of the C library and
    of GCC's libraries that have a version: `Elf.version_needs` says as much of these. With
    `exports_only` there are no needs; their names lie all over a table that may be large.
    """
    symbols_at = headers.file_offset(dynamic.tags.get(abi.DT_SYMTAB, -1))
    if symbols_at is None:
        return None if abi.DT_SYMTAB in dynamic.tags else Binding()
    table_at = headers.file_offset(dynamic.tags.get(abi.DT_GNU_HASH, -1))
    if table_at is None:
        return _binding_by_names(source, headers, dynamic, versions, symbols_at)
    hashed = _hashes(source, headers, table_at)
    if hashed is None or hashed.first > MOST_SYMBOLS:
        return None
    row = headers.layout.symbol.size
    table = source.read(symbols_at, hashed.first * row)
    behind = symbols_at + (hashed.first + len(hashed.values) // 4) * row
    # Each hash stands for a symbol: a table of hashes alone is none.
    if len(table) < hashed.first * row or behind > source.size:
        return None
    needs = () if exports_only else _needs(source, headers, dynamic, versions, table)
    return None if needs is None else Binding(needs, b64encode(hashed.values).decode())


@dataclass(frozen=True, slots=True)
class _Hashes:
    """Part of a GNU hash table about defined symbols."""

    #: Place in the symbol table of the first symbol that has a hash.
    first: int
    #: 32 bits for each symbol from there on, little-endian.
    values: bytes


def _hashes(source: CachedSource, headers: Headers, at: int) -> _Hashes | None:
    number = headers.layout.number
    start = source.read(at, 16)
    if len(start) < 16:
        return None
    # nbuckets, symoffset, bloom_size, bloom_shift; buckets, and chains that end with an odd hash.
    buckets, first, bloom, _ = (value for (value,) in number.iter_unpack(start))
    at += 16 + bloom * (headers.layout.bits // 8)
    raw = source.read(at, buckets * 4) if buckets <= MOST_SYMBOLS else b""
    if len(raw) < buckets * 4 or not buckets:
        return None
    last = max(_numbers(raw, headers))
    if last < first:
        return _Hashes(first, b"")
    count = last - first + 1
    if count > MOST_SYMBOLS:
        return None
    at += buckets * 4
    values = source.read(at, count * 4)
    little = headers.layout.little_endian
    while len(values) == count * 4 and not values[-4 if little else -1] & 1:
        values += source.read(at + count * 4, 4)
        count += 1
        if count > MOST_SYMBOLS:
            return None
    if len(values) < count * 4:
        return None
    if not little:
        values = b"".join(value[::-1] for (value,) in iter_unpack("4s", values))
    return _Hashes(first, values)


def _numbers(raw: bytes, headers: Headers) -> Iterable[int]:
    """The 32-bit numbers in `raw`."""
    if headers.layout.little_endian == (sys.byteorder == "little"):
        return memoryview(raw).cast("I")
    return (value for (value,) in headers.layout.number.iter_unpack(raw))


def _binding_by_names(
    source: CachedSource, headers: Headers, dynamic: Dynamic, versions: Versions, symbols_at: int
) -> Binding | None:
    """Read the symbols of an object whose hash table is the older one, without hashes."""
    if headers.file_offset(dynamic.tags.get(abi.DT_HASH, -1)) is None:
        return None
    unread = len(headers.unread)
    count = _count(source, headers, dynamic)
    row = headers.layout.symbol.size
    table = source.read(symbols_at, min(count, MOST_SYMBOLS) * row)
    if count > MOST_SYMBOLS or len(table) < count * row:
        return None
    needs = _needs(source, headers, dynamic, versions, table)
    place = _SymbolTable(symbols_at, count, dynamic.strings_at, dynamic.strings_size)
    if needs is None or source.read(dynamic.strings_at, 1) != b"\0":
        return None
    values = [
        gnu_hash(symbol.name)
        for symbol in _entries(source, headers, place)
        if symbol.defined and symbol.binding != abi.STB_LOCAL
    ]
    if len(headers.unread) > unread:
        del headers.unread[unread:]
        return None
    exports = b"".join(value.to_bytes(4, "little") for value in values)
    return Binding(needs, b64encode(exports).decode())


def _needs(
    source: CachedSource, headers: Headers, dynamic: Dynamic, versions: Versions, table: bytes
) -> tuple[SymbolNeed, ...] | None:
    """The undefined symbols among those of `table`, the start of the dynamic symbol table."""
    layout = headers.layout
    numbers = b""
    count = len(table) // layout.symbol.size
    at = headers.file_offset(dynamic.tags.get(abi.DT_VERSYM, -1))
    if at is not None and versions.names:
        numbers = source.read(at, count * 2)
        if len(numbers) < count * 2:
            return None
    elif abi.DT_VERNEED in dynamic.tags and not versions.names:
        return None
    releases = {
        number: library is not None
        and (version.startswith(_RELEASES) or version in versions.weak.get(library, ()))
        for number, (library, version) in versions.names.items()
    }
    wanted: dict[int, int] = {}
    for index, fields in enumerate(layout.symbol.iter_unpack(table)):
        if layout.bits == 64:
            name_at, info, _, section, _, _ = fields
        else:
            name_at, _, _, info, _, section = fields
        if section or not name_at or info >> 4 in (abi.STB_LOCAL, abi.STB_WEAK):
            continue
        number = layout.half.unpack_from(numbers, 2 * index)[0] & 0x7FFF if numbers else 0
        if not releases.get(number):
            wanted[name_at] = number
    groups: dict[int, list[str]] = {}
    names = _names_at(source, dynamic, sorted(wanted))
    if names is None:
        return None
    for name_at, number in wanted.items():
        name = names[name_at]
        # A text stands for the bytes of a name where it is ASCII, as all but a few are.
        if not name.startswith(_PYTHON) and name.isascii():
            groups.setdefault(number, []).append(name.decode())
    needs = []
    for number, group in groups.items():
        library, version = versions.names.get(number, (None, None))
        # A version of the object's own: what needs it is bound as if it had none.
        needs.append(SymbolNeed(tuple(group), version if library else None, library))
    return tuple(needs)


def _names_at(
    source: CachedSource, dynamic: Dynamic, places: Iterable[int]
) -> dict[int, bytes] | None:
    """The names at `places` of the string table, which are in order; None if one is not there."""
    names: dict[int, bytes] = {}
    begin, window = 0, b""
    budget = MOST_UNDEFINED_BYTES
    for place in places:
        end = window.find(b"\0", place - begin) if place - begin < len(window) else -1
        if end < 0:
            begin = place
            length = min(_WINDOW, dynamic.strings_size - place)
            window = source.read(dynamic.strings_at + place, length) if length > 0 else b""
            end = window.find(b"\0")
        if end < 0:
            return None
        names[place] = window[place - begin : end]
        budget -= end - (place - begin)
        if budget < 0 or len(names) > MOST_NAMES:
            return None
    return names


def gnu_hash(name: str) -> int:
    """The hash of a symbol's name in the hash table of GNU."""
    data = name.encode()
    while len(_POWERS) <= len(data):
        _POWERS.append(_POWERS[-1] * 33 & 0xFFFFFFFF)
    length = len(data)
    powers = _POWERS[length - 1 :: -1] if length else []
    value: int = 5381 * _POWERS[length] + sum(map(mul, data, powers))
    return value & 0xFFFFFFFF


#: 33 to the power of each place, modulo 2 to the power of 32.
_POWERS = [1]


class DefinedSymbols:
    """Looks names up in the hash tables of objects."""

    def __init__(self, names: Iterable[str]) -> None:
        #: Name → hash, without its lowest bit.
        self.hashes = {name: gnu_hash(name) & ~1 for name in names}
        values = self.hashes.values()
        self._either = frozenset((*values, *(value | 1 for value in values)))

    def among(self, exports: str) -> frozenset[int]:
        """Return the hashes of those names that `Binding.exports` has."""
        return frozenset(value & ~1 for value in self._either.intersection(_table(exports)))


def exported_hashes(binding: Binding) -> frozenset[int]:
    """Return the hashes of all symbols that an object defines, without their lowest bits."""
    return frozenset(value & ~1 for value in _table(binding.exports))


def _table(exports: str) -> Iterable[int]:
    data = b64decode(exports)
    table = memoryview(data[: len(data) // 4 * 4]).cast("I")
    return memoryview(table.tobytes()[::-1]).cast("I") if sys.byteorder == "big" else table
