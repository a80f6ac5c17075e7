"""Fat binaries: CUDA's, Clang offload bundles (HIP, SYCL, OpenMP), and LLVM's OffloadBinary."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from struct import Struct

from buildmatrix.facts.binaries import codeobject
from buildmatrix.facts.elf import layout as abi
from buildmatrix.facts.elf.model import CodeContainer, DeviceCode
from buildmatrix.facts.trees import decompression
from buildmatrix.facts.trees.base import ByteSource

# CUDA fat binaries, as nvcc and clang put them into `.nv_fatbin` and `__nv_relfatbin`.
#
# NVIDIA does not document the format. The layout was read off real wheels and agrees with three
# independent readers: n-eiling/cuda-fatbin-decompression, jiegec/fatbinary and
# VivekPanyam/cudaparsers. A container is a header of 16 bytes and entries back to back. Each entry
# has a header of 64 bytes or more with kind and architecture, so nothing has to be decompressed.
# Little-endian.


FATBIN_MAGIC = b"\x50\xed\x55\xba"

#: magic, version, header size, size of all entries.
_FATBIN_CONTAINER = Struct("<4sHHQ")
#: kind, version, header size, padded payload size, compressed size, options offset, minor, major,
#: architecture, name offset, name length, flags.
_FATBIN_ENTRY = Struct("<HHIQIIHHIIIQ")

#: Offset from the start of the header, length.
_TEXT_PLACE = Struct("<II")

#: Bytes read of an entry's header.
FATBIN_HEADER = _FATBIN_ENTRY.size

_FATBIN_KINDS = {1: "ptx", 2: "sass", 8: "lto-ir"}
#: Entry of `nvcc --concat` (13.5): the payload is those of several entries, compressed as one.
_CONCATENATED = 0x100
#: An LZ4 block, a Zstandard frame (CUDA 12.8 and later).
_LZ4 = 0x2000
_ZSTD = 0x8000
_COMPRESSED_PAYLOAD = _LZ4 | _ZSTD
_ARCH_SPECIFIC = 0x100000
_FAMILY = 0x200000

#: Includes the name and the options of ptxas; 128 is the largest seen.
_LONGEST_HEADER = 1 << 16
_LARGEST_ARCH = 9999
#: Entries of one container; real ones have one per architecture and module.
_MOST_FATBIN_ENTRIES = 1 << 14


def read_fatbin(source: ByteSource, offset: int, limit: int) -> CodeContainer | None:
    """Read the container at `offset`; `limit` is the end of the section or region holding it."""
    opened = open_fatbin(source, offset, limit)
    if opened is None:
        return None
    entries, end = tuple(opened.entries), opened.end
    # nvcc writes an empty container before those that hold only PTX.
    is_empty = not entries and end == opened.start
    # The magic number alone proves nothing: constants of a parser look like it.
    if not is_empty and all(entry.kind == "unknown" for entry in entries):
        return None
    return CodeContainer(entries, end)


@dataclass(frozen=True, slots=True)
class OpenedFatbin:
    """A container whose entries are not read yet."""

    #: Read on demand: `HEADER` bytes where the previous entry ends.
    entries: Iterator[DeviceCode]
    start: int
    end: int


def open_fatbin(source: ByteSource, offset: int, limit: int) -> OpenedFatbin | None:
    """Read only the header of the container at `offset`."""
    head = source.read(offset, min(_FATBIN_CONTAINER.size, limit - offset))
    if len(head) < _FATBIN_CONTAINER.size:
        return None
    magic, version, header_size, size = _FATBIN_CONTAINER.unpack(head)
    if (
        magic != FATBIN_MAGIC
        or version == 0
        or not _FATBIN_CONTAINER.size <= header_size <= _LONGEST_HEADER
    ):
        return None
    start = offset + header_size
    end = start + size
    if start > limit:
        return None
    stop = min(end, limit)
    return OpenedFatbin(_read_entries(source, start, stop, cut=end > limit), start, stop)


def find_header_end(source: ByteSource, at: int) -> int:
    """Return the end of what is read of the header at `at`."""
    raw = source.read(at, _FATBIN_ENTRY.size)
    kind, _, size = _FATBIN_ENTRY.unpack(raw)[:3] if len(raw) == _FATBIN_ENTRY.size else (0, 0, 0)
    is_long = kind == _CONCATENATED and size <= _LONGEST_HEADER
    return at + (size if is_long else _FATBIN_ENTRY.size)


def _read_entries(source: ByteSource, at: int, end: int, *, cut: bool) -> Iterator[DeviceCode]:
    count = 0
    while at + _FATBIN_ENTRY.size <= end:
        if count == _MOST_FATBIN_ENTRIES:
            yield _unreadable(
                at, end, f"the fat binary has more than {_MOST_FATBIN_ENTRIES} entries"
            )
            return
        count += 1
        raw = source.read(at, _FATBIN_ENTRY.size)
        if len(raw) < _FATBIN_ENTRY.size:
            break
        kind, _, header_size, size, *_, flags = _FATBIN_ENTRY.unpack(raw)
        if (
            not _FATBIN_ENTRY.size <= header_size <= _LONGEST_HEADER
            or at + header_size + size > end
        ):
            yield _unreadable(at, end, "an entry header of the fat binary makes no sense")
            return
        heads = [raw]
        if kind == _CONCATENATED:
            heads = _split_headers(source.read(at, header_size)) or heads
        compressed = int(bool(flags & _COMPRESSED_PAYLOAD))
        start = 0
        for number, head in enumerate(heads, 1):
            end_of_share = (header_size + size) * number // len(heads)
            yield _parse_entry(head, at + start, end_of_share - start, compressed)
            start = end_of_share
        at += header_size + size
    if cut:
        yield _unreadable(at, end, "the fat binary extends beyond the end of its section")


def _parse_entry(head: bytes, at: int, size: int, compressed: int) -> DeviceCode:
    kind, _, _, _, _, _, minor, major, arch, _, _, flags = _FATBIN_ENTRY.unpack_from(head)
    name = _FATBIN_KINDS.get(kind, "unknown")
    architecture = _decode_architecture(name, arch, flags)
    note = _note(kind, name, arch)
    # For machine code, the two numbers are the version of its own format.
    language = f"{major}.{minor}" if name == "ptx" and major else None
    return DeviceCode(
        "nv-fatbin", name, architecture, 1, size, at, None, note, compressed, language
    )


def _split_headers(header: bytes) -> list[bytes]:
    """Return the headers in that of a concatenated entry; none if they do not fill it exactly.

    Their number and size come first. A name and options follow each header of 64 bytes, both
    padded to 8 bytes; the place of the payload stands where other entries have the header's size.
    """
    count = int.from_bytes(header[64:68], "little")
    heads: list[bytes] = []
    at = 72
    while len(heads) < count and at + 64 <= len(header):
        head = header[at:]
        _, _, _, _, _, options, _, _, _, name, name_size, _ = _FATBIN_ENTRY.unpack_from(head)
        heads.append(head[:64])
        place, length = (name, name_size) if name else (0, 0)
        if options:
            place, length = _TEXT_PLACE.unpack(head[options : options + 8].ljust(8, b"\0"))
        at += (place + length) // 8 * 8 + 8 if place else 64
    return heads if len(heads) == count and at == len(header) else []


def read_payload(
    source: ByteSource, entry: DeviceCode, most: int, limit: int
) -> tuple[bytes, bool]:
    """Return the first `limit` bytes of an entry, decompressed, and True if that is all.

    Reads at most `most` bytes. Raises ValueError if they cannot be decompressed.
    Of a concatenated entry, the first part has the payloads of all.
    """
    raw = source.read(entry.offset, min(entry.size, _FATBIN_ENTRY.size + most))
    if len(raw) < _FATBIN_ENTRY.size:
        return b"", False
    kind, _, header_size, size, packed_size, *_, flags = _FATBIN_ENTRY.unpack_from(raw)
    whole = header_size + size
    if kind == _CONCATENATED:
        raw = source.read(entry.offset, min(whole, header_size + most))
    elif kind not in _FATBIN_KINDS:
        return b"", False
    is_read = len(raw) == whole
    data = raw[header_size:]
    if flags & _COMPRESSED_PAYLOAD:
        # Padding follows the compressed bytes.
        data = data[:packed_size] if packed_size else data
        data = (decompression.lz4_head if flags & _LZ4 else decompression.zstd_head)(
            data, limit + 1
        )
    return data[:limit], is_read and len(data) <= limit


def _unreadable(at: int, end: int, why: str) -> DeviceCode:
    return DeviceCode("nv-fatbin", "unknown", None, 1, end - at, at, note=why)


def _note(kind: int, name: str, arch: int) -> str | None:
    if name == "unknown":
        return f"entry kind {kind} is not known"
    return None if 0 < arch <= _LARGEST_ARCH else "an entry names no architecture"


def _decode_architecture(kind: str, number: int, flags: int) -> str | None:
    """Return `sm_90a` for machine code, `compute_90a` for code still to be compiled."""
    if not 0 < number <= _LARGEST_ARCH:
        return None
    suffix = "a" if flags & _ARCH_SPECIFIC else "f" if flags & _FAMILY else ""
    return f"{'sm' if kind == 'sass' else 'compute'}_{number}{suffix}"


# Clang offload bundles, plain and compressed, which carry HIP, SYCL and OpenMP code.
#
# Source: clang/docs/ClangOffloadBundler.rst; for version 3 of the compressed header, LLVM's pull
# request 130284. Little-endian.


BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_BUNDLE_MAGIC = b"CCOB"

#: Offset, size, length of the identifier.
_BUNDLE_ROW = Struct("<QQQ")
#: Header size and layout behind magic and version, by version: method, [size of the file,]
#: decompressed size. A hash of 8 bytes follows.
_COMPRESSED_BUNDLE = {1: (20, Struct("<HI")), 2: (24, Struct("<HII")), 3: (32, Struct("<HQQ"))}
_METHODS = {0: "zlib", 1: "zstd"}
_MACHINE_KINDS = {"amdgcn": "amdgcn", "nvptx64": "sass", "spir64": "spirv", "spirv64": "spirv"}

#: Bytes read for the table of entries: 50 architectures take 4 KiB. The second size is for tables
#: that do not fit.
_BUNDLE_TABLES = (4 << 10, 16 << 10)
#: Compressed bytes read to reach the table. The first block of a zstd frame has at most 128 KiB.
_HEAD = 160 << 10
#: Bytes of an image that identify its format.
_IMAGE_HEAD = 512
_MOST_BUNDLE_ENTRIES = 512
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
    return container, _MACHINE_KINDS.get(machine, "unknown"), arch


def read_bundle(source: ByteSource, offset: int, limit: int) -> CodeContainer | None:
    """Read the plain bundle at `offset`; `limit` is the end of the section or region holding it."""
    try:
        rows = _parse_rows(lambda size: source.read(offset, min(size, limit - offset)))
    except ValueError:
        return None
    if any(row.offset + row.size > limit - offset for row in rows):
        return None
    end = max((row.offset + row.size for row in rows), default=0)
    entries = tuple(_list_entries(rows, offset))
    return CodeContainer(entries, offset + max(end, len(BUNDLE_MAGIC)))


def read_compressed_bundle(
    source: ByteSource, offset: int, limit: int, *, opened: bool = True
) -> CodeContainer | None:
    """Read the compressed bundle at `offset`; targets share its bytes on disk in proportion.

    A bundle that is not to be opened is one entry without an architecture.
    """
    head = source.read(offset, min(32, limit - offset))
    version = int.from_bytes(head[4:6], "little")
    if not head.startswith(COMPRESSED_BUNDLE_MAGIC) or version not in _COMPRESSED_BUNDLE:
        return None
    header_size, fields = _COMPRESSED_BUNDLE[version]
    if len(head) < header_size:
        return None
    method, *sizes = fields.unpack_from(head, 6)
    if method not in _METHODS or sizes[-1] == 0:
        return None
    # Version 1 has no total size: a single bundle fills the section.
    size = sizes[0] if version > 1 else limit - offset
    if not header_size < size <= limit - offset:
        return None
    bundle = DeviceCode("hip-ccob", "unknown", None, 1, size, offset, compressed=1)
    name = _METHODS[method]
    if not opened:
        note = f"compressed with {name}, and not opened: the file has too many bundles"
        return CodeContainer((replace(bundle, note=note),), offset + size)
    packed = source.read(offset + header_size, min(_HEAD, size - header_size))
    unpack = decompression.zstd_head if name == "zstd" else _inflate
    try:
        rows = _parse_rows(lambda most: unpack(packed, most))
    except (ValueError, zlib.error) as problem:
        note = f"compressed with {name}, and not readable: {problem}"
        return CodeContainer((replace(bundle, note=note),), offset + size)
    return CodeContainer(tuple(_share_bytes(rows, bundle)), offset + size)


def read_first_image(source: ByteSource, entry: DeviceCode, most: int, limit: int) -> bytes:
    """Return the first bytes of the first device image in an entry's compressed bundle.

    Reads at most `most` bytes, and examines `limit` of the image.

    Raises:
        ValueError, zlib.error: the bytes cannot be decompressed.
    """
    head = source.read(entry.offset, 32 + most)
    version = int.from_bytes(head[4:6], "little")
    if not head.startswith(COMPRESSED_BUNDLE_MAGIC) or version not in _COMPRESSED_BUNDLE:
        return b""
    packed = head[_COMPRESSED_BUNDLE[version][0] :]
    is_zstd = packed.startswith(decompression.ZSTD_MAGIC)
    start = (decompression.zstd_head if is_zstd else _inflate)(packed, _FIRST_IMAGE + limit)
    return start[max(0, start.find(abi.MAGIC)) :][:limit]


def read_bundle_section(source: ByteSource, offset: int, size: int, name: str) -> DeviceCode | None:
    """Read the image in a section `__CLANG_OFFLOAD_BUNDLE__<target>`; None for host code."""
    meaning = parse_target(name.removeprefix(BUNDLE_MAGIC.decode()))
    if meaning is None:
        return None
    container, kind, arch = meaning
    packed = source.read(offset, min(size, _HEAD))
    start, compressed = packed[:_IMAGE_HEAD], int(packed.startswith(decompression.ZSTD_MAGIC))
    if compressed:
        try:
            start = decompression.zstd_head(packed, _IMAGE_HEAD)
        except ValueError as problem:
            note = f"compressed with zstd, and not readable: {problem}"
            return DeviceCode(container, kind, arch, 1, size, offset, note=note, compressed=1)
    kind = _detect_image_kind(start) or kind
    return DeviceCode(container, kind, arch, 1, size, offset, compressed=compressed)


def _detect_image_kind(start: bytes) -> str | None:
    """Return the kind of an image by its first bytes; None if they do not show it.

    Code for several Intel GPUs is an ar(5) archive of objects behind a padding member.
    """
    if start.startswith(b"!<arch>\n"):
        start = start[max(0, start.find(abi.MAGIC)) :]
    if start.startswith(abi.MAGIC):
        return codeobject.CODE_OBJECT_KINDS.get(int.from_bytes(start[18:20], "little"))
    return {b"\x03\x02\x23\x07": "spirv", b"BC\xc0\xde": "bitcode"}.get(start[:4])


def _inflate(packed: bytes, most: int) -> bytes:
    return zlib.decompressobj().decompress(packed, most)


def _parse_rows(head: Callable[[int], bytes]) -> list[_BundleEntry]:
    """Parse the table of entries of a bundle; `head` returns its first bytes.

    Raises:
        ValueError: there is no bundle, or its table is damaged.
    """
    for most in _BUNDLE_TABLES:
        data = head(most)
        at = len(BUNDLE_MAGIC) + 8
        count = int.from_bytes(data[len(BUNDLE_MAGIC) : at], "little")
        if not data.startswith(BUNDLE_MAGIC) or not 0 < count <= _MOST_BUNDLE_ENTRIES:
            raise ValueError("there is no offload bundle")
        rows: list[_BundleEntry] = []
        while len(rows) < count and at + _BUNDLE_ROW.size <= len(data):
            offset, size, length = _BUNDLE_ROW.unpack_from(data, at)
            raw = data[at + _BUNDLE_ROW.size : at + _BUNDLE_ROW.size + length]
            if length > _LONGEST_ID or not raw.isascii():
                raise ValueError("an entry of the offload bundle makes no sense")
            if len(raw) == length:
                rows.append(_BundleEntry(offset, size, raw.decode()))
            at += _BUNDLE_ROW.size + length
        if len(rows) == count:
            return rows
    raise ValueError("the table of the offload bundle is cut short")


def _list_entries(rows: list[_BundleEntry], base: int) -> Iterator[DeviceCode]:
    for row in rows:
        meaning = parse_target(row.target)
        if meaning is not None and row.size:
            container, kind, arch = meaning
            yield DeviceCode(container, kind, arch, 1, row.size, base + row.offset)


def _share_bytes(rows: list[_BundleEntry], bundle: DeviceCode) -> Iterator[DeviceCode]:
    """Yield one entry per target, with its share of the compressed bytes by decompressed size."""
    entries = list(_list_entries(rows, 0))
    total = sum(entry.size for entry in entries)
    passed = 0
    for entry in entries:
        start = bundle.size * passed // total
        passed += entry.size
        size = bundle.size * passed // total - start
        yield replace(entry, format=bundle.format, offset=bundle.offset, size=size, compressed=1)


# LLVM's OffloadBinary, the container of the new offloading model: `.llvm.offloading`.
#
# Source: llvm/include/llvm/Object/OffloadBinary.h, versions 1 to 3. Version 1 holds one image;
# later versions hold several, and their string table has another column. Little-endian.


OFFLOAD_MAGIC = b"\x10\xff\x10\xad"

#: magic, version, size, offset of the entry, size of the entry (version 1) or their number.
_OFFLOAD_HEADER = Struct("<4sIQQQ")
#: image kind, offload kind, flags, offset of strings, number of strings, offset of image, size.
_OFFLOAD_ENTRY = Struct("<HHIQQQQ")
#: offset of key, offset of value[, size of value].
_PAIR = Struct("<QQ")
_PAIR_SIZES = {1: 16, 2: 24, 3: 24}

_OFFLOAD_KINDS = {2: "bitcode", 3: "sass", 5: "ptx", 6: "spirv"}
_MOST_PAIRS = 16
_MOST_OFFLOAD_ENTRIES = 512
_LONGEST = 256
_OFFLOAD_TABLES = 256 << 10


def read_offload_binary(source: ByteSource, offset: int, limit: int) -> CodeContainer | None:
    """Read the container at `offset`; `limit` is the end of the section or region holding it."""
    head = source.read(offset, min(_OFFLOAD_HEADER.size, limit - offset))
    if len(head) < _OFFLOAD_HEADER.size:
        return None
    magic, version, size, entries_at, number = _OFFLOAD_HEADER.unpack(head)
    if (
        magic != OFFLOAD_MAGIC
        or version not in _PAIR_SIZES
        or not _OFFLOAD_HEADER.size < size <= limit - offset
    ):
        return None
    # Entries and strings precede the images.
    tables = source.read(offset, min(size, _OFFLOAD_TABLES))
    count = 1 if version == 1 else max(1, min(number, _MOST_OFFLOAD_ENTRIES))
    entries = []
    cut = version > 1 and number > _MOST_OFFLOAD_ENTRIES
    for index in range(count):
        at = entries_at + index * _OFFLOAD_ENTRY.size
        if at + _OFFLOAD_ENTRY.size > len(tables):
            cut = True
            break
        kind, _, _, strings_at, strings, _, image_size = _OFFLOAD_ENTRY.unpack_from(tables, at)
        facts = _parse_strings(tables, strings_at, strings, _PAIR_SIZES[version])
        triple = facts.get("triple", "").split("-", 1)[0]
        arch = facts.get("arch") or triple or None
        by_triple = _MACHINE_KINDS.get(triple, "unknown")
        name = by_triple if triple == "amdgcn" else _OFFLOAD_KINDS.get(kind, by_triple)
        note = None if arch else "the container names neither an architecture nor a triple"
        # A container with one image is counted whole, with its header and strings.
        counted = size if count == 1 else min(image_size, size)
        entries.append(DeviceCode("offload-binary", name, arch, 1, counted, offset, note=note))
    if cut and entries:
        note = "the table of the container goes on behind what is read"
        entries.append(DeviceCode("offload-binary", "unknown", None, 1, 0, offset, note=note))
    return CodeContainer(tuple(entries), offset + size) if entries else None


def _parse_strings(tables: bytes, at: int, count: int, step: int) -> dict[str, str]:
    """Read the string table of one entry."""
    facts = {}
    for _ in range(min(count, _MOST_PAIRS)):
        if at + _PAIR.size > len(tables):
            break
        key, value = (_read_string(tables, place) for place in _PAIR.unpack_from(tables, at))
        facts[key] = value
        at += step
    return facts


def _read_string(tables: bytes, at: int) -> str:
    raw = tables[at : at + _LONGEST]
    return raw.partition(b"\0")[0].decode("ascii", "replace")
