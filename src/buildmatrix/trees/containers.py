"""Files that hold files: archives, packages and programs with an archive behind them.

What a file is shows in its first bytes, never in its name. Its members are listed one after the
other, and each can be opened while it is listed. Nothing is unpacked to a named file.

Formats: ZIP (wheels, jars, eggs and PyTorch's .pt2 are such), deb(5), tar, cpio, RPM, gzip (RFC
1952), zlib (RFC 1950), xz, LZMA, bzip2, Zstandard (RFC 8878), LZ4, conda's two (`.conda` is a ZIP
around `pkg-*.tar.zst`), shell scripts with an archive behind them (makeself 2), and PyInstaller's
CArchive (PyInstaller/archive/writers.py, version 6). Others are known and not opened.
"""

from __future__ import annotations

import bz2
import lzma
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Literal

from buildmatrix.trees import cpio, lz4, zstd
from buildmatrix.trees.archive import (
    CHUNK,
    MOST_INFLATION,
    HeldBytes,
    Slice,
    Stream,
)
from buildmatrix.trees.base import RandomAccess, Readable, Unreadable
from buildmatrix.trees.forward import ENDLESS, ForwardSource, Gunzip
from buildmatrix.trees.inflating import LARGEST_HELD, Inflated
from buildmatrix.trees.tar import members as tar_members
from buildmatrix.trees.unpacking import INPUT, Unpacking, zstandard
from buildmatrix.trees.wheel import WheelTree

#: How a container is read; `Container.kind` of the inventory says more of some.
Format = Literal[
    "zip", "deb", "tar", "cpio", "rpm", "compressed", "lz4", "script", "pyinstaller",
    "7z", "squashfs", "rar", "cab", "lha", "xar", "wim", "lzip", "lzop", "lzw", "lrzip", "zpaq",
    "iso9660", "ext", "erofs", "f2fs", "cramfs", "romfs", "xfs", "ntfs", "fat", "gpt", "qcow2",
    "vmdk", "vhdx", "appended",
]  # fmt: skip
#: First bytes that `format_of` wants to see: the magic of tar stands at 257.
HEAD = 512
#: Bytes of a compressed file that say what it holds: those of most, and of others more. Blocks of
#: bzip2 have up to 900 kB and come whole; the header of gzip has a comment of any length.
PEEKED = 4 << 10
_PEEKED = (PEEKED, 64 << 10, 1 << 20)
#: A script with fewer bytes has no archive behind it that matters.
LARGEST_SCRIPT = 1 << 20
#: What a program's sections leave at its end: tables fit into less.
LARGEST_TABLES = 256 << 10

