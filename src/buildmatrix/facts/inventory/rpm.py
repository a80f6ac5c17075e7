"""Packages and their files in RPM's database, in each of its three formats.

Formats: `rpmdb.sqlite` (lib/backend/sqlite.c of rpm 4.16 and later), `Packages.db` of SUSE
(lib/backend/ndb/rpmpkg.c), and `Packages` of RHEL 8 and older, a hash of Berkeley DB
(dbinc/db_page.h of libdb 5.3). Each holds one header per package (lib/header.c).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from struct import Struct
from tempfile import NamedTemporaryFile
from typing import TypeVar
from urllib.parse import quote

from buildmatrix.facts.inventory.listing import Listing
from buildmatrix.facts.inventory.model import SystemPackage
from buildmatrix.facts.trees.base import reason

#: Location of SUSE and newer Fedora, the older one, and that of OSTree; often links to one another.
FOLDERS = ("usr/lib/sysimage/rpm", "var/lib/rpm", "usr/share/rpm")
#: In the order in which rpm prefers them.
NAMES = ("rpmdb.sqlite", "Packages.db", "Packages")
#: Journals of SQLite.
_JOURNALS = ("-wal", "-journal")

#: Size limit; 1,935 packages of CBL-Mariner take 35 MB.
LARGEST_DATABASE = 256 << 20
#: Limits of a database: packages, names that they require or provide, which stay in memory, and
#: names and folders of files. 129 packages of CBL-Mariner have 3,529 and 16,121.
MOST_PACKAGES = 20_000
MOST_NAMES = 1_000_000
MOST_FILES = 4_000_000
#: Each format has a longer first page.
_SHORTEST_DATABASE = 512
#: Size limit of a header; rpm's is 256 MB.
LARGEST_HEADER = 32 << 20
#: Index entries of a header, as in rpm.
_MOST_TAGS = 0xFFFF

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class PackageRecord:
    """One package as its package manager knows it."""

    package: SystemPackage
    #: Names without versions: packages, SONAMEs as `libc.so.6()(64bit)`, paths.
    requires: Iterable[str]
    provides: Iterable[str]


def read_rpm_packages(listing: Listing) -> Iterator[PackageRecord]:
    """Yield the packages in the order of the database; failures are noted in `listing`."""
    return _read_headers(listing, lambda header: [header.read_package()], MOST_NAMES)


def read_rpm_files(listing: Listing, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield `name version` of each package, and each path that it lists with one of `names`."""
    return _read_headers(
        listing,
        lambda header: [(header.label, path) for path in header.read_files(names)],
        MOST_FILES,
    )


def _find_databases(listing: Listing) -> list[str]:
    """Return the path of each database; the preferred format if a folder has several."""
    databases: dict[str, None] = {}
    for folder in FOLDERS:
        found = (listing.paths.file(f"{folder}/{name}") for name in NAMES)
        database = next((path for path in found if path and listing.files[path].size), None)
        if database is not None:
            databases[database] = None
    return list(databases)


def _read_headers(
    listing: Listing, parse: Callable[[_Header], Iterable[Result]], most_names: int
) -> Iterator[Result]:
    for path in _find_databases(listing):
        for journal in (f"{path}{end}" for end in _JOURNALS):
            if journal in listing.files and listing.files[journal].size:
                listing.note(
                    journal, "has changes that are not in the database; run rpm --rebuilddb"
                )
        data = listing.read(path, LARGEST_DATABASE)
        if data is None:
            continue
        try:
            for header in _parse_headers(data, most_names):
                yield from parse(header)
        except (OSError, ValueError) as error:
            why = reason(error) if isinstance(error, OSError) else error
            listing.note(path, f"not all packages are known: {why}")


def _parse_headers(data: bytes, most_names: int = MOST_NAMES) -> Iterator[_Header]:
    """Yield the headers in a database. Raises ValueError, in words, for broken bytes."""
    if len(data) < _SHORTEST_DATABASE:
        raise ValueError("the database ends inside its first page")
    if data.startswith(b"SQLite format 3\0"):
        blobs = _read_sqlite(data)
    elif data.startswith(b"RpmP"):
        blobs = _read_ndb(data)
    else:
        blobs = _read_berkeley(data)
    allowance = _Allowance(most_names, most_names)
    # Each byte of a sound database belongs to one header.
    remaining = len(data)
    for number, blob in enumerate(blobs):
        remaining -= len(blob)
        if number == MOST_PACKAGES:
            raise ValueError(f"the database has more than {MOST_PACKAGES} packages")
        if len(blob) > LARGEST_HEADER:
            raise ValueError(f"a header is larger than the limit of {LARGEST_HEADER} bytes")
        if remaining < 0:
            raise ValueError("headers share bytes of the database")
        yield _Header(blob, allowance)


