"""Containers: archives, packages and programs with an appended archive.

The format shows in the first bytes, never in the name. Members are listed one after the other, and
each can be opened while it is listed. Nothing is unpacked to a named file.

Formats: ZIP (also wheels, jars, eggs and PyTorch's .pt2), deb(5), tar, cpio, RPM, gzip (RFC 1952),
zlib (RFC 1950), xz, LZMA, bzip2, Zstandard (RFC 8878), LZ4, conda's two (`.conda` is a ZIP around
`pkg-*.tar.zst`), shell scripts with an appended archive (makeself 2), and PyInstaller's CArchive
(PyInstaller/archive/writers.py, version 6). Others are recognized but not opened.
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

from buildmatrix.facts.trees import decompression, formats
from buildmatrix.facts.trees.archive import (
    MAX_INFLATION,
    BoundedStream,
    BytesSource,
    Slice,
    SliceReader,
)
from buildmatrix.facts.trees.base import RandomAccess, Readable, Unreadable
from buildmatrix.facts.trees.decompression import (
    ENDLESS,
    ForwardSource,
    Inflater,
    StreamDecompressor,
    open_zstandard,
)
from buildmatrix.facts.trees.formats import (
    AR_MAGIC,
    GZIP,
    HEAD,
    ZIP_MAGICS,
    Format,
    detect_compression,
    is_tar,
)
from buildmatrix.facts.trees.tar import members as tar_members
from buildmatrix.facts.trees.wheel import WheelTree
from buildmatrix.facts.trees.zip_archive import LARGEST_HELD, Inflated

#: Bytes of a compressed file to decompress for its format: enough for most, and larger steps for
#: others. Blocks of bzip2 have up to 900 kB; the header of gzip has a comment of any length.
PEEKED = 4 << 10
_PEEK_STEPS = (PEEKED, 64 << 10, 1 << 20)
#: Maximum bytes of tables after a program's sections.
MAX_TABLES = 256 << 10

#: Formats with a magic so long that nothing else starts with it.
_LONG_MAGICS = frozenset({"gzip", "xz", "zstd", "bzip2", "lz4"})
#: Start of the archive in a self-extracting script: after the line break that ends the script.
_SCRIPT_ARCHIVE = re.compile(
    rb"\n(?=\x1f\x8b\x08|\xfd7zXZ\x00|BZh[1-9]1AY&SY|\x28\xb5\x2f\xfd|PK\x03\x04)"
)
#: Magics after a program's sections that are not opened; `KAX` and `KAY` are nuitka's.
_APPENDED = re.compile(
    rb"hsqs|sqsh|\xfd7zXZ\x00|KA[XY]\x28\xb5|\x28\xb5\x2f\xfd|BZh[1-9]1AY&SY|7z\xbc\xaf\x27\x1c"
    rb"|Rar!\x1a\x07|\x04\x22\x4d\x18|ustar|07070[12][0-9A-Fa-f]{8}"
)
#: Maximum bytes of such a script's text; makeself's has 20 kB, conda's 60.
_MAX_SCRIPT_TEXT = 1 << 20
#: A dictionary of xz has up to 64 MiB (`xz -9`); the format allows 4 GiB.
_XZ_MEMORY = 128 << 20

#: Compressed bytes that usually decompress to a head.
_PACKED_HEAD = 1 << 10
_AR_HEADER = 60
#: Members of a .deb: debian-binary, control, data, and signatures.
_MAX_DEB_MEMBERS = 16

#: Magic, size of the package, offset and size of its table, Python's version, its library.
_COOKIE = struct.Struct("!8sIIII64s")
_COOKIE_MAGIC = b"MEI\014\013\012\013\016"
#: Size of the entry, offset, compressed and decompressed size, compression flag, kind.
_TOC_ENTRY = struct.Struct("!IIIIBc")
_MAX_TOC = 16 << 20


@dataclass(frozen=True, slots=True)
class ContainerMember:
    """One file in a container. `open` is valid until the next member is requested."""

    #: Name as stored.
    name: str
    size: int
    #: Compressed size; None if it is not compressed separately.
    packed: int | None
    open: Callable[[], AbstractContextManager[RandomAccess]]
    #: Cheaper way to the first `HEAD` bytes; may return fewer.
    beginning: Callable[[], bytes] | None = None

    def head(self) -> bytes:
        """Return the first bytes. Raises OSError."""
        if self.beginning is not None:
            data = self.beginning()
            if len(data) >= min(HEAD, self.size):
                return data
        with self.open() as source:
            return source.read(0, HEAD)


def decompress_head(source: RandomAccess, head: bytes, size: int) -> bytes | None:
    """Return the first `HEAD` decompressed bytes of a compressed file, or all if there are fewer.

    None if they are unavailable: the file is damaged, takes too much memory, or starts with too
    much of nothing. Empty if the file only resembles a compressed one.
    """
    kind = detect_compression(head)
    unknown = None if kind in _LONG_MAGICS else b""
    for length in _PEEK_STEPS[-1:] if kind == "bzip2" else _PEEK_STEPS:
        part = source.read(0, length)
        data = b""
        try:
            stream = _open_stream(Slice(BytesSource(part), 0, len(part)))
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


def detect_appended(
    source: RandomAccess, size: int, sections_end: int, pydata: int | None
) -> Format | None:
    """Detect what follows the sections of an ELF file, which end at `sections_end`.

    `pydata` is the end of the section with PyInstaller's archive, if there is one.
    """
    if pydata is not None and find_cookie(source, pydata) is not None:
        return "pyinstaller"
    if size - sections_end < MAX_TABLES:
        return None
    if find_cookie(source, size) is not None:
        return "pyinstaller"
    if b"PK\x05\x06" in source.read(max(0, size - PEEKED), PEEKED):
        return "zip"
    # Payloads follow at once, except for alignment.
    start = source.read(sections_end, MAX_TABLES)
    return "appended" if _APPENDED.search(start) or GZIP.search(start[:PEEKED]) else None


def find_cookie(source: RandomAccess, end: int) -> int | None:
    """Return the offset of a PyInstaller cookie in the bytes before `end`."""
    start = max(0, end - PEEKED)
    at = source.read(start, end - start).rfind(_COOKIE_MAGIC)
    return start + at if at >= 0 and start + at + _COOKIE.size <= end else None


def members(source: Slice, format: Format, name: str, most: int) -> Iterator[ContainerMember]:
    """Yield the files in the container `source`, called `name`, up to `most` bytes decompressed.

    Raises `Unreadable` for damage and bombs, and OSError.
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
        yield from _stream_members(formats.rpm_payload(source), "", most)
    elif format in ("tar", "cpio", "compressed", "lz4"):
        yield from _stream_members(source, name, most)
    else:
        raise Unreadable(f"a file of the format {format}, which is not opened")