_BZIP2 = re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")
#: No flag of the format is larger.
_GZIP = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]", re.DOTALL)
_XZ = b"\xfd7zXZ\x00"
#: Which both Zstandard and LZ4 pass over.
_SKIPPED = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18", re.DOTALL)
#: A window of 256 bytes to 32 KiB, and no dictionary; the two bytes are a multiple of 31.
_ZLIB = frozenset(
    bytes((first, second))
    for first in range(0x08, 0x79, 0x10)
    for second in range(256)
    if not second & 0x20 and (first << 8 | second) % 31 == 0
)
#: The properties, the dictionary, and the size: all ones where the end is marked, below 2**38 else.
#: What `xz` takes for such a file.
_LZMA = re.compile(rb"[\x00-\xe0]\x00.{3}(?:\xff{8}|.{4}[\x00-\x3f]\x00{3})\x00", re.DOTALL)
#: Those whose first bytes are so long that nothing else begins with them.
_SURE = frozenset({"gzip", "xz", "zstd", "bzip2", "lz4"})
_AR = b"!<arch>\n"
_DEB = _AR + b"debian-binary"
#: One of several parts begins with a mark before its first header.
_ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08PK\x03\x04", b"PK00PK\x03\x04")
_TAR = (257, b"ustar")
#: Sum of its header, in octal digits, before the format had a magic.
_TAR_SUM = re.compile(rb"[ 0-7]{5,6}[0-7 \0][\0 ]")
#: What is known and not opened.
_CLOSED: tuple[tuple[int, bytes, Format], ...] = (
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
#: The same, farther from the start: file systems and disks.
_FAR: tuple[tuple[int, re.Pattern[bytes], Format], ...] = (
    (512, re.compile(rb"EFI PART"), "gpt"),
    (1024, re.compile(rb"\xe2\xe1\xf5\xe0"), "erofs"),
    (1024, re.compile(rb"\x10\x20\xf5\xf2"), "f2fs"),
    # A block size up to 64 KiB, magic, state, and revision.
    (
        1024,
        re.compile(rb".{24}[\0-\6]\0{3}.{28}\x53\xef[\0-\7]\0.{16}[\0\1]\0{3}", re.DOTALL),
        "ext",
    ),
    (32 << 10, re.compile(rb".(?:CD001|BEA01|NSR0[23])", re.DOTALL), "iso9660"),
)
#: Bytes that those stand in.
FARTHEST = (32 << 10) + 6
#: Where the archive of a self-extracting script begins: behind the line break that ends it.
_BEHIND_SCRIPT = re.compile(
    rb"\n(?=\x1f\x8b\x08|\xfd7zXZ\x00|BZh[1-9]1AY&SY|\x28\xb5\x2f\xfd|PK\x03\x04)"
)
#: What may lie behind the sections of a program and is not opened; `KAX` and `KAY` are nuitka's.
_APPENDED = re.compile(
    rb"hsqs|sqsh|\xfd7zXZ\x00|KA[XY]\x28\xb5|\x28\xb5\x2f\xfd|BZh[1-9]1AY&SY|7z\xbc\xaf\x27\x1c"
    rb"|Rar!\x1a\x07|\x04\x22\x4d\x18|ustar|07070[12][0-9A-Fa-f]{8}"
)
#: Bytes that the text of such a script has at most; makeself's has 20 kB, conda's 60.
_LONGEST_SCRIPT = 1 << 20
#: A dictionary of xz is up to 64 MiB (`xz -9`); the format allows 4 GiB.
_XZ_MEMORY = 128 << 20

#: Packed bytes that most often inflate to a head.
_PACKED_HEAD = 1 << 10
_AR_HEADER = 60
#: Members of a .deb: debian-binary, control, data, and signatures.
_MOST_DEB_MEMBERS = 16

#: Magic, bytes of the package, offset and bytes of its table, Python's version, its library.
_COOKIE = struct.Struct("!8sIIII64s")
_COOKIE_MARK = b"MEI\014\013\012\013\016"
#: Bytes of the entry, offset, bytes in the archive and inflated, whether it is deflated, its kind.
_TOC_ENTRY = struct.Struct("!IIIIBc")
_LARGEST_TOC = 16 << 20


@dataclass(frozen=True, slots=True)
class Inner:
    """One file in a container. `open` gives its bytes, as long as the next one is not asked for."""

    #: As stored.
    name: str
    size: int
    #: Bytes that it takes in the container; None where it is not packed by itself.
    packed: int | None
    open: Callable[[], AbstractContextManager[RandomAccess]]
    #: Gives the first `HEAD` bytes for less than `open` does; fewer where that is not enough.
    beginning: Callable[[], bytes] | None = None

    def head(self) -> bytes:
        """Its first bytes. Raises OSError."""
        if self.beginning is not None:
            data = self.beginning()
            if len(data) >= min(HEAD, self.size):
                return data
        with self.open() as source:
            return source.read(0, HEAD)


def format_of(head: bytes, size: int) -> Format | None:
    """The format of a file of `size` bytes by its first `HEAD` bytes; None for no container."""
    if is_text(head):
        return None
    if head.startswith(_ZIP):
        return "zip"
    if head.startswith(_DEB):
        return "deb"
    if head.startswith(cpio.RPM_MAGIC):
        return "rpm"
    if (kind := compression(head)) is not None:
        return "lz4" if kind == "lz4" else "compressed"
    if is_tar(head):
        return "tar"
    if cpio.is_cpio(head):
        return "cpio"
    if head.startswith(b"#!"):
        _, _, rest = head.partition(b"\n")
        if rest.startswith(_ZIP[0]):
            return "zip"
        return "script" if size >= LARGEST_SCRIPT else None
    return next((format for at, magic, format in _CLOSED if head.startswith(magic, at)), None)


def is_text(head: bytes) -> bool:
    """Whether the first bytes of a file are text, as those of most are, and of no format at all."""
    return (
        head.isascii()
        and b"\0" not in head
        and head[:2] not in _ZLIB
        and not head.startswith((b"#!", b"!<", b"BZ", b"0707"))
        and head[2:5] != b"-lh"
    )


def image_format(source: RandomAccess) -> Format | None:
    """The format of a disk or a file system, which may begin with anything; None for no such."""
    start = source.read(0, FARTHEST)
    return next((format for at, magic, format in _FAR if magic.match(start, at)), None)


def compression(head: bytes) -> str | None:
    """How a stream is compressed, by its first bytes."""
    while _SKIPPED.match(head):
        behind = head[8 + int.from_bytes(head[4:8], "little") :]
        if not behind:
            return "zstd"
        head = behind
    if _GZIP.match(head):
        return "gzip"
    if head.startswith(_XZ):
        return "xz"
    if head.startswith(zstd.MAGIC):
        return "zstd"
    if head.startswith((lz4.MAGIC, lz4.LEGACY_MAGIC)):
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
    """Whether the first `HEAD` bytes of a file are those of a tar archive."""
    if head.startswith(_TAR[1], _TAR[0]):
        return True
    if len(head) < HEAD or not head[0] or not _TAR_SUM.match(head, 148):
        return False
    digits = head[148:156].strip(b" \0")
    # The sum counts its own place as spaces.
    return digits.isdigit() and int(digits, 8) == sum(head[:148]) + sum(head[156:HEAD]) + 8 * 32


def peek(source: RandomAccess, head: bytes, size: int) -> bytes | None:
    """The first `HEAD` bytes that a compressed file of `size` bytes holds, or all of fewer.

    None where they cannot be had: the file is damaged, takes too much memory, or begins with
    nothing for too long. Nothing of what only looks like a compressed file.
    """
    kind = compression(head)
    unknown = None if kind in _SURE else b""
    for length in _PEEKED[-1:] if kind == "bzip2" else _PEEKED:
        part = source.read(0, length)
        data = b""
        try:
            stream = _stream(Slice(HeldBytes(part), 0, len(part)))
            while len(data) < HEAD and (piece := stream.read(HEAD - len(data))):
                data += piece
        except EOFError:
            if len(part) >= size:
                return data or unknown
        except Exception as error:
            if not _is_damage(error):
                raise
            if len(data) < HEAD and ("emory" in str(error) or isinstance(error, Unreadable)):
                return None
            return data if len(data) >= HEAD else unknown
        if len(data) >= HEAD or len(part) >= size:
            return data
    return unknown


def behind_program(
    source: RandomAccess, size: int, sections_end: int, pydata: int | None
) -> Format | None:
    """What lies behind the sections of an ELF file, which end at `sections_end`.

    `pydata` is where the section ends that PyInstaller puts its archive into, if there is one.
    """
    if pydata is not None and cookie_at(source, pydata) is not None:
        return "pyinstaller"
    if size - sections_end < LARGEST_TABLES:
        return None
    if cookie_at(source, size) is not None:
        return "pyinstaller"
    if b"PK\x05\x06" in source.read(max(0, size - PEEKED), PEEKED):
        return "zip"
    # Payloads are aligned at most.
    start = source.read(sections_end, LARGEST_TABLES)
    return "appended" if _APPENDED.search(start) or _GZIP.search(start[:PEEKED]) else None


def cookie_at(source: RandomAccess, end: int) -> int | None:
    """Where the cookie of a PyInstaller archive stands in the bytes before `end`."""
    start = max(0, end - PEEKED)
    at = source.read(start, end - start).rfind(_COOKIE_MARK)
    return start + at if at >= 0 and start + at + _COOKIE.size <= end else None


def members(source: Slice, format: Format, name: str, most: int) -> Iterator[Inner]:
    """The files in the container `source`, called `name`, which may inflate to `most` bytes.

    Raises `Unreadable` for what is damaged or a bomb, and OSError.
    """
    if format == "zip":
        yield from _zip_members(source, most)
    elif format == "deb":
        yield from _stream_members(_deb_data(source), "", most)
    elif format == "script":
        yield from _script_members(source, name, most)
    elif format == "pyinstaller":
        yield from _pyinstaller_members(source)
    elif format == "rpm":
        yield from _stream_members(cpio.rpm_payload(source), "", most)
    elif format in ("tar", "cpio", "compressed", "lz4"):
        yield from _stream_members(source, name, most)
    else:
        raise Unreadable(f"a file of the format {format}, which is not opened")


def _zip_members(source: Slice, most: int) -> Iterator[Inner]:
    with WheelTree(source, most) as tree:
        for member in tree.members:
            yield Inner(
                member.path,
                member.size,
                member.compressed,
                partial(tree.open, member.path),
                partial(tree.beginning, member.path, _PACKED_HEAD, HEAD),
            )
            if member.path.startswith("pkg-") and member.path.endswith(".tar.zst"):
                # The package in a .conda is stored, and is one format with the ZIP around it.
                entry, start = tree.place(member.path)
                if entry.compressed == entry.size:
                    inner = Slice(source, start, entry.size)
                    yield from _stream_members(inner, "", most)


# Streams


def _stream_members(source: Slice, name: str, most: int) -> Iterator[Inner]:
    """The files of an archive, compressed or not, or the one file that is compressed."""
    listed = _listed(source.read(0, min(HEAD, source.size)))
    if listed is not None:
        for inner, data in listed(source):
            yield _of_archive(inner, data)
        return
    forward = ForwardSource(_inflated(source, most))
    listed = _listed(forward.read(0, HEAD))
    if listed is None:
        yield _single(source, name, most)
        return
    for inner, data in listed(Slice(forward, 0, ENDLESS)):
        yield _of_archive(inner, data, passes=True)


def _listed(head: bytes) -> Callable[[Slice], Iterator[tuple[str, Slice]]] | None:
    """What lists the files of the archive that begins with `head`; None for no archive."""
    if is_tar(head):
        return _tar_files
    return _cpio_files if cpio.is_cpio(head) else None


def _tar_files(archive: Slice) -> Iterator[tuple[str, Slice]]:
    for member in tar_members(archive):
        if member.data is not None:
            yield member.name, member.data
        elif member.kind == "file":
            raise Unreadable(f"{member.name[:200]!r} is a sparse file, which is not read")


def _cpio_files(archive: Slice) -> Iterator[tuple[str, Slice]]:
    return ((file.name, file.data) for file in cpio.files(archive))


def _of_archive(name: str, data: Slice, *, passes: bool = False) -> Inner:
    """A file of an archive; one that `passes` can be read once."""
    opened = partial(_passing if passes else _stored, data, data.size)
    return Inner(name, data.size, None, opened)


def _passing(data: Slice, size: int) -> AbstractContextManager[RandomAccess]:
    return Inflated(Stream(data), size)


def _single(source: Slice, name: str, most: int) -> Inner:
    """The file that `source` is compressed of. How long it is shows when it has passed by."""
    size = sum(len(piece) for piece in _inflated(source, most))

    def opened() -> AbstractContextManager[RandomAccess]:
        return Inflated(_ChunkStream(_inflated(source, most), size), size)

    stem = name.rpartition("/")[2].rpartition(".")[0]
    return Inner(stem or name, size, source.size, opened)


class _ChunkStream:
    """Chunks of known length in all, as the stream that `Inflated` reads."""

    def __init__(self, chunks: Iterator[bytes], size: int) -> None:
        self._chunks = chunks
        self._remaining = size
        self._ahead = b""

    def read(self, length: int) -> bytes:
        if not self._ahead:
            self._ahead = next(self._chunks, b"")
            if not self._ahead and self._remaining:
                raise Unreadable("it ends early")
        data, self._ahead = self._ahead[:length], self._ahead[length:]
        self._remaining -= len(data)
        return data


#: What the decompressors raise on bytes that lie.
_DAMAGED = (zlib.error, lzma.LZMAError, EOFError, OSError, ValueError)


def _is_damage(error: Exception) -> bool:
    return isinstance(error, _DAMAGED) or zstd.is_damage(error)


def _inflated(source: Slice, most: int) -> Iterator[bytes]:
    """What `source` inflates to, up to `most` bytes."""
    size = 0
    try:
        stream = _stream(source)
        while chunk := stream.read(CHUNK):
            size += len(chunk)
            if size > most:
                raise Unreadable(f"it inflates to more than {most} bytes")
            yield chunk
    except Unreadable:
        raise
    except Exception as error:
        if _is_damage(error):
            raise Unreadable(f"its compressed bytes are damaged: {error}") from error
        raise


def _stream(source: Slice) -> Readable:
    kind = compression(source.read(0, HEAD))
    raw = Stream(source)
    if kind == "gzip":
        return Gunzip(raw)
    if kind == "zlib":
        return Gunzip(raw, zlib.MAX_WBITS)
    if kind in ("xz", "lzma"):
        format = lzma.FORMAT_XZ if kind == "xz" else lzma.FORMAT_ALONE
        return Unpacking(raw, lambda: lzma.LZMADecompressor(format, memlimit=_XZ_MEMORY))
    if kind == "lz4":
        return lz4.Frames(raw)
    if kind == "bzip2":
        return Unpacking(raw, bz2.BZ2Decompressor)
    if kind != "zstd":
        raise Unreadable("neither an archive nor a compressed file")
    return zstandard(raw)


# Debian packages and self-extracting scripts


def _deb_data(source: Slice) -> Slice:
    """The archive of the files in a Debian package (deb(5))."""
    at = len(_AR)
    for _ in range(_MOST_DEB_MEMBERS):
        head = source.read(at, _AR_HEADER)
        digits = head[48:58].strip()
        if len(head) < _AR_HEADER or not digits.isdigit():
            break
        start, length = at + _AR_HEADER, int(digits)
        if head.startswith(b"data.tar") and start + length <= source.size:
            return Slice(source, start, length)
        at = start + length + length % 2
    raise Unreadable("no readable Debian package: there is no data.tar in it")


def _script_members(source: Slice, name: str, most: int) -> Iterator[Inner]:
    match = _BEHIND_SCRIPT.search(source.read(0, _LONGEST_SCRIPT))
    if match is None:
        raise Unreadable("a script with something behind it that is no known archive")
    archive = Slice(source, match.end(), source.size - match.end())
    if archive.read(0, 4) == _ZIP[0]:
        yield from _zip_members(source, most)
    else:
        yield from _stream_members(archive, name, most)


# PyInstaller


def _pyinstaller_members(source: Slice) -> Iterator[Inner]:
    """The files in the archive that PyInstaller puts behind its program."""
    at = _last_cookie(source)
    mark, length, toc_at, toc_length, _, _ = _COOKIE.unpack(source.read(at, _COOKIE.size))
    start = at + _COOKIE.size - length
    if mark != _COOKIE_MARK or start < 0 or toc_length > _LARGEST_TOC or toc_at > length:
        raise Unreadable("no readable PyInstaller archive: its cookie contradicts the file")
    toc = source.read(start + toc_at, toc_length)
    at_entry = 0
    while at_entry + _TOC_ENTRY.size <= len(toc):
        size, offset, packed, plain, deflated, _ = _TOC_ENTRY.unpack_from(toc, at_entry)
        if size <= _TOC_ENTRY.size or offset + packed > length:
            raise Unreadable("no readable PyInstaller archive: its table is damaged")
        name = toc[at_entry + _TOC_ENTRY.size : at_entry + size].rstrip(b"\0")
        at_entry += size
        if plain > packed * MOST_INFLATION + LARGEST_HELD:
            raise Unreadable("a member of the PyInstaller archive is a bomb")
        data = Slice(source, start + offset, packed)
        opened = partial(_deflated if deflated else _stored, data, plain)
        yield Inner(name.decode("utf-8", "backslashreplace"), plain, packed, opened)


def _last_cookie(source: Slice) -> int:
    """Where the cookie stands: at the end, or before the tables of an ELF file."""
    end = source.size
    while end > max(0, source.size - LARGEST_TABLES):
        at = cookie_at(source, end)
        if at is not None:
            return at
        end -= PEEKED - _COOKIE.size
    raise Unreadable("no readable PyInstaller archive: its cookie is missing")


def _stored(data: Slice, _: int) -> AbstractContextManager[RandomAccess]:
    return nullcontext(data)


def _deflated(data: Slice, size: int) -> AbstractContextManager[RandomAccess]:
    return Inflated(_ChunkStream(_zlib_chunks(data, size), size), size)


def _zlib_chunks(data: Slice, size: int) -> Iterator[bytes]:
    """A zlib stream (RFC 1950) of `size` bytes."""
    decoder = zlib.decompressobj()
    raw = Stream(data)
    inflated = 0
    try:
        while inflated < size and not decoder.eof:
            block = decoder.unconsumed_tail or raw.read(INPUT)
            piece = decoder.decompress(block, min(CHUNK, size - inflated))
            if not piece and not block:
                break
            inflated += len(piece)
            if piece:
                yield piece
    except zlib.error as error:
        raise Unreadable(f"a member of the PyInstaller archive is damaged: {error}") from error
