"""The entries of tar archives, read in place, by the rules of Go's archive/tar.

containerd, podman (tar-split's copy of it), Docker and umoci unpack layers by them. Others read the
same headers otherwise: Python and GNU tar obey global headers, for example. What Go's releases or
the engines read differently raises `Unreadable`, with the place of the entry.

Formats: V7, POSIX ustar and pax, GNU tar, star (Go 1.19 to 1.25, src/archive/tar/reader.go).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Final, Literal, NamedTuple

from buildmatrix.trees.archive import Slice
from buildmatrix.trees.base import Unreadable

Kind = Literal["file", "folder", "symlink", "hardlink", "other", "device"]
#: Members of one archive; an image of a desktop has 300,000.
MOST_MEMBERS = 2_000_000
#: Bytes of a pax header or of a GNU long name; Go takes no larger ones since 1.19.2.
LARGEST_META: Final = 1 << 20

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
#: As Go's strconv.ParseInt takes it, but for more leading zeros.
_DECIMAL: Final = re.compile(rb"[+-]?[0-9]{1,20}")
_TIME: Final = re.compile(rb"([+-]?[0-9]{1,20})(?:\.[0-9]*)?")
_TEXTS: Final = frozenset((b"path", b"linkpath", b"uname", b"gname"))
_SPARSE_PIECES: Final = (b"GNU.sparse.offset", b"GNU.sparse.numbytes")
#: Names that writers give a global header. containerd removes a file of such a name, podman does
#: not, and both skip the header.
_GLOBAL_NAMES: Final = re.compile(rb"(?:.*/)?(?:pax_global_header|@PaxHeader|GlobalHead\.[0-9.]+)")
#: Extended attributes by which overlay file systems take files away, or from elsewhere.
_OVERLAY: Final = (
    b"SCHILY.xattr.trusted.overlay.",
    b"SCHILY.xattr.user.overlay.",
    b"SCHILY.xattr.user.fuseoverlayfs.",
    b"SCHILY.xattr.user.containers.",
)


@dataclass(frozen=True, slots=True)
class Attributes:
    """Who owns an entry of an archive, and its permission bits, with setuid, setgid and sticky."""

    mode: int
    uid: int = 0
    gid: int = 0


@dataclass(frozen=True, slots=True)
class TarMember:
    """One entry of an archive. `name` as stored; see `plain` for a path that can be trusted."""

    name: str
    kind: Kind
    #: The bytes of a file; None for what is no file, and for a sparse one, which is not read.
    data: Slice | None = None
    #: Target of a link, as stored.
    target: str = ""
    #: None where whoever read the archive had no use for them.
    attributes: Attributes | None = None


def members(archive: Slice, *, as_dpkg: bool = False) -> Iterator[TarMember]:
    """The entries of the uncompressed tar archive in `archive`, in order.

    With `as_dpkg`, what dpkg reads otherwise is an error as well. Raises `Unreadable` for an
    archive that is none, is cut short, has more than `MOST_MEMBERS`, or is read in several ways.
    """
    reader = _Reader(archive, as_dpkg=as_dpkg)
    count = 0
    while True:
        count += 1
        try:
            member = reader.read()
        except _Broken as error:
            place = f"entry {count}, at byte {reader.start}"
            raise Unreadable(f"no readable tar archive: {place}: {error}") from error
        if member is None:
            return
        if count > MOST_MEMBERS:
            raise Unreadable(f"the archive has more than {MOST_MEMBERS} entries")
        yield member


class _Broken(Exception):
    """An entry that Go refuses, or that engines read in several ways; the text is the reason."""


class _Header(NamedTuple):
    """The fields of a header block, as far as they matter."""

    name: bytes
    kind: bytes
    size: int
    link: bytes
    mode: int
    uid: int
    gid: int
    #: Whether dpkg joins the same parts to a name.
    is_common: bool


class _Reader:
    """One entry after the other."""

    def __init__(self, archive: Slice, *, as_dpkg: bool) -> None:
        self._archive = archive
        self._as_dpkg = as_dpkg
        #: Where the entry starts, with the headers before it.
        self.start = 0
        self._at = 0

    def read(self) -> TarMember | None:
        """The next entry; None at the end mark."""
        self.start = self._at
        records: dict[bytes, bytes] = {}
        long_name = long_link = b""
        while True:
            block = self._archive.read(self._at, BLOCK)
            if len(block) < BLOCK:
                raise _Broken("the archive is truncated: it has no end mark")
            if block == _ZEROS:
                self._check_end()
                return None
            header = _parsed(block)
            kind = header.kind
            self._at += BLOCK
            if kind in _KINDS or kind == _OLD_FILE:
                return self._entry(header, records, long_name, long_link)
            if kind == _GNU_NAME:
                long_name = self._long_text(header.size)
            elif kind == _GNU_LINK:
                long_link = self._long_text(header.size)
            elif kind == _PAX and not self._as_dpkg:
                # Of several, the last one counts, alone.
                records = _records(self._meta(header.size))
            elif kind == _PAX_GLOBAL and not self._as_dpkg:
                # For Go, an entry that ends what comes before it; for engines, nothing.
                _check_global(header, _records(self._meta(header.size)))
                records, long_name, long_link = {}, b"", b""
            else:
                raise _Broken(f"an entry of the type {chr(kind[0])!r}, which is not unpacked")

    def _check_end(self) -> None:
        """Two blocks of zeros end an archive. Tools differ on one block with more behind it."""
        try:
            follows = self._archive.read(self._at + BLOCK, 1)
        except Unreadable:
            return
        if follows and self._archive.read(self._at + BLOCK, BLOCK) != _ZEROS:
            raise _Broken("its end mark is half of one, and more follows")

    def _meta(self, size: int) -> bytes:
        """The data of an entry that is a header of the next one."""
        if not 0 <= size <= LARGEST_META:
            raise _Broken(f"a header says that it has {size} bytes")
        data = self._archive.read(self._at, size)
        if len(data) < size:
            raise _Broken("the archive ends inside of a header: it is truncated")
        self._at += _padded(size)
        return data

    def _long_text(self, size: int) -> bytes:
        text = _text(self._meta(size))
        if not text:
            raise _Broken("a GNU header with an empty name")
        return text

    def _entry(
        self, header: _Header, records: Mapping[bytes, bytes], long_name: bytes, long_link: bytes
    ) -> TarMember:
        name = long_name or records.get(b"path") or header.name
        kind = header.kind
        if header.size < 0 and kind in (_FILE, _OLD_FILE):
            raise _Broken("an entry has less than no bytes")
        if kind == _OLD_FILE:
            kind = b"5" if name.endswith(b"/") else _FILE
        is_file = kind == _FILE
        size, uid, gid = header.size, header.uid, header.gid
        is_sparse = False
        if records:
            size = _number_in(records, b"size", size)
            uid = _number_in(records, b"uid", uid)
            gid = _number_in(records, b"gid", gid)
            for key in records:
                if key.startswith(_OVERLAY):
                    raise _Broken(f"the extended attribute {_shown(key)} is for overlay mounts")
            is_sparse = _is_sparse(records)
            if is_sparse:
                name = records.get(b"GNU.sparse.name") or name
        if is_sparse and not is_file:
            raise _Broken("a sparse file that is no file")
        if self._as_dpkg and not (header.is_common and not (is_file and name.endswith(b"/"))):
            raise _Broken("a header that dpkg reads otherwise")
        data = None
        if is_file:
            if size < 0:
                raise _Broken("an entry has less than no bytes")
            if not is_sparse:
                data = Slice(self._archive, self._at, size)
            self._at += _padded(size)
        target = ""
        if kind in b"12":
            target = _decoded(long_link or records.get(b"linkpath") or header.link)
        attributes = _attributes(header.mode & 0o7777, uid, gid)
        return TarMember(_decoded(name), _KINDS[kind], data, target, attributes)


def _parsed(block: bytes) -> _Header:
    """The fields of a header. Raises `_Broken` where Go does."""
    (
        name, mode, uid, gid, size, mtime, checksum, kind, link, magic, version, _, _, major, minor,
        prefix, trailer,
    ) = _FIELDS.unpack(block)  # fmt: skip
    total = sum(block) - sum(checksum) + 8 * ord(" ")
    if (said := _octal(checksum)) != total:
        # Sun's tar took bytes for signed.
        rest = block[:148] + block[156:]
        if said != total - 256 * sum(byte > 127 for byte in rest):
            raise _Broken("no header: its checksum is another one")
    is_common = True
    _number(mtime)
    name = _text(name)
    if magic == _USTAR or (magic, version) == _GNU:
        _number(major)
        _number(minor)
        if magic != _USTAR:
            is_common = (prefix := _old_go_prefix(prefix)) == b""
        elif trailer == _STAR:
            _number(prefix[131:143])
            _number(prefix[143:155])
            prefix = prefix[:131]
            is_common = False
        else:
            is_common = version == b"00"
        if prefix := _text(prefix):
            name = prefix + b"/" + name
    return _Header(
        name, kind, _number(size), _text(link), _number(mode), _number(uid), _number(gid), is_common
    )


def _old_go_prefix(field: bytes) -> bytes:
    """The prefix in a header of GNU tar: Go before 1.8 wrote one where GNU has two times."""
    try:
        for time in (field[:12], field[12:24]):
            if time[0]:
                _number(time)
    except _Broken:
        prefix = _text(field)
        return prefix if prefix.isascii() else b""
    return b""


@lru_cache(maxsize=4096)
def _number(field: bytes) -> int:
    """A number in octal digits, or in two's complement behind a bit that says so."""
    if not field[0] & 0x80:
        return _octal(field)
    bits = 8 * len(field)
    number = int.from_bytes(field, "big") - (1 << bits if field[0] & 0x40 else 1 << bits - 1)
    if number not in _INT64:
        raise _Broken("a number that is too large")
    return number


