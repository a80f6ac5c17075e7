"""Formats of containers and compressed files, by their first bytes and never by their name.

Formats: cpio(5), with and without checksums ("newc"), POSIX ("odc") and binary; the RPM file
format, versions 3 and 4 (rpm-software-management.github.io/rpm/manual/format_v4.html).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from buildmatrix.facts.trees import decompression
from buildmatrix.facts.trees.archive import CHUNK, Slice
from buildmatrix.facts.trees.base import RandomAccess, Unreadable
from buildmatrix.facts.trees.tar import MAX_MEMBERS

#: Format of a container; `Container.kind` of the inventory is more specific for some.
Format = Literal[
    "zip", "deb", "tar", "cpio", "rpm", "compressed", "lz4", "script", "pyinstaller",
    "7z", "squashfs", "rar", "cab", "lha", "xar", "wim", "lzip", "lzop", "lzw", "lrzip", "zpaq",
    "iso9660", "ext", "erofs", "f2fs", "cramfs", "romfs", "xfs", "ntfs", "fat", "gpt", "qcow2",
    "vmdk", "vhdx", "appended",
]  # fmt: skip
#: Bytes that `detect_format` requires: the magic of tar is at offset 257.
HEAD = 512
#: A smaller script has no relevant archive appended.
MIN_SCRIPT = 1 << 20
_BZIP2 = re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")
#: Only valid flags.
GZIP = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]", re.DOTALL)
_XZ = b"\xfd7zXZ\x00"
#: Skippable frames of both Zstandard and LZ4.
_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18", re.DOTALL)
#: A window of 256 bytes to 32 KiB, no dictionary, and a multiple of 31.
_ZLIB = frozenset(
    bytes((first, second))
    for first in range(0x08, 0x79, 0x10)
    for second in range(256)
    if not second & 0x20 and (first << 8 | second) % 31 == 0
)
#: Properties, dictionary, and size: all ones with an end marker, otherwise below 2**38. These are
#: the files that `xz` accepts.
_LZMA = re.compile(rb"[\x00-\xe0]\x00.{3}(?:\xff{8}|.{4}[\x00-\x3f]\x00{3})\x00", re.DOTALL)
AR_MAGIC = b"!<arch>\n"
_DEB = AR_MAGIC + b"debian-binary"
#: A multi-part archive starts with a marker before its first header.
ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08PK\x03\x04", b"PK00PK\x03\x04")
_TAR = (257, b"ustar")
#: Octal checksum of a header, from before the format had a magic.
_TAR_SUM = re.compile(rb"[ 0-7]{5,6}[0-7 \0][\0 ]")
#: Formats that are recognized but not opened: offset, magic, name.
_UNOPENED: tuple[tuple[int, bytes, Format], ...] = (
    (0, b"7z\xbc\xaf\x27\x1c", "7z"),
    (0, b"hsqs", "squashfs"),
    (0, b"sqsh", "squashfs"),
    (0, b"Rar!\x1a\x07", "rar"),
    (0, b"MSCF\0\0\0\0", "cab"),
    *((2, b"-lh%d-" % number, "lha") for number in (0, 1, 4, 5, 6, 7)),
    (0, b"xar!\0", "xar"),
    (0, b"MSWIM\0\0\0", "wim"),
    (0, b"LZIP\x01", "lzip"),
    (0, b"\x89LZO\0\r\n\x1a\n", "lzop"),
    (0, b"\x1f\x9d", "lzw"),
    (0, b"LRZI\0", "lrzip"),
    (0, b"7kSt\xa0\x31\x83\xd3", "zpaq"),
    (0, b"\x45\x3d\xcd\x28", "cramfs"),
    (0, b"-rom1fs-", "romfs"),
    (0, b"XFSB\0\0", "xfs"),
    (3, b"NTFS    ", "ntfs"),
    (54, b"FAT1", "fat"),
    (82, b"FAT32   ", "fat"),
    (0, b"QFI\xfb\0\0\0", "qcow2"),
    (0, b"KDMV", "vmdk"),
    (0, b"vhdxfile", "vhdx"),
)
#: The same farther from the start: file systems and disks.
_FAR_MAGICS: tuple[tuple[int, re.Pattern[bytes], Format], ...] = (
    (512, re.compile(rb"EFI PART"), "gpt"),
    (1024, re.compile(rb"\xe2\xe1\xf5\xe0"), "erofs"),
    (1024, re.compile(rb"\x10\x20\xf5\xf2"), "f2fs"),
    # Block size up to 64 KiB, magic, state, and revision.
    (
        1024,
        re.compile(rb".{24}[\0-\6]\0{3}.{28}\x53\xef[\0-\7]\0.{16}[\0\1]\0{3}", re.DOTALL),
        "ext",
    ),
    (32 << 10, re.compile(rb".(?:CD001|BEA01|NSR0[23])", re.DOTALL), "iso9660"),
)
#: Bytes that contain all of these.
FAR_HEAD = (32 << 10) + 6


def detect_format(head: bytes, size: int) -> Format | None:
    """Detect the format of a file of `size` bytes by its first `HEAD` bytes; None for others."""
    if is_text(head):
        return None
    if head.startswith(ZIP_MAGICS):
        return "zip"
    if head.startswith(_DEB):
        return "deb"
    if head.startswith(RPM_MAGIC):
        return "rpm"
    if (kind := detect_compression(head)) is not None:
        return "lz4" if kind == "lz4" else "compressed"
    if is_tar(head):
        return "tar"
    if is_cpio(head):
        return "cpio"
    if head.startswith(b"#!"):
        _, _, rest = head.partition(b"\n")
        if rest.startswith(ZIP_MAGICS[0]):
            return "zip"
        return "script" if size >= MIN_SCRIPT else None
    return next((format for at, magic, format in _UNOPENED if head.startswith(magic, at)), None)


def is_text(head: bytes) -> bool:
    """Return True if the first bytes are text and match no format, as for most files."""
    return (
        head.isascii()
        and b"\0" not in head
        and head[:2] not in _ZLIB
        and not head.startswith((b"#!", b"!<", b"BZ", b"0707"))
        and head[2:5] != b"-lh"
    )


def detect_image_format(source: RandomAccess) -> Format | None:
    """Detect a disk or file system image, which may start with anything; None for others."""
    start = source.read(0, FAR_HEAD)
    return next((format for at, magic, format in _FAR_MAGICS if magic.match(start, at)), None)


def detect_compression(head: bytes) -> str | None:
    """Return the compression of a stream by its first bytes."""
    while _SKIPPABLE.match(head):
        behind = head[8 + int.from_bytes(head[4:8], "little") :]
        if not behind:
            return "zstd"
        head = behind
    if GZIP.match(head):
        return "gzip"
    if head.startswith(_XZ):
        return "xz"
    if head.startswith(decompression.ZSTD_MAGIC):
        return "zstd"
    if head.startswith((decompression.LZ4_MAGIC, decompression.LEGACY_MAGIC)):
        return "lz4"
    if _BZIP2.match(head):
        return "bzip2"
    if head[:2] in _ZLIB:
        return "zlib"
    return "lzma" if _is_lzma(head) else None


def _is_lzma(head: bytes) -> bool:
    if _LZMA.match(head) is None:
        return False
    dictionary = int.from_bytes(head[1:5], "little")
    bits = dictionary.bit_length()
    return dictionary >= 4096 and dictionary in (1 << bits - 1, 3 << bits - 2)


def is_tar(head: bytes) -> bool:
    """Return True if the first `HEAD` bytes of a file are those of a tar archive."""
    if head.startswith(_TAR[1], _TAR[0]):
        return True
    if len(head) < HEAD or not head[0] or not _TAR_SUM.match(head, 148):
        return False
    digits = head[148:156].strip(b" \0")
    # The checksum field counts as spaces.
    return digits.isdigit() and int(digits, 8) == sum(head[:148]) + sum(head[156:HEAD]) + 8 * 32


RPM_MAGIC = b"\xed\xab\xee\xdb"
_NEW = re.compile(rb"07070[12][0-9A-Fa-f]{104}")
_POSIX = re.compile(rb"070707[0-7]{70}")
_BINARY = {b"\xc7\x71": struct.Struct("<13H"), b"\x71\xc7": struct.Struct(">13H")}
#: Bytes of the longest header.
HEADER = 110
_MAX_NAME = 4096
_END_NAME = "TRAILER!!!"
_KIND, _FILE = 0o170000, 0o100000

#: Bytes before the first header of an RPM package, and the layout of a header.
_LEAD = 96
_RPM_HEADER = struct.Struct(">4s4xII")
_RPM_HEADER_MAGIC = b"\x8e\xad\xe8\x01"


@dataclass(frozen=True, slots=True)
class _Header:
    mode: int
    size: int
    name_size: int
    #: Bytes of the header, and alignment of names and files.
    length: int
    padding: int

    def name_end(self, at: int) -> int:
        """Return the end of the padded name of the entry at `at`."""
        return at + _pad(self.length + self.name_size, self.padding)


def is_cpio(head: bytes) -> bool:
    """Return True if the first bytes of a file are those of a cpio archive."""
    header = _parse_header(head)
    if header is None or not 1 < header.name_size <= _MAX_NAME:
        return False
    # A binary header has a magic of only two bytes: also check the NUL that ends the name.
    end = header.length + header.name_size - 1
    return end >= len(head) or head[end] == 0


def iter_files(archive: Slice) -> Iterator[tuple[str, Slice]]:
    """Yield the files of the archive in order, with their names as stored. Raises `Unreadable`."""
    at = 0
    for _ in range(MAX_MEMBERS):
        header = _parse_header(archive.read(at, min(HEADER, archive.size - at)))
        if header is None or not 1 < header.name_size <= _MAX_NAME:
            raise Unreadable(f"no readable cpio archive: there is no header at {at}")
        name = archive.read(at + header.length, header.name_size).rstrip(b"\0")
        start = header.name_end(at)
        text = name.decode("utf-8", "surrogateescape")
        if text == _END_NAME:
            _check_end(archive, start)
            return
        if start + header.size > archive.size:
            raise Unreadable("the archive ends inside of it: it is truncated")
        if header.mode & _KIND == _FILE:
            yield text, Slice(archive, start, header.size)
        at = start + _pad(header.size, header.padding)
    raise Unreadable(f"the archive has more than {MAX_MEMBERS} entries")


def rpm_payload(package: Slice) -> Slice:
    """Return the archive in an RPM package, maybe compressed. Raises `Unreadable`."""
    at = _LEAD
    for padding in (8, 1):
        head = package.read(at, min(_RPM_HEADER.size, package.size - at))
        if len(head) < _RPM_HEADER.size or not head.startswith(_RPM_HEADER_MAGIC):
            raise Unreadable("no readable RPM package: a header is not where it should be")
        _, entries, size = _RPM_HEADER.unpack(head)
        at += _pad(_RPM_HEADER.size + 16 * entries + size, padding)
    if at >= package.size:
        raise Unreadable("no readable RPM package: it ends before its files")
    return Slice(package, at, package.size - at)


def _parse_header(head: bytes) -> _Header | None:
    if _NEW.match(head):
        fields = [int(head[at : at + 8], 16) for at in range(6, HEADER, 8)]
        return _Header(fields[1], fields[6], fields[11], HEADER, 4)
    if _POSIX.match(head):
        mode, name_size, size = (int(head[slice(*at)], 8) for at in ((18, 24), (59, 65), (65, 76)))
        return _Header(mode, size, name_size, 76, 1)
    binary = _BINARY.get(head[:2])
    if binary is None or len(head) < binary.size:
        return None
    fields = list(binary.unpack(head[: binary.size]))
    return _Header(fields[3], fields[11] << 16 | fields[12], fields[10], binary.size, 2)


def _pad(size: int, padding: int) -> int:
    return size + -size % padding


def _check_end(archive: Slice, at: int) -> None:
    """Raise `Unreadable` if data follows the end: the kernel would read on."""
    while at < archive.size:
        data = archive.source.read(archive.offset + at, min(CHUNK, archive.size - at))
        if not data:
            return
        if data.strip(b"\0"):
            raise Unreadable("more follows the end of the archive, which was not read")
        at += len(data)
