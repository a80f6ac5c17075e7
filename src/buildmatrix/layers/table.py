"""Tables of contents of layers: where each file lies, so that a few ranges tell what it is.

Formats: eStargz (https://github.com/containerd/stargz-snapshotter/blob/main/docs/estargz.md) and
zstd:chunked (containers/storage, pkg/chunked). Both cut a layer into parts that inflate by
themselves, and both give the digest of their table in the manifest's annotations.

What is checked: the table by the manifest, and every part that is read by the table. What is not:
that the layer holds what its table says. An engine that unpacks the layer sees what is in it.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from buildmatrix.trees import zstd
from buildmatrix.trees.archive import HeldBytes, Slice
from buildmatrix.trees.base import Unreadable
from buildmatrix.trees.forward import GZIP_WINDOW
from buildmatrix.trees.tar import members

#: Annotations of a layer's descriptor.
STARGZ_DIGEST = "containerd.io/snapshot/stargz/toc.digest"
ZSTD_DIGEST = "io.github.containers.zstd-chunked.manifest-checksum"
ZSTD_POSITION = "io.github.containers.zstd-chunked.manifest-position"
#: What containers/image called them up to 5.22 (skopeo 1.9, of Debian 12).
_OLDER = "io.containers."

#: Bytes of a table; that of an image of 100,000 files has 50 MB.
LARGEST_TABLE = 256 << 20
MOST_ENTRIES = 1_000_000
#: Bytes of a part, packed or not: who writes them uses 4 MiB and less. A layer with a larger one is
#: read whole.
LARGEST_PART = 16 << 20
#: Members of gzip or frames of Zstandard in a part or a table; who writes them makes a few.
_MOST_MEMBERS = 1000
#: Bytes that a decompressor gets at once: it copies those behind a member.
_PIECE = 64 << 10

_STARGZ_NAME = "stargz.index.json"
_FOOTER = 51
_FOOTER_MARK = re.compile(rb"SG\x16\x00([0-9a-f]{16})STARGZ")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})\Z")

#: Reads a part of the layer's bytes: offset, length.
ReadRange = Callable[[int, int], bytes]


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    """One entry of a table, in the words of both formats."""

    name: str
    type: str
    size: int = 0
    link_name: str = ""
    digest: str = ""
    offset: int = 0
    end_offset: int = 0
    inner_offset: int = 0
    chunk_offset: int = 0
    chunk_size: int = 0
    chunk_digest: str = ""
    chunk_type: str = ""


class _Table(msgspec.Struct, frozen=True):
    version: int
    #: Go writes null for none.
    entries: list[_Entry] | None


_TABLE = msgspec.json.Decoder(_Table)


@dataclass(frozen=True, slots=True)
class PackedRange:
    """Bytes of one file, and where in the layer they are packed."""

    start: int
    size: int
    #: In the layer; `inner` bytes of what is inflated there belong to others.
    offset: int
    end: int
    inner: int
    digest: str
    is_zeros: bool = False


@dataclass(slots=True)
class TableFile:
    """One entry of a layer, as the table has it."""

    kind: str
    name: str
    target: str = ""
    size: int = 0
    sha256: bytes = b""
    parts: list[PackedRange] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LayerTable:
    """The table of contents of a layer."""

    digest: str
    files: tuple[TableFile, ...]
    is_zstd: bool
    #: Bytes of the layer that were read for it.
    bytes_read: int


def table_digest(annotations: Mapping[str, str]) -> str:
    """The digest of the table that a layer has; empty for none."""
    return annotations.get(STARGZ_DIGEST) or _zstd_annotation(annotations, ZSTD_DIGEST)


def _zstd_annotation(annotations: Mapping[str, str], name: str) -> str:
    older = name.replace("io.github.containers.", _OLDER)
    return annotations.get(name) or annotations.get(older) or ""


def read_table(annotations: Mapping[str, str], size: int, read: ReadRange) -> LayerTable:
    """The table of a layer of `size` bytes. Raises `Unreadable`, and what `read` raises."""
    digest = table_digest(annotations)
    if STARGZ_DIGEST in annotations:
        data, end, taken = _stargz(digest, size, read)
    else:
        data, end, taken = _zstd(annotations, size, read)
    # Before it is decoded: each entry takes more memory than its bytes.
    if data.count(b"{") > 2 * MOST_ENTRIES:
        raise Unreadable(f"its table of contents has more than {MOST_ENTRIES} entries")
    try:
        entries = _TABLE.decode(data).entries or []
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise Unreadable(f"its table of contents cannot be read: {error}") from error
    if len(entries) > MOST_ENTRIES:
        raise Unreadable(f"its table of contents has more than {MOST_ENTRIES} entries")
    files = list(_files(entries, end))
    if STARGZ_DIGEST in annotations:
        # The table is the last file of the layer, and does not name itself.
        sha256 = hashlib.sha256(data).digest()
        files.append(TableFile("file", _STARGZ_NAME, size=len(data), sha256=sha256))
    return LayerTable(digest, tuple(files), STARGZ_DIGEST not in annotations, taken)


def _stargz(digest: str, size: int, read: ReadRange) -> tuple[bytes, int, int]:
    """The table, where the parts before it end, and the bytes that were read."""
    match = _FOOTER_MARK.search(read(max(0, size - _FOOTER), min(size, _FOOTER)))
    if match is None:
        raise Unreadable("it has no footer of eStargz, which its annotations promise")
    start = int(match[1], 16)
    if not 0 <= start < size - _FOOTER or size - start > LARGEST_TABLE:
        raise Unreadable("its table of contents lies outside of it")
    packed = read(start, size - _FOOTER - start)
    plain = _gunzip(packed, LARGEST_TABLE)
    member = next(members(Slice(HeldBytes(plain), 0, len(plain))), None)
    if member is None or member.name != _STARGZ_NAME or member.data is None:
        raise Unreadable("its table of contents is another file")
    data = member.data.read(0, member.data.size)
    if len(data) != member.data.size:
        raise Unreadable("its table of contents is cut short")
    _check(data, digest, "its table of contents")
    return data, start, len(packed) + _FOOTER


def _zstd(annotations: Mapping[str, str], size: int, read: ReadRange) -> tuple[bytes, int, int]:
    numbers = _zstd_annotation(annotations, ZSTD_POSITION).split(":")
    if len(numbers) != 4 or not all(number.isascii() and number.isdigit() for number in numbers):
        raise Unreadable("its annotations do not say where its table of contents lies")
    start, length, inflated, kind = (int(number[:18]) for number in numbers)
    if start + length > size or max(length, inflated) > LARGEST_TABLE or kind != 1:
        raise Unreadable("its table of contents lies outside of it")
    packed = read(start, length)
    _check(packed, table_digest(annotations), "its table of contents")
    data = _unzstd(packed, inflated)
    if len(data) != inflated:
        raise Unreadable("its table of contents is cut short")
    return data, start, length


def _files(entries: Iterable[_Entry], end: int) -> Iterator[TableFile]:
    """The files of the table with their parts. Raises `Unreadable` for one that contradicts itself.

    `end` is where the last part ends at most.
    """
    entries = list(entries)
    bounds = sorted({end, *(entry.offset for entry in entries), *(e.end_offset for e in entries)})
    files: list[TableFile] = []
    by_name: dict[str, TableFile] = {}
    kinds = {"reg": "file", "dir": "folder", "symlink": "symlink", "hardlink": "hardlink"}
    kinds |= {"char": "device", "block": "device"}
    for entry in entries:
        if entry.type == "chunk":
            file = by_name.get(entry.name)
            if file is None:
                raise Unreadable("its table of contents has a part of no file")
        else:
            kind = kinds.get(entry.type, "other")
            file = TableFile(
                kind,
                entry.name,
                entry.link_name,
                entry.size if kind == "file" else 0,
                _sha256(kind, entry),
            )
            files.append(file)
            by_name[entry.name] = file
            if kind != "file" or entry.size == 0:
                continue
        at = bisect_right(bounds, entry.offset)
        stop = bounds[at] if at < len(bounds) else end
        length = entry.chunk_size or file.size - entry.chunk_offset
        digest = entry.chunk_digest or (entry.digest if length == file.size else "")
        is_zeros = entry.chunk_type == "zeros"
        file.parts.append(
            PackedRange(
                entry.chunk_offset, length, entry.offset, stop, entry.inner_offset, digest, is_zeros
            )
        )
    for file in files:
        _check_parts(file)
    yield from files


def _sha256(kind: str, entry: _Entry) -> bytes:
    """The digest of a file; none is told of an empty one."""
    match = _DIGEST.match(entry.digest)
    if kind == "file" and entry.size == 0:
        return hashlib.sha256().digest()
    return bytes.fromhex(match[1]) if match else b""


def _check_parts(file: TableFile) -> None:
    if file.kind != "file":
        return
    file.parts.sort(key=lambda part: part.start)
    at = 0
    for part in file.parts:
        lies = part.start != at or part.size <= 0 or part.inner < 0 or part.offset < 0
        if lies or (not part.is_zeros and not _DIGEST.match(part.digest)):
            raise Unreadable(f"its table of contents contradicts itself about {file.name!r}")
        at += part.size
    if at != file.size:
        raise Unreadable(f"its table of contents contradicts itself about {file.name!r}")


def unpacked(part: PackedRange, packed: bytes, *, is_zstd: bool) -> bytes:
    """The bytes of a part, of which `packed` are the bytes of the layer. Raises `Unreadable`."""
    most = part.inner + part.size
    if most > LARGEST_PART:
        raise Unreadable("its table of contents has parts too large to be read alone")
    if part.is_zeros:
        return bytes(part.size)
    data = (_unzstd if is_zstd else _gunzip)(packed, most)[part.inner : most]
    _check(data, part.digest, "a part of it")
    return data


def _check(data: bytes, digest: str, subject: str) -> None:
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
        raise Unreadable(f"{subject} has another digest than is said of it")


def _gunzip(data: bytes, most: int) -> bytes:
    """What gzip members inflate to, `most` bytes at most: a part may be several."""
    try:
        return _inflated(data, most, lambda: zlib.decompressobj(wbits=GZIP_WINDOW))
    except zlib.error as error:
        raise Unreadable(f"its compressed bytes are damaged: {error}") from error


def _unzstd(data: bytes, most: int) -> bytes:
    begin = zstd.decompressor()
    if begin is None:
        raise Unreadable(zstd.MISSING)
    try:
        return _inflated(data, most, begin)
    except Exception as error:
        if zstd.is_damage(error):
            raise Unreadable(f"its compressed bytes are damaged: {error}") from error
        raise


def _inflated(data: bytes, most: int, begin: Callable[[], Any]) -> bytes:
    """What members that lie behind one another inflate to, `most` bytes at most."""
    plain = bytearray()
    place = members = 0
    while place < len(data) and len(plain) < most:
        members += 1
        if members > _MOST_MEMBERS:
            raise Unreadable(f"its compressed bytes are in more than {_MOST_MEMBERS} members")
        member = begin()
        while place < len(data) and len(plain) < most and not member.eof:
            piece = data[place : place + _PIECE]
            place += len(piece)
            plain += member.decompress(piece, most - len(plain))
        if member.eof:
            place -= len(member.unused_data)
    return bytes(plain)
