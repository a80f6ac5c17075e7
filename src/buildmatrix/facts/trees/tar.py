"""Entries of tar archives, read in place, by the rules of Go's archive/tar.

containerd, podman (tar-split's copy of it), Docker and umoci unpack layers by these rules. Python
and GNU tar differ: they apply global headers, for example. `Unreadable`, with the place of the
entry, is raised for everything that Go's releases or the engines read differently.

Formats: V7, POSIX ustar and pax, GNU tar, star (Go 1.19 to 1.25, src/archive/tar/reader.go).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Final, Literal, NamedTuple

from buildmatrix.facts.trees.archive import Slice
from buildmatrix.facts.trees.base import Unreadable

Kind = Literal["file", "folder", "symlink", "hardlink", "other", "device"]
#: Members per archive; an image of a desktop has 300,000.
MAX_MEMBERS = 2_000_000
#: Bytes of a pax header or a GNU long name; Go's limit since 1.19.2.
MAX_META: Final = 1 << 20

BLOCK: Final = 512
_ZEROS: Final = bytes(BLOCK)
_FIELDS: Final = Struct("100s 8s 8s 8s 12s 12s 8s c 100s 6s 2s 32s 32s 8s 8s 155s 8x 4s")
_USTAR: Final = b"ustar\0"
_GNU: Final = (b"ustar ", b" \0")
_STAR: Final = b"tar\0"

_FILE: Final = b"0"
#: Also a folder, if its name ends with a slash.
_OLD_FILE: Final = b"\0"
_KINDS: Final[Mapping[bytes, Kind]] = {
    _FILE: "file",
    b"1": "hardlink",
    b"2": "symlink",
    b"3": "device",
    b"4": "device",
    b"5": "folder",
    b"6": "other",
}
_PAX: Final = b"x"
_PAX_GLOBAL: Final = b"g"
_GNU_NAME: Final = b"L"
_GNU_LINK: Final = b"K"

_INT64: Final = range(-(1 << 63), 1 << 63)
#: Go's strconv.ParseInt, with more leading zeros.
_DECIMAL: Final = re.compile(rb"[+-]?[0-9]{1,20}")
_TIME: Final = re.compile(rb"([+-]?[0-9]{1,20})(?:\.[0-9]*)?")
_TEXTS: Final = frozenset((b"path", b"linkpath", b"uname", b"gname"))
_SPARSE_PIECES: Final = (b"GNU.sparse.offset", b"GNU.sparse.numbytes")
#: Names of global headers that writers use. containerd removes a file of such a name, podman does
#: not, and both skip the header.
_GLOBAL_NAMES: Final = re.compile(rb"(?:.*/)?(?:pax_global_header|@PaxHeader|GlobalHead\.[0-9.]+)")
#: Extended attributes with which overlay file systems hide or redirect files.
_OVERLAY: Final = (
    b"SCHILY.xattr.trusted.overlay.",
    b"SCHILY.xattr.user.overlay.",
    b"SCHILY.xattr.user.fuseoverlayfs.",
    b"SCHILY.xattr.user.containers.",
)


@dataclass(frozen=True, slots=True)
class Attributes:
    """Owner of an entry and its permission bits, with setuid, setgid and sticky."""

    mode: int
    uid: int = 0
    gid: int = 0


@dataclass(frozen=True, slots=True)
class TarMember:
    """One entry of an archive. `name` is as stored; see `safe_path` for a trusted path."""

    name: str
    kind: Kind
    #: Content of a file; None for other entries, and for sparse files, which are not read.
    data: Slice | None = None
    #: Target of a link, as stored.
    target: str = ""
    #: None if the reader did not need them.
    attributes: Attributes | None = None


def members(archive: Slice, *, as_dpkg: bool = False) -> Iterator[TarMember]:
    """Yield the entries of an uncompressed tar archive in order.

    With `as_dpkg`, an entry that dpkg reads differently is an error as well. Raises `Unreadable`
    for an archive that is invalid, truncated, ambiguous, or has more than `MAX_MEMBERS`.
    """
    reader = _Reader(archive, as_dpkg=as_dpkg)
    count = 0
    while True:
        count += 1
        try:
            member = reader.read()
        except _InvalidEntry as error:
            place = f"entry {count}, at byte {reader.start}"
            raise Unreadable(f"no readable tar archive: {place}: {error}") from error
        if member is None:
            return
        if count > MAX_MEMBERS:
            raise Unreadable(f"the archive has more than {MAX_MEMBERS} entries")
        yield member


class _InvalidEntry(Exception):
    """Error for an entry that is invalid in Go or ambiguous among engines."""


class _Header(NamedTuple):
    """The relevant fields of a header block."""

    name: bytes
    kind: bytes
    size: int
    link: bytes
    mode: int
    uid: int
    gid: int
    #: True if dpkg joins the same parts to a name.
    is_common: bool


class _Reader:
    """Reader of entries, one after the other."""

    def __init__(self, archive: Slice, *, as_dpkg: bool) -> None:
        self._archive = archive
        self._as_dpkg = as_dpkg
        #: Offset of the entry, including its leading headers.
        self.start = 0
        self._at = 0

    def read(self) -> TarMember | None:
        """Return the next entry; None at the end mark."""
        self.start = self._at
        records: dict[bytes, bytes] = {}
        long_name = long_link = b""
        while True:
            block = self._archive.read(self._at, BLOCK)
            if len(block) < BLOCK:
                raise _InvalidEntry("the archive is truncated: it has no end mark")
            if block == _ZEROS:
                self._check_end()
                return None
            header = _parse_header(block)
            kind = header.kind
            self._at += BLOCK
            if kind in _KINDS or kind == _OLD_FILE:
                return self._read_entry(header, records, long_name, long_link)
            if kind == _GNU_NAME:
                long_name = self._read_long_name(header.size)
            elif kind == _GNU_LINK:
                long_link = self._read_long_name(header.size)
            elif kind == _PAX and not self._as_dpkg:
                # The last pax header replaces previous ones.
                records = _parse_records(self._read_meta(header.size))
            elif kind == _PAX_GLOBAL and not self._as_dpkg:
                # For Go, a global header ends the preceding headers; engines ignore it.
                _check_global(header, _parse_records(self._read_meta(header.size)))
                records, long_name, long_link = {}, b"", b""
            else:
                raise _InvalidEntry(f"an entry of the type {chr(kind[0])!r}, which is not unpacked")

    def _check_end(self) -> None:
        """Check the end: two blocks of zeros. Tools differ on one block with more behind it."""
        try:
            follows = self._archive.read(self._at + BLOCK, 1)
        except Unreadable:
            return
        if follows and self._archive.read(self._at + BLOCK, BLOCK) != _ZEROS:
            raise _InvalidEntry("its end mark is half of one, and more follows")

    def _read_meta(self, size: int) -> bytes:
        """Read the data of a header for the next entry."""
        if not 0 <= size <= MAX_META:
            raise _InvalidEntry(f"a header says that it has {size} bytes")
        data = self._archive.read(self._at, size)
        if len(data) < size:
            raise _InvalidEntry("the archive ends inside of a header: it is truncated")
        self._at += _pad(size)
        return data

    def _read_long_name(self, size: int) -> bytes:
        text = _cut_at_nul(self._read_meta(size))
        if not text:
            raise _InvalidEntry("a GNU header with an empty name")
        return text

    def _read_entry(
        self, header: _Header, records: Mapping[bytes, bytes], long_name: bytes, long_link: bytes
    ) -> TarMember:
        name = long_name or records.get(b"path") or header.name
        kind = header.kind
        if header.size < 0 and kind in (_FILE, _OLD_FILE):
            raise _InvalidEntry("an entry has less than no bytes")
        if kind == _OLD_FILE:
            kind = b"5" if name.endswith(b"/") else _FILE
        is_file = kind == _FILE
        size, uid, gid = header.size, header.uid, header.gid
        is_sparse = False
        if records:
            size = _number_record(records, b"size", size)
            uid = _number_record(records, b"uid", uid)
            gid = _number_record(records, b"gid", gid)
            for key in records:
                if key.startswith(_OVERLAY):
                    raise _InvalidEntry(
                        f"the extended attribute {_format_key(key)} is for overlay mounts"
                    )
            is_sparse = _is_sparse(records)
            if is_sparse:
                name = records.get(b"GNU.sparse.name") or name
        if is_sparse and not is_file:
            raise _InvalidEntry("a sparse entry of another type")
        if self._as_dpkg and not (header.is_common and not (is_file and name.endswith(b"/"))):
            raise _InvalidEntry("a header that dpkg reads otherwise")
        data = None
        if is_file:
            if size < 0:
                raise _InvalidEntry("an entry has less than no bytes")
            if not is_sparse:
                data = Slice(self._archive, self._at, size)
            self._at += _pad(size)
        target = ""
        if kind in b"12":
            target = _decode_name(long_link or records.get(b"linkpath") or header.link)
        attributes = _shared_attributes(header.mode & 0o7777, uid, gid)
        return TarMember(_decode_name(name), _KINDS[kind], data, target, attributes)


def _parse_header(block: bytes) -> _Header:
    """Parse a header block. Raises `_InvalidEntry` as Go does."""
    (
        name, mode, uid, gid, size, mtime, checksum, kind, link, magic, version, _, _, major, minor,
        prefix, trailer,
    ) = _FIELDS.unpack(block)  # fmt: skip
    total = sum(block) - sum(checksum) + 8 * ord(" ")
    if (said := _parse_octal(checksum)) != total:
        # Sun's tar treated bytes as signed.
        rest = block[:148] + block[156:]
        if said != total - 256 * sum(byte > 127 for byte in rest):
            raise _InvalidEntry("no header: its checksum is another one")
    is_common = True
    _parse_number(mtime)
    name = _cut_at_nul(name)
    if magic == _USTAR or (magic, version) == _GNU:
        _parse_number(major)
        _parse_number(minor)
        if magic != _USTAR:
            is_common = (prefix := _old_go_prefix(prefix)) == b""
        elif trailer == _STAR:
            _parse_number(prefix[131:143])
            _parse_number(prefix[143:155])
            prefix = prefix[:131]
            is_common = False
        else:
            is_common = version == b"00"
        if prefix := _cut_at_nul(prefix):
            name = prefix + b"/" + name
    return _Header(
        name,
        kind,
        _parse_number(size),
        _cut_at_nul(link),
        _parse_number(mode),
        _parse_number(uid),
        _parse_number(gid),
        is_common,
    )


def _old_go_prefix(field: bytes) -> bytes:
    """Return the prefix in a header of GNU tar: Go before 1.8 wrote one in place of two times."""
    try:
        for time in (field[:12], field[12:24]):
            if time[0]:
                _parse_number(time)
    except _InvalidEntry:
        prefix = _cut_at_nul(field)
        return prefix if prefix.isascii() else b""
    return b""


@lru_cache(maxsize=4096)
def _parse_number(field: bytes) -> int:
    """Parse a number in octal digits, or in two's complement with a flag bit."""
    if not field[0] & 0x80:
        return _parse_octal(field)
    bits = 8 * len(field)
    number = int.from_bytes(field, "big") - (1 << bits if field[0] & 0x40 else 1 << bits - 1)
    if number not in _INT64:
        raise _InvalidEntry("a number that is too large")
    return number