def _octal(field: bytes) -> int:
    digits = field.strip(b" \0").partition(b"\0")[0]
    if not digits:
        return 0
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        raise _Broken("a number that is none")
    if not field[0]:
        raise _Broken("a number behind a NUL, at which others end")
    return int(digits, 8)


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _decoded(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _shown(key: bytes) -> str:
    return repr(key[:100].decode("utf-8", "replace"))


def _padded(size: int) -> int:
    return size + -size % BLOCK


@lru_cache(maxsize=4096)
def _attributes(mode: int, uid: int, gid: int) -> Attributes:
    """One object for the many entries that have the same."""
    return Attributes(mode, uid, gid)


# pax


def _records(data: bytes) -> dict[bytes, bytes]:
    """The records of a pax header. Raises `_Broken` where Go does."""
    records: dict[bytes, bytes] = {}
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        space = data.find(b" ", at)
        length = _decimal(data[at : min(space, at + 30)]) if space > at else 0
        end = at + length
        if length < 5 or end > len(data) or end <= space + 1 or data[end - 1] != ord("\n"):
            raise _Broken("a pax header with a record of another length")
        key, equals, value = data[space + 1 : end - 1].partition(b"=")
        if not (key and equals) or b"\0" in (value if key in _TEXTS else key):
            raise _Broken("a pax header with a record that is none")
        if key in _SPARSE_PIECES:
            # The format 0.0, which repeats these two by turns.
            if key != _SPARSE_PIECES[len(pieces) % 2] or b"," in value:
                raise _Broken("a sparse file with a broken map")
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
                raise _Broken(f"a pax header with a broken {key.decode()}")
    for key in (b"uid", b"gid", b"size"):
        _number_in(records, key, 0)
    return records


def _decimal(text: bytes) -> int:
    if _DECIMAL.fullmatch(text) is None or (number := int(text)) not in _INT64:
        raise _Broken("a pax header with a number that is none")
    return number


def _number_in(records: Mapping[bytes, bytes], key: bytes, default: int) -> int:
    """The number under `key`; an empty one leaves what the header says."""
    text = records.get(key)
    return _decimal(text) if text else default


def _is_sparse(records: Mapping[bytes, bytes]) -> bool:
    """Whether Go takes the file for a sparse one."""
    version = records.get(b"GNU.sparse.major", b""), records.get(b"GNU.sparse.minor", b"")
    if version == (b"", b""):
        return bool(records.get(b"GNU.sparse.map"))
    return version in ((b"0", b"0"), (b"0", b"1"), (b"1", b"0"))


def _check_global(header: _Header, records: Mapping[bytes, bytes]) -> None:
    """Raise `_Broken` for a header by whose name some engines remove a file."""
    name = records.get(b"path") or header.name
    if not _GLOBAL_NAMES.fullmatch(name):
        raise _Broken(f"a global pax header with the name {_shown(name)}, which engines differ on")
