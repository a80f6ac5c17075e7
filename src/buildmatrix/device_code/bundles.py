"""Clang offload bundles, plain and compressed, which carry HIP, SYCL and OpenMP code.

Source: clang/docs/ClangOffloadBundler.rst; for version 3 of the compressed header, LLVM's pull
request 130284. Little-endian.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from struct import Struct

from buildmatrix.device_code import codeobject
from buildmatrix.device_code.entries import CodeContainer, CodeEntry
from buildmatrix.elf import layout as abi
from buildmatrix.elf.source import ByteSource
from buildmatrix.trees import zstd

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGIC = b"CCOB"

#: Offset, size, length of the identifier.
_ROW = Struct("<QQQ")
#: Header size and layout behind magic and version, by version: method, [size of the file,]
#: decompressed size. A hash of 8 bytes follows.
_COMPRESSED = {1: (20, Struct("<HI")), 2: (24, Struct("<HII")), 3: (32, Struct("<HQQ"))}
_METHODS = {0: "zlib", 1: "zstd"}

#: Bytes read for the table of entries: 50 architectures take 4 KiB. The second size is for tables
#: that do not fit.
_TABLES = (4 << 10, 16 << 10)
#: Compressed bytes read to reach the table. The first block of a zstd frame has at most 128 KiB.
_HEAD = 160 << 10
#: Bytes of an image that identify its format.
_IMAGE_HEAD = 512
_MOST_ENTRIES = 512
_LONGEST_ID = 512

_TARGET = re.compile(
    r"-(?P<arch>gfx[0-9a-z]+(?:-[0-9a-z]+)*(?::[a-z]+[+-])*|sm_[0-9]+[af]?|amdgcnspirv)$"
)


#: Images begin at pages, and the table of entries comes before them.
_FIRST_IMAGE = 16 << 10


@dataclass(frozen=True, slots=True)
class _BundleEntry:
    offset: int
    size: int
    target: str


def parse_target(identifier: str) -> tuple[str, str, str | None] | None:
    """Parse a bundle identifier into format, kind and architecture; None for host code.

    `hipv4-amdgcn-amd-amdhsa--gfx942:xnack-`, `sycl-spir64_gen-unknown-unknown`, `openmp-spir64`.
    """
    model, _, triple = identifier.partition("-")
    if model == "host":
        return None
    container = "hip-bundle" if model in ("hip", "hipv4") else "offload-bundle"
    machine = triple.split("-", 1)[0]
    match = _TARGET.search(identifier)
    arch = match["arch"] if match else machine or None
    kinds = {"amdgcn": "amdgcn", "nvptx64": "sass", "spir64": "spirv", "spirv64": "spirv"}
    return container, kinds.get(machine, "unknown"), arch


def read(source: ByteSource, offset: int, limit: int) -> CodeContainer | None:
    """Read the plain bundle at `offset`; `limit` is the end of the section or region holding it."""
    try:
        rows = _parse_rows(lambda size: source.read(offset, min(size, limit - offset)))
    except ValueError:
        return None
    if any(row.offset + row.size > limit - offset for row in rows):
        return None
    end = max((row.offset + row.size for row in rows), default=0)
    entries = tuple(_entries(rows, offset))
    return CodeContainer(entries, offset + max(end, len(MAGIC)))


def read_compressed(
    source: ByteSource, offset: int, limit: int, *, opened: bool = True
) -> CodeContainer | None:
    """Read the compressed bundle at `offset`; targets share its bytes on disk in proportion.

    A bundle that is not to be opened is one entry without an architecture.
    """
    head = source.read(offset, min(32, limit - offset))
    version = int.from_bytes(head[4:6], "little")
    if not head.startswith(COMPRESSED_MAGIC) or version not in _COMPRESSED:
        return None
    header_size, fields = _COMPRESSED[version]
    if len(head) < header_size:
        return None
    method, *sizes = fields.unpack_from(head, 6)
    if method not in _METHODS or sizes[-1] == 0:
        return None
    # Version 1 has no total size: a single bundle fills the section.
    size = sizes[0] if version > 1 else limit - offset
    if not header_size < size <= limit - offset:
        return None
    bundle = CodeEntry("hip-ccob", "unknown", None, offset, size, compressed=True)
    name = _METHODS[method]
    if not opened:
        note = f"compressed with {name}, and not opened: the file has too many bundles"
        return CodeContainer((replace(bundle, note=note),), offset + size)
    packed = source.read(offset + header_size, min(_HEAD, size - header_size))
    unpack = zstd.head if name == "zstd" else _inflate
    try:
        rows = _parse_rows(lambda most: unpack(packed, most))
    except (ValueError, zlib.error) as problem:
        note = f"compressed with {name}, and not readable: {problem}"
        return CodeContainer((replace(bundle, note=note),), offset + size)
    return CodeContainer(tuple(_shares(rows, bundle)), offset + size)


def read_first_image(source: ByteSource, entry: CodeEntry, most: int, limit: int) -> bytes:
    """Return the first bytes of the first device image in an entry's compressed bundle.

    Reads at most `most` bytes, and examines `limit` of the image.

    Raises:
        ValueError, zlib.error: the bytes cannot be decompressed.
    """
    head = source.read(entry.offset, 32 + most)
    version = int.from_bytes(head[4:6], "little")
    if not head.startswith(COMPRESSED_MAGIC) or version not in _COMPRESSED:
        return b""
    packed = head[_COMPRESSED[version][0] :]
    is_zstd = packed.startswith(zstd.MAGIC)
    start = (zstd.head if is_zstd else _inflate)(packed, _FIRST_IMAGE + limit)
    return start[max(0, start.find(abi.MAGIC)) :][:limit]


def read_section(source: ByteSource, offset: int, size: int, name: str) -> CodeEntry | None:
    """Read the image in a section `__CLANG_OFFLOAD_BUNDLE__<target>`; None for host code."""
    meaning = parse_target(name.removeprefix(MAGIC.decode()))
    if meaning is None:
        return None
    container, kind, arch = meaning
    packed = source.read(offset, min(size, _HEAD))
    start, compressed = packed[:_IMAGE_HEAD], packed.startswith(zstd.MAGIC)
    if compressed:
        try:
            start = zstd.head(packed, _IMAGE_HEAD)
        except ValueError as problem:
            note = f"compressed with zstd, and not readable: {problem}"
            return CodeEntry(container, kind, arch, offset, size, compressed=True, note=note)
    return CodeEntry(
        container, _detect_image_kind(start) or kind, arch, offset, size, compressed=compressed
    )


def _detect_image_kind(start: bytes) -> str | None:
    """Return the kind of an image by its first bytes; None if they do not show it.

    Code for several Intel GPUs is an ar(5) archive of objects behind a padding member.
    """
    if start.startswith(b"!<arch>\n"):
        start = start[max(0, start.find(abi.MAGIC)) :]
    if start.startswith(abi.MAGIC):
        return codeobject.KINDS.get(int.from_bytes(start[18:20], "little"))
    return {b"\x03\x02\x23\x07": "spirv", b"BC\xc0\xde": "bitcode"}.get(start[:4])


def _inflate(packed: bytes, most: int) -> bytes:
    return zlib.decompressobj().decompress(packed, most)


def _parse_rows(head: Callable[[int], bytes]) -> list[_BundleEntry]:
    """Parse the table of entries of a bundle; `head` returns its first bytes.

    Raises:
        ValueError: there is no bundle, or its table is damaged.
    """
    for most in _TABLES:
        data = head(most)
        at = len(MAGIC) + 8
        count = int.from_bytes(data[len(MAGIC) : at], "little")
        if not data.startswith(MAGIC) or not 0 < count <= _MOST_ENTRIES:
            raise ValueError("there is no offload bundle")
        rows: list[_BundleEntry] = []
        while len(rows) < count and at + _ROW.size <= len(data):
            offset, size, length = _ROW.unpack_from(data, at)
            raw = data[at + _ROW.size : at + _ROW.size + length]
            if length > _LONGEST_ID or not raw.isascii():
                raise ValueError("an entry of the offload bundle makes no sense")
            if len(raw) == length:
                rows.append(_BundleEntry(offset, size, raw.decode()))
            at += _ROW.size + length
        if len(rows) == count:
            return rows
    raise ValueError("the table of the offload bundle is cut short")


def _entries(rows: list[_BundleEntry], base: int) -> Iterator[CodeEntry]:
    for row in rows:
        meaning = parse_target(row.target)
        if meaning is not None and row.size:
            container, kind, arch = meaning
            yield CodeEntry(container, kind, arch, base + row.offset, row.size)


def _shares(rows: list[_BundleEntry], bundle: CodeEntry) -> Iterator[CodeEntry]:
    """Yield one entry per target, with its share of the compressed bytes by decompressed size."""
    entries = list(_entries(rows, 0))
    total = sum(entry.size for entry in entries)
    passed = 0
    for entry in entries:
        start = bundle.size * passed // total
        passed += entry.size
        size = bundle.size * passed // total - start
        yield replace(entry, format=bundle.format, offset=bundle.offset, size=size, compressed=True)
