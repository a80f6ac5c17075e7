"""The dynamic section: what the loader reads (gABI chapter 5, "Dynamic Section")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from buildmatrix.elf import layout as abi
from buildmatrix.elf.headers import Headers, text
from buildmatrix.elf.source import CachedSource

#: The largest seen has some hundred entries.
MOST_ENTRIES = 1 << 16
#: One string; a RUNPATH of 20,297 characters is real (tensorflow).
LONGEST_STRING = 1 << 20
#: All strings of one file together.
MOST_STRING_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Dynamic:
    """What the dynamic section says; see `Elf` for the meaning of the fields."""

    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    flags_1: int = 0
    #: File offset and size of the dynamic string table; size 0 when there is none.
    strings_at: int = 0
    strings_size: int = 0
    #: Every tag with its value, the last one where a tag occurs twice.
    tags: Mapping[int, int] = field(default_factory=dict)


def read_dynamic(source: CachedSource, headers: Headers) -> Dynamic:
    """Reads the entries that the loader acts on; trouble goes to `headers.unread`."""
    place = _place(headers)
    if place is None:
        return Dynamic()
    offset, size, linked = place
    entries = _entries(source, headers, offset, size)
    values = dict(entries)  # the loader takes the last of equal tags, too
    naming_tags = (abi.DT_NEEDED, abi.DT_SONAME, abi.DT_RPATH, abi.DT_RUNPATH)
    strings_at = headers.file_offset(values.get(abi.DT_STRTAB, -1))
    strings_size = values.get(abi.DT_STRSZ, 0)
    if strings_at is None and linked is not None:
        strings_at, strings_size = linked
    if strings_at is None:
        if any(tag in values for tag in naming_tags):
            headers.unread.append("the dynamic string table lies outside the file")
        return Dynamic(flags_1=values.get(abi.DT_FLAGS_1, 0), tags=values)

    strings = Strings(source, strings_at, strings_size)
    dynamic = Dynamic(
        soname=strings.at(values.get(abi.DT_SONAME)),
        needed=tuple(
            name
            for tag, value in entries
            if tag == abi.DT_NEEDED and (name := strings.at(value)) is not None
        ),
        rpath=_folders(strings.at(values.get(abi.DT_RPATH))),
        runpath=_folders(strings.at(values.get(abi.DT_RUNPATH))),
        flags_1=values.get(abi.DT_FLAGS_1, 0),
        strings_at=strings_at,
        strings_size=strings_size,
        tags=values,
    )
    if strings.missing:
        headers.unread.append(
            f"{strings.missing} strings of the dynamic section lie outside its string table "
            "or are too long"
        )
    return dynamic


def _place(headers: Headers) -> tuple[int, int, tuple[int, int] | None] | None:
    """Offset and size of the dynamic section, and of the string table that its header links to.

    The program header counts, as it does for the loader. It lies in files of split debug
    information, whose sections then have no bytes.
    """
    sections = headers.sections
    section = next((s for s in sections if s.type == abi.SHT_DYNAMIC), None)
    if section is None and any(s.name == ".dynamic" for s in sections):
        return None
    linked = None
    if section is not None and section.link < len(sections):
        strings = sections[section.link]
        if strings.type == abi.SHT_STRTAB:
            linked = (strings.offset, strings.size)
    for segment in headers.segments:
        if segment.type == abi.PT_DYNAMIC:
            return segment.offset, segment.size, linked
    return (section.offset, section.size, linked) if section is not None else None


def _entries(
    source: CachedSource, headers: Headers, offset: int, size: int
) -> list[tuple[int, int]]:
    row = headers.layout.dynamic
    most = min(size, MOST_ENTRIES * row.size)
    data = source.read(offset, most)
    entries: list[tuple[int, int]] = []
    for tag, value in row.iter_unpack(data[: len(data) // row.size * row.size]):
        if tag == abi.DT_NULL:
            return entries
        entries.append((tag, value))
    if len(data) < size:
        headers.unread.append("the dynamic section lies outside the file or never ends")
    return entries


class Strings:
    """Strings of one table, bounded in length and in sum."""

    def __init__(self, source: CachedSource, offset: int, size: int) -> None:
        self._source = source
        self._offset = offset
        self._size = size
        self._budget = MOST_STRING_BYTES
        #: Strings that could not be read.
        self.missing = 0

    def at(self, index: int | None) -> str | None:
        """The string that begins at `index`; None for None, and for what cannot be read."""
        if index is None:
            return None
        raw = self._raw(index)
        if raw is None:
            self.missing += 1
            return None
        return text(raw)

    def _raw(self, index: int) -> bytes | None:
        most = min(self._size - index, LONGEST_STRING, self._budget)
        length = 256
        raw = b""
        while most > 0:
            length = min(length, most)
            raw = self._source.read(self._offset + index, length)
            end = raw.find(b"\0")
            if end >= 0:
                self._budget -= end
                return raw[:end]
            if len(raw) < length or length == most:
                break
            length *= 8
        # Looking for an end that does not come costs as much as a long string.
        self._budget -= len(raw)
        return None


def _folders(value: str | None) -> tuple[str, ...]:
    """The folders of a search path; an empty one between colons is the working directory."""
    return tuple(value.split(":")) if value else ()
