"""Networks and pipelines that were compiled for one device: what their headers say.

Nothing in here runs them. Where a vendor publishes no format, only what public code of the vendor
reads is read, and nothing is said of the rest:

- TensorRT: `printPlanVersion` in samples/common/sampleEngines.cpp of NVIDIA/TensorRT: the tag
  `ftrt`, the number of the serialization (0), and at 24 to 27 the version of TensorRT. The tag of
  older ones is `ptrt`. Ultralytics' exporter writes the length of a JSON text and that text first.
  Read off engines of 8.2.1 and 8.6.1 and two timing caches that lie in public repositories (on
  2026-11-23): at 8 the count of chunks, at 16 the bytes of the file, from 32 on a tag, an offset
  and a size for each chunk. The chunk `NGNE`, and the whole of an older engine or of a timing
  cache, is an archive: `ptrt`, at 16 the bytes behind the header of 24, then values behind four
  bytes that say their type: of an engine the version, and properties of the GPU that begin with
  its compute capability. Where a file is not so, nothing is said of its length and its GPU.
- MIGraphX: `program::to_value` in src/program.cpp of ROCm/AMDMIGraphX: a map in MessagePack that
  begins with `version` and `migraphx_version`.
- OpenVINO: `CompiledBlobHeader` in src/inference/src/compilation_context.cpp of OpenVINO: a line of
  XML, which what `export_model` writes does not have. Behind it the CPU's plugin has `RR_UPCVO`, a
  text, and `StreamSerialize::DataHeader` (read off files of 2026.4).
- Neuron: NEFF in KLR of Amazon: packaging (1 or 2), bytes of the header (1024), bytes of the
  contents, version.
- CANN: `ModelFileHeader` of the graph engine: `IMOD`, bytes of the header (256), at 76 those of the
  model.
- Vulkan: `VkPipelineCacheHeaderVersionOne` of the Vulkan specification, "Pipeline Cache Header":
  bytes of the header (32), version (1), ids of vendor and device, and 16 bytes of the driver's.
  How long the data behind it is, is the driver's own affair.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

from buildmatrix.elf.source import ByteSource

#: Tags of TensorRT's engines.
_TAGS = (b"ftrt", b"ptrt")
_ENGINE_HEADER = 28
_CHUNKS = 32
_CHUNK = struct.Struct("<4s4x2Q")
_MOST_CHUNKS = 64
_ARCHIVE = 24
#: Types of values in an archive, and what the first values of archives are.
_BYTE, _STRUCT, _TIMINGS = (bytes((number, 0x80, 1, 0)) for number in (2, 0x12, 0x18))
_VERSION = re.compile(rb"%b(.)%b(.)%b(.)%b(.)" % ((re.escape(_BYTE),) * 4), re.DOTALL)
_CAPABILITY = re.compile(
    re.escape(_STRUCT)
    + rb"\x10\x80\x01\0\x07\x80\x01\0([\x05-\x0f])\0{3}\x07\x80\x01\0([\0-\x09])\0{3}"
)
#: Bytes from the beginning of an archive in which they stand: at 20 to 60 in real ones.
_ARCHIVE_HEAD = 160
#: Bytes of the text that Ultralytics puts in front of an engine; real ones have some hundred.
_LONGEST_PREFIX = 64 << 10

_MXR = re.compile(rb"(?:[\x80-\x8f]|\xde..|\xdf....)\xa7version", re.DOTALL)
_MXR_VERSION = b"\xb0migraphx_version"
#: Values of one MessagePack file that are counted; a compiled network has some ten thousand.
_MOST_VALUES = 1 << 18

_BLOB = b'<?xml version="1.0"?><compiled_blob '
_BLOB_VERSION = re.compile(rb' ie_version="([0-9][0-9.]{0,30})')
_LONGEST_LINE = 4096
_CPU = b"RR_UPCVO"
_CPU_VERSION = re.compile(rb";ov=([0-9][0-9.]{0,30})")
#: Where three parts begin, and their bytes.
_PLACES = struct.Struct("<6Q")
_ISA = re.compile(rb";isa=([ -:<-~]{1,100})")

_OM = b"IMOD\x00\x01\x00\x00"
_OM_HEADER = 256
_NEFF = re.compile(rb"[\x01\x02]\0{7}\x00\x04\0{6}")
_NEFF_HEADER = 1024

_PIPELINES = struct.pack("<II", 32, 1)
_PIPELINES_HEADER = 32
#: The ids of Khronos, for vendors without one of the PCI-SIG (`VkVendorId`), begin above this.
_KHRONOS_VENDORS = range(0x10001, 0x10010)


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the header of a compiled file says."""

    #: Of the library that wrote it, as far as it is written: `10.3.0.26`.
    version: str | None = None
    #: Of the device that it is for; None where the format does not say.
    arch: str | None = None
    #: Why the file cannot be whole.
    unread: str | None = None
    #: Whose devices it is for, where a number says so: `pci-10de`.
    vendor: str | None = None
    #: Why there is no `arch`, where the header says more than nothing.
    note: str | None = None