def _zip_members(source: Slice, most: int) -> Iterator[ContainerMember]:
    with WheelTree(source, most) as tree:
        for member in tree.members:
            yield ContainerMember(
                member.path,
                member.size,
                member.compressed,
                partial(tree.open, member.path),
                partial(tree.beginning, member.path, _PACKED_HEAD, HEAD),
            )
            if member.path.startswith("pkg-") and member.path.endswith(".tar.zst"):
                # The package in a .conda is stored uncompressed and belongs to the same format.
                entry, start = tree.place(member.path)
                if entry.compressed == entry.size:
                    inner = Slice(source, start, entry.size)
                    yield from _stream_members(inner, "", most)


# Streams


def _stream_members(source: Slice, name: str, most: int) -> Iterator[ContainerMember]:
    """Yield the files of an archive, compressed or not, or the single compressed file."""
    listed = _archive_lister(source.read(0, min(HEAD, source.size)))
    if listed is not None:
        for inner, data in listed(source):
            yield ContainerMember(inner, data.size, None, partial(_open_stored, data))
        return
    forward = ForwardSource(_decompressed(source, most))
    listed = _archive_lister(forward.read(0, HEAD))
    if listed is None:
        yield _single_member(source, name, most)
        return
    for inner, data in listed(Slice(forward, 0, ENDLESS)):
        yield ContainerMember(inner, data.size, None, partial(_open_forward, data))


def _archive_lister(head: bytes) -> Callable[[Slice], Iterator[tuple[str, Slice]]] | None:
    """Return a lister for the archive that starts with `head`; None for other files."""
    if is_tar(head):
        return _tar_files
    return formats.iter_files if formats.is_cpio(head) else None


def _tar_files(archive: Slice) -> Iterator[tuple[str, Slice]]:
    for member in tar_members(archive):
        if member.data is not None:
            yield member.name, member.data
        elif member.kind == "file":
            raise Unreadable(f"{member.name[:200]!r} is a sparse file, which is not read")


def _open_stored(data: Slice) -> AbstractContextManager[RandomAccess]:
    return nullcontext(data)


def _open_forward(data: Slice) -> AbstractContextManager[RandomAccess]:
    return Inflated(SliceReader(data), data.size)


def _single_member(source: Slice, name: str, most: int) -> ContainerMember:
    """Create the member for a compressed file. Its size is only known after decompression."""
    size = sum(map(len, _decompressed(source, most)))
    stem = name.rpartition("/")[2].rpartition(".")[0]
    return ContainerMember(
        stem or name, size, source.size, lambda: Inflated(_decompressed(source, most), size)
    )


