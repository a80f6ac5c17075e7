"""Files that hold files: archives, packages and programs with an archive behind them.

What a file is shows in its first bytes, never in its name. Its members are listed one after the
other, and each can be opened while it is listed. Nothing is unpacked to a named file.

Formats: ZIP (wheels, jars, eggs and PyTorch's .pt2 are such), deb(5), POSIX tar, gzip (RFC 1952),
xz, bzip2, Zstandard (RFC 8878), conda's two (`.conda` is a ZIP around `pkg-*.tar.zst`), shell
scripts with an archive behind them (makeself 2), and PyInstaller's CArchive
(PyInstaller/archive/writers.py, version 6).
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

from buildmatrix.trees import zstd
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
    "zip", "deb", "tar", "compressed", "script", "pyinstaller", "rpm", "7z", "squashfs"
]
#: First bytes that `format_of` wants to see: the magic of tar stands at 257.
HEAD = 512
#: Bytes of a compressed file that say what it holds, and inflated ones that are looked at. Blocks
#: of bzip2 have up to 900 kB and come whole.
PEEKED = 4 << 10
PEEKED_BZIP2 = 1 << 20
#: A script with fewer bytes has no archive behind it that matters.
LARGEST_SCRIPT = 1 << 20
#: What a program's sections leave at its end: tables fit into less.
LARGEST_TABLES = 256 << 10

_BZIP2 = re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")
_GZIP = b"\x1f\x8b\x08"
_XZ = b"\xfd7zXZ\x00"
_AR = b"!<arch>\n"
_DEB = _AR + b"debian-binary"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_TAR = (257, b"ustar")
#: What is known and not opened.
_CLOSED: tuple[tuple[bytes, Format], ...] = (
    (b"\xed\xab\xee\xdb", "rpm"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"hsqs", "squashfs"),
)
#: Where the archive of a self-extracting script begins: behind the line break that ends it.
_BEHIND_SCRIPT = re.compile(
    rb"\n(?=\x1f\x8b\x08|\xfd7zXZ\x00|BZh[1-9]1AY&SY|\x28\xb5\x2f\xfd|PK\x03\x04)"
)
#: Bytes that the text of such a script has at most; makeself's has 20 kB, conda's 60.
_LONGEST_SCRIPT = 1 << 20
#: A dictionary of xz is up to 64 MiB (`xz -9`); the format allows 4 GiB.
_XZ_MEMORY = 128 << 20

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


def format_of(head: bytes, size: int) -> Format | None:
    """The format of a file of `size` bytes by its first `HEAD` bytes; None for no container."""
    if head.startswith(_ZIP):
        return "zip"
    if head.startswith(_DEB):
        return "deb"
    if compression(head) is not None:
        return "compressed"
    if head.startswith(_TAR[1], _TAR[0]):
        return "tar"
    if head.startswith(b"#!"):
        _, _, rest = head.partition(b"\n")
        if rest.startswith(_ZIP[0]):
            return "zip"
        return "script" if size >= LARGEST_SCRIPT else None
    return next((format for magic, format in _CLOSED if head.startswith(magic)), None)


def compression(head: bytes) -> str | None:
    """How a stream is compressed, by its first bytes."""
    if head.startswith(_GZIP):
        return "gzip"
    if head.startswith(_XZ):
        return "xz"
    if head.startswith(zstd.MAGIC):
        return "zstd"
    return "bzip2" if _BZIP2.match(head) else None


def is_tar(head: bytes) -> bool:
    """Whether the first `HEAD` bytes of a file are those of a tar archive."""
    return head.startswith(_TAR[1], _TAR[0])


def peek(source: RandomAccess, head: bytes) -> bytes:
    """The first `HEAD` bytes that a compressed file holds; fewer where it is damaged or short."""
    length = PEEKED_BZIP2 if compression(head) == "bzip2" else PEEKED
    part = source.read(0, length)
    data = b""
    try:
        stream = _stream(Slice(HeldBytes(part), 0, len(part)))
        while len(data) < HEAD and (piece := stream.read(HEAD - len(data))):
            data += piece
    except Exception as error:
        if not _is_damage(error):
            raise
    return data


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
    return "squashfs" if re.search(rb"hsqs|\xfd7zXZ\x00|KA[XY]\x28\xb5", start) else None


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
    elif format in ("tar", "compressed"):
        yield from _stream_members(source, name, most)
    else:
        raise Unreadable(f"a {format} archive, which is not opened")


def _zip_members(source: Slice, most: int) -> Iterator[Inner]:
    with WheelTree(source, most) as tree:
        for member in tree.members:
            yield Inner(
                member.path, member.size, member.compressed, partial(tree.open, member.path)
            )
            if member.path.startswith("pkg-") and member.path.endswith(".tar.zst"):
                # The package in a .conda is stored, and is one format with the ZIP around it.
                entry, start = tree.place(member.path)
                if entry.compressed == entry.size:
                    inner = Slice(source, start, entry.size)
                    yield from _stream_members(inner, "", most)


# Streams


def _stream_members(source: Slice, name: str, most: int) -> Iterator[Inner]:
    """The files of a tar archive, compressed or not, or the one file that is compressed."""
    if is_tar(source.read(0, HEAD)):
        yield from _tar_members(source)
        return
    forward = ForwardSource(_inflated(source, most))
    if not is_tar(forward.read(0, HEAD)):
        yield _single(source, name, most)
        return
    yield from _tar_members(Slice(forward, 0, ENDLESS), passes=True)


def _tar_members(archive: Slice, *, passes: bool = False) -> Iterator[Inner]:
    """The files of a tar archive; one that `passes` can be read once."""
    for member in tar_members(archive):
        if member.data is not None:
            opened = partial(_passing if passes else _stored, member.data, member.data.size)
            yield Inner(member.name, member.data.size, None, opened)
        elif member.kind == "file":
            raise Unreadable(f"{member.name[:200]!r} is a sparse file, which is not read")


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
    if kind == "xz":
        return Unpacking(raw, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY))
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