# SQLite

_TABLE = re.compile(
    r"CREATE TABLE (['\"]?)Packages\1 ?"
    r"\(\s*hnum INTEGER PRIMARY KEY AUTOINCREMENT,\s*blob BLOB NOT NULL\s*\)"
)
#: Instructions of SQLite's virtual machine; a package takes five.
_MOST_STEPS = 2_000_000


def _read_sqlite(data: bytes) -> Iterator[bytes]:
    (page_size,), (pages,) = Struct(">H").unpack_from(data, 16), Struct(">I").unpack_from(data, 28)
    # Pages of 64 KB have the size 1. SQLite takes missing bytes for zeros.
    if len(data) < pages * (page_size if page_size > 1 else 1 << 16):
        raise ValueError(f"rpmdb.sqlite says that it has {pages} pages, which it has not")
    try:
        # Some builds of Python lack it.
        import sqlite3
    except ImportError:
        raise ValueError("this Python has no sqlite3, which the database needs") from None
    # A copy, since SQLite would apply a journal beside the file.
    with NamedTemporaryFile(suffix=".sqlite") as copy:
        copy.write(data)
        copy.flush()
        try:
            uri = f"file:{quote(copy.name)}?mode=ro&immutable=1"
            with closing(sqlite3.connect(uri, uri=True)) as database:
                database.set_progress_handler(lambda: 1, _MOST_STEPS)
                database.execute("PRAGMA trusted_schema = OFF")
                database.execute("PRAGMA cell_size_check = ON")
                table = database.execute(
                    "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = 'Packages'"
                ).fetchone()
                # Another table may have columns that are computed.
                if table is None or not _TABLE.fullmatch(str(table[0])):
                    raise ValueError("the database has no table Packages as rpm makes it")
                for (blob,) in database.execute("SELECT blob FROM Packages NOT INDEXED"):
                    if not isinstance(blob, bytes):
                        raise ValueError("the table Packages has a row that is not a header")
                    yield blob
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise ValueError(f"SQLite fails with {str(error)[:200]!r}") from error


# NDB

#: magic, version, generation, pages of slots.
_NDB_HEADER = Struct("<4sIII")
#: magic, package, offset and number of blocks; magic, package, generation, bytes.
_NDB_SLOT = _NDB_BLOB = Struct("<4sIII")
_NDB_PAGE = 4096
_NDB_BLOCK = 16


def _read_ndb(data: bytes) -> Iterator[bytes]:
    _, version, _, pages = _NDB_HEADER.unpack_from(data)
    if version != 0:
        raise ValueError(f"Packages.db has the unknown version {version}")
    if pages * _NDB_PAGE > len(data):
        raise ValueError("Packages.db says that it has more slots than bytes")
    # The header takes the place of two slots.
    slots = data[2 * _NDB_SLOT.size : pages * _NDB_PAGE]
    for magic, package, block, _ in _NDB_SLOT.iter_unpack(slots):
        if magic != b"Slot":
            raise ValueError("Packages.db has a slot without its magic")
        if package == 0:
            continue
        start = block * _NDB_BLOCK + _NDB_BLOB.size
        if start > len(data):
            raise ValueError("Packages.db has a slot that leads outside of it")
        magic, owner, _, size = _NDB_BLOB.unpack_from(data, start - _NDB_BLOB.size)
        if magic != b"BlbS" or owner != package or start + size > len(data):
            raise ValueError("Packages.db has a slot that leads to no header")
        yield data[start : start + size]


# Berkeley DB

_BERKELEY_MAGIC = 0x00061561
#: Bytes of the header that all pages have.
_PAGE_HEADER = 26
_HASH_UNSORTED, _OVERFLOW, _HASH_METADATA, _HASH = 2, 7, 8, 13
_KEY_DATA, _OFF_PAGE = 1, 3
#: Shorter values count packages.
_SHORTEST_HEADER = 8


