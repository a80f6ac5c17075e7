"""Networks and pipelines compiled for one device, by their headers.

Nothing here runs them. If a vendor publishes no format, only fields that the vendor's public code
reads are read:

- TensorRT: `printPlanVersion` in samples/common/sampleEngines.cpp of NVIDIA/TensorRT: the tag
  `ftrt`, the number of the serialization (0), and at 24 to 27 the version of TensorRT. Older
  engines have the tag `ptrt`. Ultralytics' exporter puts a length and a JSON text in front.
  Read off engines of 8.2.1 and 8.6.1 and two timing caches in public repositories (on
  2026-11-23): at 8 the count of chunks, at 16 the bytes of the file, from 32 on a tag, an offset
  and a size for each chunk. The chunk `NGNE`, and the whole of an older engine or of a timing
  cache, is an archive: `ptrt`, at 16 the bytes behind the header of 24, then values, each behind
  four bytes with its type. An engine's values are its version and properties of the GPU, compute
  capability first. A file that deviates gets no length and no GPU.
- MIGraphX: `program::to_value` in src/program.cpp of ROCm/AMDMIGraphX: a map in MessagePack that
  begins with `version` and `migraphx_version`.
- OpenVINO: `CompiledBlobHeader` in src/inference/src/compilation_context.cpp of OpenVINO: a line of
  XML, absent from files of `export_model`. Behind it the CPU plugin has `RR_UPCVO`, a text, and
  `StreamSerialize::DataHeader` (read off files of 2026.4).
- Neuron: NEFF in KLR of Amazon: packaging (1 or 2), bytes of the header (1024), bytes of the
  contents, version.
- CANN: `ModelFileHeader` of the graph engine: `IMOD`, bytes of the header (256), at 76 those of the
  model.
- Vulkan: `VkPipelineCacheHeaderVersionOne` of the Vulkan specification, "Pipeline Cache Header":
  bytes of the header (32), version (1), ids of vendor and device, and 16 bytes of the driver's.
  The driver alone knows the length of the data behind it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

from buildmatrix.facts.binaries import codeobject
from buildmatrix.facts.trees.base import ByteSource

#: TensorRT engine tags.
_TAGS = (b"ftrt", b"ptrt")
_ENGINE_HEADER = 28
_CHUNKS = 32
_CHUNK = struct.Struct("<4s4x2Q")
_MOST_CHUNKS = 64
_ARCHIVE = 24
#: Types of values in an archive, and of the first value of a timing cache.
_BYTE, _STRUCT, _TIMINGS = (bytes((number, 0x80, 1, 0)) for number in (2, 0x12, 0x18))
_VERSION = re.compile(rb"%b(.)%b(.)%b(.)%b(.)" % ((re.escape(_BYTE),) * 4), re.DOTALL)
_CAPABILITY = re.compile(
    re.escape(_STRUCT)
    + rb"\x10\x80\x01\0\x07\x80\x01\0([\x05-\x0f])\0{3}\x07\x80\x01\0([\0-\x09])\0{3}"
)
#: Bytes from the beginning of an archive that hold them: at 20 to 60 in real ones.
_ARCHIVE_HEAD = 160
#: Size limit of the text that Ultralytics puts in front of an engine; real ones have a few hundred
#: bytes.
_LONGEST_PREFIX = 64 << 10

_MXR = re.compile(rb"(?:[\x80-\x8f]|\xde..|\xdf....)\xa7version", re.DOTALL)
_MXR_VERSION = b"\xb0migraphx_version"
#: Values counted in one MessagePack file; a compiled network has about ten thousand.
_MOST_VALUES = 1 << 18

_BLOB = b'<?xml version="1.0"?><compiled_blob '
_BLOB_VERSION = re.compile(rb' ie_version="([0-9][0-9.]{0,30})')
_LONGEST_LINE = 4096
_CPU = b"RR_UPCVO"
_CPU_VERSION = re.compile(rb";ov=([0-9][0-9.]{0,30})")
#: Offsets and sizes of three parts.
_PLACES = struct.Struct("<6Q")
_ISA = re.compile(rb";isa=([ -:<-~]{1,100})")

_OM = b"IMOD\x00\x01\x00\x00"
_OM_HEADER = 256
_NEFF = re.compile(rb"[\x01\x02]\0{7}\x00\x04\0{6}")
_NEFF_HEADER = 1024

_PIPELINES = struct.pack("<II", 32, 1)
_PIPELINES_HEADER = 32
#: Vendor ids assigned by Khronos (`VkVendorId`) begin above this; others are PCI-SIG ids.
_KHRONOS_VENDORS = range(0x10001, 0x10010)


@dataclass(frozen=True, slots=True)
class CompiledHeader:
    """Facts from the header of a compiled file."""

    #: Version of the library that wrote it, as far as the header has it: `10.3.0.26`.
    version: str | None = None
    #: Architecture of the target device; None if the format does not record it.
    arch: str | None = None
    #: Reason why the file cannot be whole.
    unread: str | None = None
    #: Vendor of the device, where the header has its id: `pci-10de`.
    vendor: str | None = None
    #: Reason why `arch` is None, where the header has other information.
    note: str | None = None


def detect_kind(name: str, head: bytes) -> str | None:
    """Return a key of `KINDS` by the first 64 bytes; None for other files.

    The name counts only for an engine behind a text; `read` then checks behind the text.
    """
    if head.startswith(b"ptrt") and head[_ARCHIVE : _ARCHIVE + 4] == _TIMINGS:
        return "timing"
    if head.startswith(_TAGS):
        return "engine"
    if head.startswith((_BLOB, _CPU)):
        return "blob"
    if head.startswith(_OM):
        return "om"
    if _NEFF.match(head):
        return "neff"
    if head.startswith(_PIPELINES) and _is_pipeline_cache(head):
        return "vkcache"
    if _MXR.match(head) and _MXR_VERSION in head:
        return "mxr"
    if name.endswith(".engine") and head[2:5] == b"\0\0{":
        return "engine"
    return None


def read(source: ByteSource, size: int, kind: str) -> CompiledHeader | None:
    """Read the header of a file of `kind`; None if it is not one after all. Raises OSError."""
    return _READERS[kind](source, size)


def _read_engine(source: ByteSource, size: int) -> CompiledHeader | None:
    at = 0
    head = source.read(0, _ENGINE_HEADER)
    if not head.startswith(_TAGS):
        at = 4 + int.from_bytes(head[:4], "little")
        head = source.read(at, _ENGINE_HEADER) if at <= _LONGEST_PREFIX else b""
        if not head.startswith(_TAGS):
            return None
    if len(head) < _ENGINE_HEADER:
        return CompiledHeader(unread=f"the engine is cut short: it ends at {size}, in its header")
    if head.startswith(b"ptrt"):
        return _read_archive(source, at, size)
    serialization = int.from_bytes(head[4:8], "little")
    if serialization != 0 or not head[24]:
        return CompiledHeader()
    version = ".".join(map(str, head[24:28]))
    count, total = struct.unpack_from("<2Q", head, 8)
    if not 0 < count <= _MOST_CHUNKS:
        return CompiledHeader(version)
    first = _CHUNKS + count * _CHUNK.size
    table = source.read(at + _CHUNKS, first - _CHUNKS)
    if len(table) < first - _CHUNKS:
        return CompiledHeader(version, unread=_describe_truncation(size, at + first))
    chunks = list(_CHUNK.iter_unpack(table))
    if chunks[0][1] != first or any(start + length > total for _, start, length in chunks):
        return CompiledHeader(version)
    place = next((start for tag, start, _ in chunks if tag == b"NGNE"), None)
    inner = CompiledHeader() if place is None else _read_archive(source, at + place, size)
    return CompiledHeader(version, inner.arch, _describe_truncation(size, at + total))


def _read_archive(source: ByteSource, at: int, size: int) -> CompiledHeader:
    """Read version, GPU and completeness from the beginning of a TensorRT archive."""
    head = source.read(at, _ARCHIVE_HEAD)
    if not head.startswith(b"ptrt") or len(head) < _ARCHIVE:
        return CompiledHeader(unread=_describe_truncation(size, at + _ARCHIVE))
    version = _VERSION.match(head, _ARCHIVE)
    gpu = _CAPABILITY.search(head, _ARCHIVE)
    return CompiledHeader(
        ".".join(str(byte[0]) for byte in version.groups()) if version else None,
        f"sm_{gpu[1][0]}{gpu[2][0]}" if version and gpu else None,
        _describe_truncation(size, at + _ARCHIVE + int.from_bytes(head[16:24], "little")),
    )


def _read_timing_cache(source: ByteSource, size: int) -> CompiledHeader:
    return _read_archive(source, 0, size)


def _read_blob(source: ByteSource, size: int) -> CompiledHeader:
    head = source.read(0, min(size, _LONGEST_LINE))
    line, newline, _ = head.partition(b"\n") if head.startswith(_BLOB) else (b"", b"\n", b"")
    if not newline:
        return CompiledHeader(unread=f"the file ends at {size}, in its first line")
    version = _BLOB_VERSION.search(line)
    start = head.find(_CPU, len(line))
    isa = unread = None
    length = int.from_bytes(head[start + 12 : start + 20], "little")
    if start >= 0 and length <= _LONGEST_LINE:
        text = source.read(start + 20, length)
        version = version or _CPU_VERSION.search(text)
        match = _ISA.search(text)
        isa = match.group(1).decode() if match else None
        places = source.read(start + 20 + length, _PLACES.size)
        end = start + 20 + length + _PLACES.size
        if len(places) == _PLACES.size:
            fields = _PLACES.unpack(places)
            end += max(map(sum, zip(fields[::2], fields[1::2], strict=True))) - _PLACES.size
        unread = _describe_truncation(size, end)
    return CompiledHeader(
        version.group(1).decode().rstrip(".") if version else None, _instruction_level(isa), unread
    )


def _instruction_level(isa: str | None) -> str | None:
    """Return the psABI level that an instruction set of oneDNN needs (`dnnl_cpu_isa_t`)."""
    if isa is None:
        return None
    levels = (("AVX-512", "x86-64-v4"), ("AVX10", "x86-64-v4"), ("AVX2", "x86-64-v3"))
    return next((level for word, level in levels if word in isa), None)


def _read_om(source: ByteSource, size: int) -> CompiledHeader:
    head = source.read(0, _OM_HEADER)
    if len(head) < _OM_HEADER:
        return CompiledHeader(unread=_describe_truncation(size, _OM_HEADER))
    return CompiledHeader(
        unread=_describe_truncation(size, _OM_HEADER + int.from_bytes(head[76:80], "little"))
    )


def _read_neff(source: ByteSource, size: int) -> CompiledHeader:
    head = source.read(0, 40)
    if len(head) < 40:
        return CompiledHeader(unread=_describe_truncation(size, _NEFF_HEADER))
    contents, major, minor = struct.unpack_from("<3Q", head, 16)
    # This is the version of the format, not of the compiler.
    return CompiledHeader(
        f"{major}.{minor}" if max(major, minor) < 1000 else None,
        unread=_describe_truncation(size, _NEFF_HEADER + contents),
    )


def _is_pipeline_cache(head: bytes) -> bool:
    """True if plausible vendor and device ids follow, and bytes that are not small numbers."""
    if len(head) < 24:
        return False
    vendor, device = struct.unpack_from("<II", head, 8)
    driver = head[16:_PIPELINES_HEADER]
    return (
        (0 < vendor < 0x10000 or vendor in _KHRONOS_VENDORS)
        and device != 0
        and 2 * len(set(driver)) >= len(driver)
    )


def _read_pipeline_cache(source: ByteSource, size: int) -> CompiledHeader:
    vendor, device = struct.unpack_from("<II", source.read(0, 16), 8)
    return CompiledHeader(
        unread=_describe_truncation(size, _PIPELINES_HEADER),
        vendor=f"pci-{vendor:04x}" if vendor < 0x10000 else None,
        note=f"a pipeline cache names device {device:#06x} of vendor {vendor:#06x}, and no "
        "architecture",
    )


def _read_mxr(source: ByteSource, size: int) -> CompiledHeader:
    head = source.read(0, 256)
    if not _MXR.match(head):
        return CompiledHeader()  # MIGraphX writes JSON, too.
    at = head.find(_MXR_VERSION) + len(_MXR_VERSION)
    version = None
    if at >= len(_MXR_VERSION) and at < len(head) and 0xA0 <= head[at] <= 0xBF:
        text = head[at + 1 : at + 1 + (head[at] & 0x1F)]
        version = text.decode() if re.fullmatch(rb"[0-9]+(\.[0-9]+){1,3}", text) else None
    return CompiledHeader(version, unread=_find_messagepack_problem(source, size))


_STEP = 64 << 10


def _find_messagepack_problem(source: ByteSource, size: int) -> str | None:
    """Return why a MessagePack file ends early; None also if it has too many values to tell."""
    waiting = 1
    at = start = 0
    window = b""
    for _ in range(_MOST_VALUES):
        if not waiting:
            return None
        if not start <= at <= start + len(window) - 16:
            start, window = at, source.read(at, min(_STEP, max(0, size - at)))
        value = window[at - start : at - start + codeobject.LONGEST_HEAD]
        if not value:
            return _describe_truncation(size, at + 1)
        extent = codeobject.measure_value(value)
        if extent is None:
            return f"the byte at {at} begins no value of MessagePack"
        waiting += extent.values - 1
        at += extent.head + extent.content
        if at > size:
            return _describe_truncation(size, at)
    return None


def _describe_truncation(size: int, end: int) -> str | None:
    return f"the file ends at {size}, and its contents go on to {end}" if end > size else None


_READERS: dict[str, Callable[[ByteSource, int], CompiledHeader | None]] = {
    "engine": _read_engine,
    "timing": _read_timing_cache,
    "blob": _read_blob,
    "om": _read_om,
    "neff": _read_neff,
    "mxr": _read_mxr,
    "vkcache": _read_pipeline_cache,
}
#: Keys of `_READERS`.
KINDS = frozenset(_READERS)