#: Errors of decompressors for invalid input.
_DECOMPRESSION_ERRORS = (zlib.error, lzma.LZMAError, EOFError, OSError, ValueError)


def _is_damage(error: Exception) -> bool:
    return isinstance(error, _DECOMPRESSION_ERRORS) or decompression.is_zstd_damage(error)


def _decompressed(source: Slice, most: int) -> BoundedStream:
    return BoundedStream(_open_stream(source), most, f"{most} bytes", _DECOMPRESSION_ERRORS)


def _open_stream(source: Slice) -> Readable:
    kind = detect_compression(source.read(0, HEAD))
    raw = SliceReader(source)
    if kind == "gzip":
        return StreamDecompressor(raw, Inflater)
    if kind == "zlib":
        return StreamDecompressor(raw, partial(Inflater, zlib.MAX_WBITS))
    if kind in ("xz", "lzma"):
        format = lzma.FORMAT_XZ if kind == "xz" else lzma.FORMAT_ALONE
        return StreamDecompressor(raw, lambda: lzma.LZMADecompressor(format, memlimit=_XZ_MEMORY))
    if kind == "lz4":
        return decompression.FrameDecompressor(raw)
    if kind == "bzip2":
        return StreamDecompressor(raw, bz2.BZ2Decompressor)
    if kind != "zstd":
        raise Unreadable("neither an archive nor a compressed file")
    return open_zstandard(raw)


# Packages and scripts


def _deb_data(source: Slice) -> Slice:
    """Return the archive with the files of a Debian package (deb(5))."""
    at = len(AR_MAGIC)
    for _ in range(_MAX_DEB_MEMBERS):
        head = source.read(at, _AR_HEADER)
        digits = head[48:58].strip()
        if len(head) < _AR_HEADER or not digits.isdigit():
            break
        start, length = at + _AR_HEADER, int(digits)
        if head.startswith(b"data.tar") and start + length <= source.size:
            return Slice(source, start, length)
        at = start + length + length % 2
    raise Unreadable("no readable Debian package: there is no data.tar in it")


def _script_members(source: Slice, name: str, most: int) -> Iterator[ContainerMember]:
    match = _SCRIPT_ARCHIVE.search(source.read(0, _MAX_SCRIPT_TEXT))
    if match is None:
        raise Unreadable("a script followed by data of an unknown format")
    archive = Slice(source, match.end(), source.size - match.end())
    if archive.read(0, 4) == ZIP_MAGICS[0]:
        yield from _zip_members(source, most)
    else:
        yield from _stream_members(archive, name, most)


# PyInstaller


def _pyinstaller_members(source: Slice) -> Iterator[ContainerMember]:
    """Yield the files in the archive that PyInstaller appends to its program."""
    at = _last_cookie(source)
    mark, length, toc_at, toc_length, _, _ = _COOKIE.unpack(source.read(at, _COOKIE.size))
    start = at + _COOKIE.size - length
    if mark != _COOKIE_MAGIC or start < 0 or toc_length > _MAX_TOC or toc_at > length:
        raise Unreadable("no readable PyInstaller archive: its cookie contradicts the file")
    toc = source.read(start + toc_at, toc_length)
    at_entry = 0
    while at_entry + _TOC_ENTRY.size <= len(toc):
        size, offset, packed, plain, deflated, _ = _TOC_ENTRY.unpack_from(toc, at_entry)
        if size <= _TOC_ENTRY.size or offset + packed > length:
            raise Unreadable("no readable PyInstaller archive: its table is damaged")
        name = toc[at_entry + _TOC_ENTRY.size : at_entry + size].rstrip(b"\0")
        at_entry += size
        if plain > packed * MAX_INFLATION + LARGEST_HELD:
            raise Unreadable("a member of the PyInstaller archive is a bomb")
        data = Slice(source, start + offset, packed)
        opened = partial(_open_deflated, data, plain) if deflated else partial(_open_stored, data)
        yield ContainerMember(name.decode("utf-8", "backslashreplace"), plain, packed, opened)


def _last_cookie(source: Slice) -> int:
    """Return the offset of the cookie: at the end, or before the tables of an ELF file."""
    end = source.size
    while end > max(0, source.size - MAX_TABLES):
        at = find_cookie(source, end)
        if at is not None:
            return at
        end -= PEEKED - _COOKIE.size
    raise Unreadable("no readable PyInstaller archive: its cookie is missing")


def _open_deflated(data: Slice, size: int) -> AbstractContextManager[RandomAccess]:
    stream = StreamDecompressor(SliceReader(data), partial(Inflater, zlib.MAX_WBITS))
    return Inflated(BoundedStream(stream, size, f"{size} bytes", _DECOMPRESSION_ERRORS), size)
