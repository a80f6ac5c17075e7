"""Networks that were compiled for one device: what their headers say, whole and cut in half.

The samples are real: Triton 3.9.0 compiled them for GPUs that the machine did not have, and
OpenVINO 2026.4.1 exported and cached a network of one layer.
"""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest

from buildmatrix.facts.binaries.devicefile import HEAD, detect_kind, read_device_file
from buildmatrix.facts.elf.model import DeviceFile
from buildmatrix.facts.trees.archive import BytesSource

SAMPLES = Path(__file__).parent / "samples"
CUBIN = (SAMPLES / "triton-3.9.0-sm_90.cubin").read_bytes()
HSACO = (SAMPLES / "triton-3.9.0-gfx942.hsaco").read_bytes()
BLOB = (SAMPLES / "openvino-2026.4.1.blob").read_bytes()
CACHED = (SAMPLES / "openvino-2026.4.1-cached.blob").read_bytes()


def engine(*version: int, contents: bytes = bytes(4000)) -> bytes:
    return b"ftrt" + bytes(20) + bytes(version or (10, 3, 0, 26)) + contents


def archive(contents: bytes = b"") -> bytes:
    """An archive of TensorRT; the header has the size of the rest."""
    return b"ptrt" + struct.pack("<IIIQ", 0, 236, 0, len(contents)) + contents


def properties(*version: int, major: int = 8, minor: int = 9) -> bytes:
    """What the archive of an engine begins with: the version, and what the GPU is."""

    def value(number: int, data: bytes) -> bytes:
        return bytes((number, 0x80, 1, 0)) + data

    return (
        b"".join(value(2, bytes((part,))) for part in version)
        + value(0xE5, value(7, bytes(4)) + value(0x12, value(0x10, b"")))
        + value(7, struct.pack("<I", major))
        + value(7, struct.pack("<I", minor))
        + value(7, struct.pack("<I", 2_520_000))
        + bytes(900)
    )


def plan(contents: bytes, version: tuple[int, ...] = (8, 6, 1, 6)) -> bytes:
    """An engine as TensorRT 8.6.1 writes it: one chunk with an archive."""
    total = 32 + 24 + len(contents)
    head = b"ftrt" + struct.pack("<IQQ4B4x", 0, 1, total, *version)
    return head + b"NGNE" + struct.pack("<IQQ", 0, 56, len(contents)) + contents


PLAN = plan(archive(properties(8, 6, 1, 6)))
OLD_PLAN = archive(properties(8, 2, 1, 8, major=5, minor=3))
TIMINGS = archive(bytes((0x18, 0x80, 1, 0)) + struct.pack("<Q", 16) + bytes(900))


def exported(data: bytes, text: bytes = b'{"task": "detect"}') -> bytes:
    """As Ultralytics writes an engine."""
    return struct.pack("<I", len(text)) + text + data


def packed(value: object) -> bytes:
    """MessagePack of what a program of MIGraphX has."""
    if isinstance(value, dict):
        body = b"".join(packed(item) for pair in value.items() for item in pair)
        return bytes((0x80 | len(value),)) + body
    if isinstance(value, bytes):
        return b"\xc6" + struct.pack(">I", len(value)) + value
    if isinstance(value, str):
        return bytes((0xA0 | len(value),)) + value.encode()
    if isinstance(value, list):
        return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(packed, value))
    assert isinstance(value, int)
    return bytes((value,))


MXR = packed(
    {
        "version": 7,
        "migraphx_version": "2.12.0",
        "targets": ["gpu"],
        "modules": {"main": {"nodes": [{"name": "gpu::code_object", "code_object": HSACO}] * 2}},
    }
)


def neff(contents: int = 5000) -> bytes:
    return struct.pack("<5Q", 1, 1024, contents, 2, 0).ljust(1024, b"\0") + bytes(contents)


def om(contents: int = 5000) -> bytes:
    head = b"IMOD" + struct.pack("<II", 256, 0x10000000) + bytes(64) + struct.pack("<I", contents)
    return head.ljust(256, b"\0") + bytes(contents)


def pipelines(vendor: int = 0x10DE, contents: int = 3000) -> bytes:
    """A pipeline cache of Vulkan."""
    driver = bytes.fromhex("5ad13c70be4f42967e089b1d23c4a5f6")
    return struct.pack("<4I", 32, 1, vendor, 0x2330) + driver + bytes(contents)


def read(data: bytes, name: str = "model") -> DeviceFile | None:
    return read_device_file(BytesSource(data), len(data), name)


