"""Versions of symbols: those that an object needs of each library, and those that it defines.

Source: LSB core specification 5.0, "Symbol Versioning". The tables are lists whose entries hold the
distance to the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    table = _VersionTables(source, headers)
    names: dict[int, tuple[str | None, str]] = {}
    needs = tuple(_needs(table, dynamic, strings, names))
    definitions = tuple(_definitions(table, dynamic, strings, names))
    if table.problem or strings.missing:
        headers.unread.append("part of the symbol version table cannot be read")
    return Versions(needs, definitions, names)


class _VersionTables:
    """Reads the entries of both tables, as many as `MOST_VERSIONS`."""

    def __init__(self, source: CachedSource, headers: Headers) -> None:
        self._source = source
        self._headers = headers
        self.layout = headers.layout
        self._remaining = MOST_VERSIONS
        self._at = 0
        self._data = b""
        #: True when an entry that was read does not exist.
        self.problem = False

    def start(self, address: int) -> int:
        """Offset in the file of the table that is loaded at `address`; -1 for nowhere."""
        offset = self._headers.file_offset(address)
        return -1 if offset is None else offset

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
    dynamic: Dynamic,
    strings: Strings,
    names: dict[int, tuple[str | None, str]],
) -> Iterator[VersionNeed]:
    if abi.DT_VERNEED not in dynamic.tags:
        return
    at = table.start(dynamic.tags[abi.DT_VERNEED])
    for _ in range(dynamic.tags.get(abi.DT_VERNEEDNUM, 0)):
        head = table.entry(table.layout.verneed, at)
        if head is None:
            return
        _, count, file, first, following = head
        library = strings.at(file)
        versions: list[str] = []
        weak: list[str] = []
        part = at + first
        for _ in range(count):
            entry = table.entry(table.layout.vernaux, part)
            if entry is None:
                break
            _, flags, number, name_at, step = entry
            version = strings.at(name_at)
            if library is not None and version is not None:
                versions.append(version)
                if flags & _WEAK:
                    weak.append(version)
                names[number & 0x7FFF] = (library, version)
            if not step:
                break
            part += step
        if library is not None:
            yield VersionNeed(library, tuple(versions), tuple(weak))
        if not following:
            return
        at += following


def _definitions(
    table: _VersionTables,
    dynamic: Dynamic,
    strings: Strings,
    names: dict[int, tuple[str | None, str]],
) -> Iterator[str]:
    if abi.DT_VERDEF not in dynamic.tags:
        return
    at = table.start(dynamic.tags[abi.DT_VERDEF])
    for _ in range(dynamic.tags.get(abi.DT_VERDEFNUM, 0)):
        head = table.entry(table.layout.verdef, at)
        if head is None:
            return
        _, _, number, _, _, first, following = head
        # The first name is the version; further ones are those that it inherits from.
        entry = table.entry(table.layout.verdaux, at + first)
        if entry is not None and (version := strings.at(entry[0])) is not None:
            names[number & 0x7FFF] = (None, version)
            yield version
        if not following:
            return
        at += following
