"""Versions of symbols: those that an object needs of each library, and those that it defines.

Source: LSB core specification 5.0, "Symbol Versioning". The tables are lists whose entries hold the
distance to the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct

from buildmatrix.facts.elf import layout as abi
from buildmatrix.facts.elf.headers import Dynamic, Headers, Strings
from buildmatrix.facts.elf.model import VersionNeed
from buildmatrix.facts.elf.source import CachedSource

#: Versions of one file; the C library defines some fifty, a CUDA library needs a dozen.
MOST_VERSIONS = 1 << 13
#: Bytes read at once; most tables have fewer.
_STEP = 2 << 10
#: VER_FLG_WEAK.
_WEAK = 2


@dataclass(frozen=True, slots=True)
class Versions:
    """Content of DT_VERNEED and DT_VERDEF."""

    needs: tuple[VersionNeed, ...] = ()
    definitions: tuple[str, ...] = ()
    #: Number in DT_VERSYM → the library (None for the object itself) and the version.
    names: Mapping[int, tuple[str | None, str]] = field(default_factory=dict)

    @property
    def weak(self) -> Mapping[str, tuple[str, ...]]:
        """By library, the versions that the loader does not insist on."""
        return {need.library: need.weak for need in self.needs if need.weak}


def read_versions(source: CachedSource, headers: Headers, dynamic: Dynamic) -> Versions:
    """Read DT_VERNEED and DT_VERDEF; problems go to `headers.unread`."""
    tags = dynamic.tags
    if abi.DT_VERNEED not in tags and abi.DT_VERDEF not in tags:
        return Versions()
    strings = Strings(source, dynamic.strings_at, dynamic.strings_size)
    table = _VersionTables(source, headers, tags)
    names: dict[int, tuple[str | None, str]] = {}
    needs = tuple(_needs(table, strings, names))
    definitions = tuple(_definitions(table, strings, names))
    if table.problem or strings.missing:
        headers.unread.append("part of the symbol version table cannot be read")
    return Versions(needs, definitions, names)


class _VersionTables:
    """Reads the entries of both tables, as many as `MOST_VERSIONS`."""

    def __init__(self, source: CachedSource, headers: Headers, tags: Mapping[int, int]) -> None:
        self._source = source
        self._headers = headers
        self._tags = tags
        self.layout = headers.layout
        self._remaining = MOST_VERSIONS
        self._at = 0
        self._data = b""
        #: True when an entry that was read does not exist.
        self.problem = False

    def list_at(self, tag: int, number: int, row: Struct) -> Iterator[tuple[int, Sequence[int]]]:
        """Yield the entries of the list that one tag leads to, as many as another tag says."""
        if tag in self._tags:
            offset = self._headers.file_offset(self._tags[tag])
            count = self._tags.get(number, 0)
            yield from self.entries(row, -1 if offset is None else offset, count)

    def entries(self, row: Struct, at: int, count: int) -> Iterator[tuple[int, Sequence[int]]]:
        """Yield offset and fields of up to `count` entries; the last field leads to the next."""
        for _ in range(count):
            fields = self.entry(row, at)
            if fields is None:
                return
            yield at, fields
            if not fields[-1]:
                return
            at += fields[-1]

    def entry(self, row: Struct, at: int) -> tuple[int, ...] | None:
        """The fields of the entry at the offset `at`; None after the last one."""
        self._remaining -= 1
        if self._remaining < 0 or at < 0:
            self.problem = True
            return None
        if not self._at <= at <= self._at + len(self._data) - row.size:
            self._at, self._data = at, self._source.read(at, _STEP)
            if len(self._data) < row.size:
                self.problem = True
                return None
        return row.unpack_from(self._data, at - self._at)


def _needs(
    table: _VersionTables,
    strings: Strings,
    names: dict[int, tuple[str | None, str]],
) -> Iterator[VersionNeed]:
    for at, (_, parts, file, first, _) in table.list_at(
        abi.DT_VERNEED, abi.DT_VERNEEDNUM, table.layout.verneed
    ):
        library = strings.at(file)
        versions: list[str] = []
        weak: list[str] = []
        for _, part in table.entries(table.layout.vernaux, at + first, parts):
            _, flags, number, name_at, _ = part
            version = strings.at(name_at)
            if library is not None and version is not None:
                versions.append(version)
                if flags & _WEAK:
                    weak.append(version)
                names[number & 0x7FFF] = (library, version)
        if library is not None:
            yield VersionNeed(library, tuple(versions), tuple(weak))


def _definitions(
    table: _VersionTables,
    strings: Strings,
    names: dict[int, tuple[str | None, str]],
) -> Iterator[str]:
    for at, (_, _, number, _, _, first, _) in table.list_at(
        abi.DT_VERDEF, abi.DT_VERDEFNUM, table.layout.verdef
    ):
        # The first name is the version; further ones are those that it inherits from.
        entry = table.entry(table.layout.verdaux, at + first)
        if entry is not None and (version := strings.at(entry[0])) is not None:
            names[number & 0x7FFF] = (None, version)
            yield version