def _read_berkeley(data: bytes) -> Iterator[bytes]:
    order = next(
        (order for order in "<>" if data[12:16] == Struct(order + "I").pack(_BERKELEY_MAGIC)), None
    )
    if order is None:
        raise ValueError("no database of RPM: neither SQLite, NDB nor a hash of Berkeley DB")
    word, half = Struct(order + "I"), Struct(order + "H")
    (page_size,) = word.unpack_from(data, 20)
    if page_size not in {1 << bits for bits in range(9, 17)}:
        raise ValueError(f"Packages has pages of {page_size} bytes")
    if data[24] or data[25] != _HASH_METADATA:
        raise ValueError("Packages is encrypted, or no hash")
    pages = _Pages(data, page_size, word, half)
    (last,) = word.unpack_from(data, 32)
    if last >= pages.count:
        raise ValueError(f"Packages says that it has {last + 1} pages, which it has not")
    for number in range(1, last + 1):
        page = pages.get(number)
        if page[25] not in (_HASH, _HASH_UNSORTED):
            continue
        (entries,) = half.unpack_from(page, 20)
        if _PAGE_HEADER + 2 * entries > page_size or entries % 2:
            raise ValueError(f"page {number} of Packages has no room for its entries")
        offsets = [half.unpack_from(page, _PAGE_HEADER + 2 * index)[0] for index in range(entries)]
        # Keys and values alternate, and fill the page from its end.
        for key, value in zip(offsets[::2], offsets[1::2], strict=True):
            if not _PAGE_HEADER <= value < key <= page_size:
                raise ValueError(f"an entry of page {number} of Packages lies outside of it")
            if page[value] == _KEY_DATA and key - value > _SHORTEST_HEADER:
                yield page[value + 1 : key]
            elif page[value] == _OFF_PAGE and value + 12 <= page_size:
                (first,), (size,) = (word.unpack_from(page, value + at) for at in (4, 8))
                yield pages.join(first, size)


class _Pages:
    """Pages of a database of Berkeley DB."""

    def __init__(self, data: bytes, size: int, word: Struct, half: Struct) -> None:
        self.count = len(data) // size
        self._data, self._size, self._word, self._half = data, size, word, half
        #: Pages of values so far: no two values share one.
        self._used = bytearray(self.count)

    def get(self, number: int) -> bytes:
        """Return the bytes of a page."""
        return self._data[number * self._size : (number + 1) * self._size]

    def join(self, number: int, size: int) -> bytes:
        """Return the value of `size` bytes in the chain of overflow pages from `number` on."""
        if size > LARGEST_HEADER:
            raise ValueError(f"a header is larger than the limit of {LARGEST_HEADER} bytes")
        parts: list[bytes] = []
        while size:
            if not 0 < number < self.count or self._used[number]:
                raise ValueError("a chain of pages of Packages ends early, or is a ring")
            self._used[number] = True
            page = self.get(number)
            if page[25] != _OVERFLOW:
                raise ValueError(f"page {number} of Packages is no part of a header")
            (length,) = self._half.unpack_from(page, 22)
            part = page[_PAGE_HEADER : _PAGE_HEADER + min(length, size)]
            parts.append(part)
            size -= len(part)
            (number,) = self._word.unpack_from(page, 16)
        return b"".join(parts)


# Headers

_NAME, _VERSION, _RELEASE, _EPOCH = 1000, 1001, 1002, 1003
_VENDOR, _LICENSE, _ARCHITECTURE = 1011, 1014, 1022
_OLD_FILE_NAMES, _FILE_STATES = 1027, 1029
_PROVIDES, _REQUIRES = 1047, 1049
_FOLDER_INDEXES, _BASE_NAMES, _FOLDERS = 1116, 1117, 1118
_TAGS = frozenset(
    {_NAME, _VERSION, _RELEASE, _EPOCH, _VENDOR, _LICENSE, _ARCHITECTURE, _OLD_FILE_NAMES,
     _FILE_STATES, _PROVIDES, _REQUIRES, _FOLDER_INDEXES, _BASE_NAMES, _FOLDERS}
)  # fmt: skip
#: Types of values.
_CHARACTER, _INT8, _INT32, _STRING, _BYTES, _STRINGS, _TRANSLATED = 1, 2, 4, 6, 7, 8, 9
#: `normal` and `net shared`; others are replaced, left out, or of another architecture.
_INSTALLED_STATES = frozenset({0, 3})
#: In characters; some licenses are whole texts.
_LONGEST_TEXT = 1000

_COUNTS = Struct(">II")
#: tag, type, offset, count.
_ENTRY = Struct(">IIII")