@pytest.mark.parametrize(
    ("data", "name", "kind", "version", "arch"),
    [
        (engine(), "model", "engine", "10.3.0.26", None),
        (engine(contents=bytes(999) + CUBIN), "model", "engine", "10.3.0.26", "sm_90a"),
        (exported(engine(8, 6, 1, 6)), "yolo.engine", "engine", "8.6.1.6", None),
        (b"ptrt" + bytes(90), "old.plan", "engine", None, None),
        (PLAN, "model.plan", "engine", "8.6.1.6", "sm_89"),
        (exported(PLAN), "yolo.engine", "engine", "8.6.1.6", "sm_89"),
        (OLD_PLAN, "model.trt", "engine", "8.2.1.8", "sm_53"),
        # Chunks that are none: nothing is said of the length and the GPU.
        (PLAN[:40] + bytes(8) + PLAN[48:1000], "model.plan", "engine", "8.6.1.6", None),
        (plan(archive(bytes(90))), "model.plan", "engine", "8.6.1.6", None),
        (plan(archive(properties(8, 6, 1, 6, major=99))), "a.plan", "engine", "8.6.1.6", None),
        (TIMINGS, "TensorrtExecutionProvider_cache_sm87.timing", "timing", None, None),
        (BLOB, "a", "blob", "2026.4.1", "x86-64-v4"),
        (CACHED, "1418", "blob", "2026.4.1", "x86-64-v4"),
        (MXR, "model", "mxr", "2.12.0", "gfx942"),
        (neff(), "graph", "neff", "2.0", None),
        (om(), "net", "om", None, None),
        (pipelines(), "pipelines.bin", "vkcache", None, None),
    ],
)
def test_a_header_tells_what_the_format_has(
    data: bytes, name: str, kind: str, version: str | None, arch: str | None
) -> None:
    facts = read(data, name)
    assert facts is not None
    (code,) = facts.device_code
    assert (facts.kind, facts.version, code.arch, code.size) == (kind, version, arch, len(data))
    assert facts.unread == ()
    assert (code.note is None) == (arch is not None)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (CUBIN, "a.cubin"),
        (HSACO, "a.hsaco"),
        (BLOB, "a.blob"),
        (CACHED, "a.blob"),
        (MXR, "a.mxr"),
        (neff(), "a.neff"),
        (om(), "a.om"),
        (engine(contents=bytes(99) + CUBIN), "a.engine"),
        (engine(contents=b"")[:40], "a.engine"),
        (PLAN, "a.plan"),
        (PLAN[:62], "a.plan"),
        (exported(PLAN), "a.engine"),
        (OLD_PLAN, "a.plan"),
        (TIMINGS, "a.timing"),
        (pipelines(contents=0), "pipelines.bin"),
    ],
)
def test_half_a_file_is_unread_and_never_whole(data: bytes, name: str) -> None:
    half = read(data[: len(data) * 7 // 8], name)
    assert half is not None
    assert half.unread


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"ftr\0" + bytes(90), "game.engine"),
        (b"# a plan of the house\n" + bytes(90), "house.plan"),
        (exported(b"not an engine, for all its name says" * 3), "yolo.engine"),
        (exported(engine()), "yolo.onnx"),
        (b'<?xml version="1.0"?><compiled_blobs version="1"/>\n', "a.blob"),
        (b"IMODV1.2" + bytes(300), "cell.mod"),
        (struct.pack("<5Q", 3, 1024, 0, 0, 0) + bytes(2000), "a.neff"),
        (packed({"version": 7, "name": "other"}) + bytes(90), "a.msgpack"),
        (struct.pack("<100I", 32, 1, *range(300, 398)), "numbers.bin"),
        (struct.pack("<6I", 32, 1, 300, 5, 6, 7), "numbers.bin"),
        (pipelines(vendor=0x20000), "other.bin"),
        (pipelines()[:20], "half.bin"),
    ],
)
def test_what_only_looks_like_it_stays_quiet(data: bytes, name: str) -> None:
    assert read(data, name) is None


@pytest.mark.parametrize(
    ("vendor", "kind"),
    [(0x10DE, "pci-10de"), (0x1002, "pci-1002"), (0x8086, "pci-8086"), (0x10005, "unknown")],
)
def test_a_pipeline_cache_names_its_vendor(vendor: int, kind: str) -> None:
    facts = read(pipelines(vendor))
    assert facts is not None
    (code,) = facts.device_code
    assert (code.format, code.kind, code.arch) == ("vulkan-cache", kind, None)
    assert code.note is not None
    assert f"device 0x2330 of vendor {vendor:#06x}" in code.note


def test_only_the_beginning_says_what_a_network_is() -> None:
    for data in (engine(), BLOB, CACHED, MXR, neff(), om(), pipelines()):
        assert detect_kind("x", data[:HEAD]) is not None


def test_twenty_megabytes_that_claim_to_be_an_engine_are_read_once(no_hang: None) -> None:
    noise = b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 16
    data = engine(contents=noise * (20_000_000 // len(noise)))
    source = BytesSource(data)
    facts = read_device_file(source, len(data), "fake.engine")
    # Each header that the noise begins with is looked at, too.
    assert len(data) <= source.bytes_read < 1.1 * len(data)
    assert facts is not None
    assert [code.arch for code in facts.device_code] == [None]


@pytest.mark.parametrize(
    "data",
    [
        packed({"version": 7, "migraphx_version": "2.12.0"})[:-1] + b"\xdf\xff\xff\xff\xff",
        MXR[:60] + b"\xdd\xff\xff\xff\xff" + b"\x01" * 400_000,
        BLOB.replace(b"O\0\0\0\0\0\0\0", b"\xff" * 8, 1),
        neff()[:16] + b"\xff" * 24 + bytes(984),
        engine(contents=CUBIN[:40] + b"\xff" * 4000),
        exported(engine(), b"{" + bytes((1 << 16) + 1)),
    ],
)
def test_hostile_numbers_cost_nothing(data: bytes, no_hang: None) -> None:
    source = BytesSource(data)
    tracemalloc.start()
    try:
        read_device_file(source, len(data), "a.engine")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert source.bytes_read < 2 * len(data) + 1000
    assert peak < 1 << 20