def _parse_octal(field: bytes) -> int:
    digits = field.strip(b" \0").partition(b"\0")[0]
    if not digits:
        return 0
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        raise _InvalidEntry("a number that is none")
    if not field[0]:
        raise _InvalidEntry("a number behind a NUL, at which others end")
    return int(digits, 8)


def _cut_at_nul(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _decode_name(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _format_key(key: bytes) -> str:
    return repr(key[:100].decode("utf-8", "replace"))


def _pad(size: int) -> int:
    return size + -size % BLOCK


#: Attributes, one object for equal ones.
_shared_attributes = lru_cache(maxsize=4096)(Attributes)


# pax


def _parse_records(data: bytes) -> dict[bytes, bytes]:
    """Parse the records of a pax header. Raises `_InvalidEntry` as Go does."""
    records: dict[bytes, bytes] = {}
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        space = data.find(b" ", at)
        length = _parse_decimal(data[at : min(space, at + 30)]) if space > at else 0
        end = at + length
        if length < 5 or end > len(data) or end <= space + 1 or data[end - 1] != ord("\n"):
            raise _InvalidEntry("a pax header with a record of another length")
        key, equals, value = data[space + 1 : end - 1].partition(b"=")
        if not (key and equals) or b"\0" in (value if key in _TEXTS else key):
            raise _InvalidEntry("a pax header with a record that is none")
        if key in _SPARSE_PIECES:
            # Format 0.0 alternates these two keys.
            if key != _SPARSE_PIECES[len(pieces) % 2] or b"," in value:
                raise _InvalidEntry("a sparse file with a broken map")
            pieces.append(value)
        else:
            records[key] = value
        at = end
    if pieces:
        records[b"GNU.sparse.map"] = b",".join(pieces)
    for key in (b"atime", b"mtime", b"ctime"):
        value = records.get(key, b"")
        if value:
            match = _TIME.fullmatch(value)
            if match is None or int(match[1]) not in _INT64:
                raise _InvalidEntry(f"a pax header with a broken {key.decode()}")
    for key in (b"uid", b"gid", b"size"):
        _number_record(records, key, 0)
    return records


def _parse_decimal(text: bytes) -> int:
    if _DECIMAL.fullmatch(text) is None or (number := int(text)) not in _INT64:
        raise _InvalidEntry("a pax header with a number that is none")
    return number


def _number_record(records: Mapping[bytes, bytes], key: bytes, default: int) -> int:
    """Return the number under `key`, or the default if it is missing or empty."""
    text = records.get(key)
    return _parse_decimal(text) if text else default


def _is_sparse(records: Mapping[bytes, bytes]) -> bool:
    """Return True if Go treats the file as sparse."""
    version = records.get(b"GNU.sparse.major", b""), records.get(b"GNU.sparse.minor", b"")
    if version == (b"", b""):
        return bool(records.get(b"GNU.sparse.map"))
    return version in ((b"0", b"0"), (b"0", b"1"), (b"1", b"0"))


def _check_global(header: _Header, records: Mapping[bytes, bytes]) -> None:
    """Raise `_InvalidEntry` for a name that makes some engines remove a file."""
    name = records.get(b"path") or header.name
    if not _GLOBAL_NAMES.fullmatch(name):
        raise _InvalidEntry(
            f"a global pax header with the name {_format_key(name)}, which engines differ on"
        )