@dataclass(slots=True)
class _Allowance:
    """Names that may still be read."""

    names: int
    most: int

    def take(self, count: int) -> None:
        self.names -= count
        if self.names < 0:
            raise ValueError(f"the headers have more than {self.most} names")


class _Header:
    """One header; values are read as they are asked for. Methods raise ValueError."""

    __slots__ = ("_allowance", "_index", "_values")

    def __init__(self, data: bytes, allowance: _Allowance) -> None:
        if len(data) < _COUNTS.size:
            raise ValueError("a header ends inside its first bytes")
        count, size = _COUNTS.unpack_from(data)
        start = _COUNTS.size + count * _ENTRY.size
        if count > _MOST_TAGS or start + size > len(data):
            raise ValueError(f"a header says that it has {count} tags and {size} bytes of values")
        self._allowance = allowance
        self._values = data[start : start + size]
        # Values that rpm adds when it installs a package follow those that they replace.
        self._index = {
            tag: (kind, offset, length)
            for tag, kind, offset, length in _ENTRY.iter_unpack(data[_COUNTS.size : start])
            if tag in _TAGS
        }

    @property
    def label(self) -> str:
        """`name version`."""
        epoch = next(iter(self._numbers(_EPOCH)), 0)
        version = f"{self._text(_VERSION)}-{self._text(_RELEASE)}"
        name = self._text(_NAME)
        # Both are parts of one line in reports.
        if not name or any(map(str.isspace, f"{name}{version}")):
            raise ValueError("a header has no name, or one with blanks")
        return f"{name} {epoch}:{version}" if epoch else f"{name} {version}"

    def read_package(self) -> PackageRecord:
        """Read all but the files."""
        name, _, version = self.label.partition(" ")
        architecture, vendor = self._text(_ARCHITECTURE), self._text(_VENDOR)
        return PackageRecord(
            SystemPackage(name, version, "rpm", architecture, vendor, self._text(_LICENSE)),
            requires=tuple(dict.fromkeys(map(_decode, self._strings(_REQUIRES)))),
            provides=tuple(dict.fromkeys(map(_decode, self._strings(_PROVIDES)))),
        )

    def read_files(self, names: Collection[str]) -> Iterator[str]:
        """Yield the path of each installed file or folder with one of `names`."""
        states = self._bytes(_FILE_STATES)
        base_names = self._strings(_BASE_NAMES)
        folders = self._strings(_FOLDERS)
        indexes = self._numbers(_FOLDER_INDEXES)
        if len(indexes) != len(base_names):
            raise ValueError("a header has a file without a folder")
        for number, path in enumerate(self._strings(_OLD_FILE_NAMES)):
            if _decode(path).rpartition("/")[2] in names and _is_installed(states, number):
                yield _decode(path)
        for number, name in enumerate(base_names):
            if _decode(name) not in names:
                continue
            if indexes[number] >= len(folders):
                raise ValueError("a header has a file without a folder")
            if _is_installed(states, number):
                yield _decode(folders[indexes[number]] + name)

    def _find(self, tag: int, kinds: tuple[int, ...], width: int) -> tuple[int, int]:
        """Return offset and count of a value; nothing if it is missing."""
        kind, offset, count = self._index.get(tag, (kinds[0], 0, 0))
        if kind not in kinds or offset + count * width > len(self._values):
            raise ValueError(f"the tag {tag} of a header leads outside of it")
        return offset, count

    def _numbers(self, tag: int) -> tuple[int, ...]:
        offset, count = self._find(tag, (_INT32,), 4)
        self._allowance.take(count)
        return Struct(f">{count}I").unpack_from(self._values, offset)

    def _bytes(self, tag: int) -> bytes:
        offset, count = self._find(tag, (_CHARACTER, _INT8, _BYTES), 1)
        return self._values[offset : offset + count]

    def _text(self, tag: int) -> str:
        return _decode(next(iter(self._strings(tag)), b"")[:_LONGEST_TEXT])

    def _strings(self, tag: int) -> list[bytes]:
        # Each has a byte at its end.
        offset, count = self._find(tag, (_STRING, _STRINGS, _TRANSLATED), 1)
        self._allowance.take(count)
        if not count:
            return []
        strings = self._values[offset:].split(b"\0", count)
        if len(strings) <= count:
            raise ValueError(f"the strings of tag {tag} of a header have no end")
        return strings[:count]


def _is_installed(states: bytes, number: int) -> bool:
    return number >= len(states) or states[number] in _INSTALLED_STATES


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")