def kind_of(name: str, head: bytes) -> str | None:
    """A key of `KINDS` by the first 64 bytes; None for what is none.

    Only of an engine with a text in front of it the name counts; `read` then looks behind the text.
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
    if head.startswith(_PIPELINES) and _is_of_pipelines(head):
        return "vkcache"
    if _MXR.match(head) and _MXR_VERSION in head:
        return "mxr"
    if name.endswith(".engine") and head[2:5] == b"\0\0{":
        return "engine"
    return None


def read(source: ByteSource, size: int, kind: str) -> Compiled | None:
    """What the header of a file of `kind` says; None where it is none after all. Raises OSError."""
    return _READERS[kind](source, size)


def _engine(source: ByteSource, size: int) -> Compiled | None:
    at = 0
    head = source.read(0, _ENGINE_HEADER)
    if not head.startswith(_TAGS):
        at = 4 + int.from_bytes(head[:4], "little")
        head = source.read(at, _ENGINE_HEADER) if at <= _LONGEST_PREFIX else b""
        if not head.startswith(_TAGS):
            return None
    if len(head) < _ENGINE_HEADER:
        return Compiled(unread=f"the engine is cut short: it ends at {size}, in its header")
    if head.startswith(b"ptrt"):
        return _archive(source, at, size)
    serialization = int.from_bytes(head[4:8], "little")
    if serialization != 0 or not head[24]:
        return Compiled()
    version = ".".join(map(str, head[24:28]))
    count, total = struct.unpack_from("<2Q", head, 8)
    if not 0 < count <= _MOST_CHUNKS:
        return Compiled(version)
    first = _CHUNKS + count * _CHUNK.size
    table = source.read(at + _CHUNKS, first - _CHUNKS)
    if len(table) < first - _CHUNKS:
        return Compiled(version, unread=_short(size, at + first))
    chunks = list(_CHUNK.iter_unpack(table))
    if chunks[0][1] != first or any(start + length > total for _, start, length in chunks):
        return Compiled(version)
    place = next((start for tag, start, _ in chunks if tag == b"NGNE"), None)
    inner = Compiled() if place is None else _archive(source, at + place, size)
    return Compiled(version, inner.arch, _short(size, at + total))


def _archive(source: ByteSource, at: int, size: int) -> Compiled:
    """What the beginning of an archive of TensorRT says: version, GPU, and whether it is whole."""
    head = source.read(at, _ARCHIVE_HEAD)
    if not head.startswith(b"ptrt") or len(head) < _ARCHIVE:
        return Compiled(unread=_short(size, at + _ARCHIVE))
    version = _VERSION.match(head, _ARCHIVE)
    gpu = _CAPABILITY.search(head, _ARCHIVE)
    return Compiled(
        ".".join(str(byte[0]) for byte in version.groups()) if version else None,
        f"sm_{gpu[1][0]}{gpu[2][0]}" if version and gpu else None,
        _short(size, at + _ARCHIVE + int.from_bytes(head[16:24], "little")),
    )


def _timing(source: ByteSource, size: int) -> Compiled:
    return _archive(source, 0, size)


def _blob(source: ByteSource, size: int) -> Compiled:
    head = source.read(0, min(size, _LONGEST_LINE))
    line, newline, _ = head.partition(b"\n") if head.startswith(_BLOB) else (b"", b"\n", b"")
    if not newline:
        return Compiled(unread=f"the file ends at {size}, in its first line")
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
        unread = _short(size, end)
    return Compiled(version.group(1).decode().rstrip(".") if version else None, _level(isa), unread)


def _level(isa: str | None) -> str | None:
    """The psABI level that an instruction set of oneDNN needs (`dnnl_cpu_isa_t`)."""
    if isa is None:
        return None
    levels = (("AVX-512", "x86-64-v4"), ("AVX10", "x86-64-v4"), ("AVX2", "x86-64-v3"))
    return next((level for word, level in levels if word in isa), None)


def _om(source: ByteSource, size: int) -> Compiled:
    head = source.read(0, _OM_HEADER)
    if len(head) < _OM_HEADER:
        return Compiled(unread=_short(size, _OM_HEADER))
    return Compiled(unread=_short(size, _OM_HEADER + int.from_bytes(head[76:80], "little")))


def _neff(source: ByteSource, size: int) -> Compiled:
    head = source.read(0, 40)
    if len(head) < 40:
        return Compiled(unread=_short(size, _NEFF_HEADER))
    contents, major, minor = struct.unpack_from("<3Q", head, 16)
    # The numbers are those of the format, and not of the compiler.
    return Compiled(
        f"{major}.{minor}" if max(major, minor) < 1000 else None,
        unread=_short(size, _NEFF_HEADER + contents),
    )


def _is_of_pipelines(head: bytes) -> bool:
    """Whether ids follow that a vendor can have, and bytes that are no small numbers."""
    if len(head) < 24:
        return False
    vendor, device = struct.unpack_from("<II", head, 8)
    driver = head[16:_PIPELINES_HEADER]
    return (
        (0 < vendor < 0x10000 or vendor in _KHRONOS_VENDORS)
        and device != 0
        and 2 * len(set(driver)) >= len(driver)
    )


def _vkcache(source: ByteSource, size: int) -> Compiled:
    vendor, device = struct.unpack_from("<II", source.read(0, 16), 8)
    return Compiled(
        unread=_short(size, _PIPELINES_HEADER),
        vendor=f"pci-{vendor:04x}" if vendor < 0x10000 else None,
        note=f"a pipeline cache names device {device:#06x} of vendor {vendor:#06x}, and no "
        "architecture",
    )


def _mxr(source: ByteSource, size: int) -> Compiled:
    head = source.read(0, 256)
    if not _MXR.match(head):
        return Compiled()  # MIGraphX writes JSON, too.
    at = head.find(_MXR_VERSION) + len(_MXR_VERSION)
    version = None
    if at >= len(_MXR_VERSION) and at < len(head) and 0xA0 <= head[at] <= 0xBF:
        text = head[at + 1 : at + 1 + (head[at] & 0x1F)]
        version = text.decode() if re.fullmatch(rb"[0-9]+(\.[0-9]+){1,3}", text) else None
    return Compiled(version, unread=_unfinished(source, size))


#: Bytes behind the first byte of a value of fixed size, MessagePack specification.
_FIXED = {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1,
    0xD1: 2, 0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
#: Bytes of the length of a text or of bytes; of an extension with its type.
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4}
#: Bytes of the count of an array or a map, and values for each.
_COUNTED = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
_STEP = 64 << 10


def _unfinished(source: ByteSource, size: int) -> str | None:
    """Why a MessagePack file ends too early; None also where it has too many values to be sure."""
    waiting = 1
    at = start = 0
    window = b""
    for _ in range(_MOST_VALUES):
        if not waiting:
            return None
        if not start <= at <= start + len(window) - 16:
            start, window = at, source.read(at, min(_STEP, max(0, size - at)))
        value = window[at - start : at - start + 9]
        if not value:
            return _short(size, at + 1)
        waiting -= 1
        first = value[0]
        at += 1
        if first < 0x80 or first >= 0xE0:
            continue
        if first < 0xA0:
            waiting += (first & 0x0F) * (1 if first >= 0x90 else 2)
        elif first < 0xC0:
            at += first & 0x1F
        elif first in _FIXED:
            at += _FIXED[first]
        elif first in _SIZED:
            at += _SIZED[first] + int.from_bytes(value[1 : 1 + _SIZED[first]])
            at += first in (0xC7, 0xC8, 0xC9)
        elif first in _COUNTED:
            width, each = _COUNTED[first]
            at += width
            waiting += each * int.from_bytes(value[1 : 1 + width])
        else:
            return f"the byte at {at - 1} begins no value of MessagePack"
        if at > size:
            return _short(size, at)
    return None


def _short(size: int, end: int) -> str | None:
    return f"the file ends at {size}, and its contents go on to {end}" if end > size else None


_READERS: dict[str, Callable[[ByteSource, int], Compiled | None]] = {
    "engine": _engine,
    "timing": _timing,
    "blob": _blob,
    "om": _om,
    "neff": _neff,
    "mxr": _mxr,
    "vkcache": _vkcache,
}
#: The kinds that `read` reads.
KINDS = frozenset(_READERS)
