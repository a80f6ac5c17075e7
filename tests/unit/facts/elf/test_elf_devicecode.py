"""Device code: which formats, kinds and architectures a file carries."""

from __future__ import annotations

import base64
import struct
import zlib

import pytest
from elf_images import Image, Part, bundle, compressed_bundle, fat_binary, fat_entry

from buildmatrix.facts.binaries.reader import read_elf
from buildmatrix.facts.elf.model import DeviceCode
from buildmatrix.facts.trees.archive import BytesSource

HIP = {
    "host-x86_64-unknown-linux-gnu-": b"",
    "hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-": b"a" * 3000,
    "hipv4-amdgcn-amd-amdhsa--gfx1100": b"b" * 1000,
}


def found(*parts: Part, **header: int) -> tuple[DeviceCode, ...]:
    data = Image(parts=parts, **header).build()  # type: ignore[arg-type]
    elf = read_elf(BytesSource(data), len(data))
    assert elf is not None
    return elf.device_code


def brief(codes: tuple[DeviceCode, ...]) -> list[tuple[str, str, str | None, int]]:
    return [(code.format, code.kind, code.arch, code.count) for code in codes]


def test_the_newest_language_version_of_ptx_counts() -> None:
    """minor and major stand at offset 24 and 26 of an entry; of machine code they mean another."""

    def entry(kind: int, major: int, minor: int) -> bytes:
        raw = bytearray(fat_entry(kind, 90))
        raw[24:28] = minor.to_bytes(2, "little") + major.to_bytes(2, "little")
        return bytes(raw)

    old, new, code = entry(1, 8, 8), entry(1, 8, 10), entry(2, 1, 7)
    ptx, sass = found(Part(".nv_fatbin", fat_binary(new, old, code)))
    assert (ptx.arch, ptx.count, ptx.language) == ("compute_90", 2, "8.10")
    assert (sass.arch, sass.language) == ("sm_90", None)


@pytest.mark.parametrize("section", [".nv_fatbin", "__nv_relfatbin"])
def test_every_entry_of_every_fat_binary_counts(section: str) -> None:
    containers = [
        fat_binary(fat_entry(2, 80), fat_entry(2, 90, flags=0x100011), fat_entry(1, 90)),
        fat_binary(
            fat_entry(2, 80, bytes(64)), fat_entry(8, 75), fat_entry(2, 120, flags=0x200011)
        ),
    ]
    codes = found(Part(section, containers[0] + bytes(24) + containers[1]))
    assert brief(codes) == [
        ("nv-fatbin", "lto-ir", "compute_75", 1),
        ("nv-fatbin", "ptx", "compute_90", 1),
        ("nv-fatbin", "sass", "sm_120f", 1),
        ("nv-fatbin", "sass", "sm_80", 2),
        ("nv-fatbin", "sass", "sm_90a", 1),
    ]
    twice = codes[3]
    assert twice.size == 2 * 64 + 32 + 64
    assert twice.section == section
    assert all(code.note is None for code in codes)


@pytest.mark.parametrize("flag", [0x2000, 0x8000], ids=["lz4", "zstd"])
def test_compressed_entries_still_name_their_architecture(flag: int) -> None:
    (code,) = found(Part(".nv_fatbin", fat_binary(fat_entry(2, 100, flags=flag | 0x11))))
    assert (code.arch, code.compressed) == ("sm_100", 1)


def concatenated(*members: bytes, payload: bytes) -> bytes:
    """An entry of `nvcc --concat` (13.5); `members` are headers of other entries."""
    table = b"".join(members)
    table = struct.pack("<II", len(members), 8 + len(table)) + table
    head = struct.pack("<HHIQIIHHIIIQ", 256, 257, 64 + len(table), len(payload), *[0] * 7, 0x8011)
    return head.ljust(64, b"\0") + table + payload


#: A name of 3 bytes at 64, and options of 5 at 80, each with a zero behind it.
NAMED = bytearray(fat_entry(1, 100, b"", flags=0x200011) + b"a.c".ljust(8, b"\0"))
NAMED[20:24] = (72).to_bytes(4, "little")
NAMED[32:40] = struct.pack("<II", 64, 3)
NAMED += struct.pack("<II", 80, 5) + b"-v -g".ljust(8, b"\0")


@pytest.mark.parametrize("section", [".nv_fatbin", ".rodata"])
def test_each_entry_of_a_concatenated_one_counts(section: str) -> None:
    entry = concatenated(
        fat_entry(2, 90, b"", flags=0x100011),
        bytes(NAMED),
        fat_entry(2, 80, b""),
        payload=b"p" * 99,
    )
    codes = found(Part(section, fat_binary(entry, fat_entry(1, 75))))
    assert brief(codes) == [
        ("nv-fatbin", "ptx", "compute_100f", 1),
        ("nv-fatbin", "ptx", "compute_75", 1),
        ("nv-fatbin", "sass", "sm_80", 1),
        ("nv-fatbin", "sass", "sm_90a", 1),
    ]
    assert sum(code.size for code in codes) == len(entry) + 96
    assert [code.compressed for code in codes] == [1, 0, 1, 1]


@pytest.mark.parametrize("number", [0, 2, 4, 1 << 31], ids=["none", "fewer", "more", "many"])
def test_a_concatenated_entry_with_another_number_of_headers_is_unknown(number: int) -> None:
    entry = bytearray(concatenated(*[fat_entry(2, 80, b"")] * 3, payload=b"p" * 99))
    entry[64:68] = number.to_bytes(4, "little")
    unknown, known = found(Part(".nv_fatbin", fat_binary(bytes(entry), fat_entry(1, 75))))[::-1]
    assert (unknown.kind, unknown.note) == ("unknown", "entry kind 256 is not known")
    assert known.arch == "compute_75"


def test_a_fat_binary_in_read_only_data_is_found_without_its_section() -> None:
    data = bytes(1000) + fat_binary(fat_entry(2, 75)) + b"\0libcuda.so.1\0"
    (code,) = found(Part(".rodata", data))
    assert (code.arch, code.section) == ("sm_75", ".rodata")


def test_an_empty_fat_binary_before_ptx_is_not_damaged() -> None:
    """As nvcc 13.0 writes with `-gencode arch=compute_80,code=compute_80`."""
    data = Image(parts=[Part(".nv_fatbin", fat_binary() + fat_binary(fat_entry(1, 80)))]).build()
    elf = read_elf(BytesSource(data), len(data))
    assert elf is not None
    assert brief(elf.device_code) == [("nv-fatbin", "ptx", "compute_80", 1)]
    assert elf.unread == ()


def test_names_inside_a_fat_binary_in_read_only_data_are_no_literals() -> None:
    payload = b"\0libinside.so.1\0".ljust(64, b"\0")
    data = Image(
        parts=[Part(".rodata", fat_binary(fat_entry(1, 75, payload)) + b"\0liboutside.so.1\0")]
    ).build()
    elf = read_elf(BytesSource(data), len(data))
    assert elf is not None
    assert [literal.text for literal in elf.literals] == ["liboutside.so.1"]


def test_the_magic_number_alone_is_no_device_code() -> None:
    constants = (
        b"\x50\xed\x55\xba" + b"CCOB" + b"__CLANG_OFFLOAD_BUNDLE__\0" + b"\x7fELF" + b"x" * 99
    )
    assert found(Part(".rodata", constants)) == ()


def test_a_device_section_with_nothing_readable_is_unknown_and_not_nothing() -> None:
    (code,) = found(Part(".nv_fatbin", b"\x01" * 4096))
    assert (code.format, code.kind, code.arch, code.size) == ("nv-fatbin", "unknown", None, 4096)
    assert code.note == "nothing in the section could be read"


def test_a_fat_binary_that_is_cut_short_says_so() -> None:
    whole = fat_binary(fat_entry(2, 80), fat_entry(2, 90))
    codes = found(Part(".nv_fatbin", whole[:-40]))
    assert [(code.arch, code.note) for code in codes] == [
        ("sm_80", None),
        (None, "an entry header of the fat binary makes no sense"),
    ]


def test_plain_hip_bundles_name_targets_with_features_and_leave_out_the_host() -> None:
    assert brief(found(Part(".hip_fatbin", bundle(HIP) + bundle(HIP)))) == [
        ("hip-bundle", "amdgcn", "gfx1100", 2),
        ("hip-bundle", "amdgcn", "gfx90a:sramecc+:xnack-", 2),
    ]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_zlib_compressed_bundles_are_opened_far_enough_for_their_targets(version: int) -> None:
    plain = bundle(HIP)
    data = compressed_bundle(version, 0, zlib.compress(plain), len(plain))
    codes = found(Part(".hip_fatbin", data))
    assert brief(codes) == [
        ("hip-ccob", "amdgcn", "gfx1100", 1),
        ("hip-ccob", "amdgcn", "gfx90a:sramecc+:xnack-", 1),
    ]
    assert sum(code.size for code in codes) == len(data)
    assert codes[1].size > 2 * codes[0].size


#: `bundle` of 24 AMD targets, each image one line of text, from `zstd -19`.
ZSTD_BUNDLE = base64.b64decode(
    "KLUv/QBo9QkAUk4uK3BtGgN8nb6i3/Vf0e/6AAAkFkQm+JltuR8R0+1kRIiIiJDtODi6GH3rTwGU0t3d3d1dbtMy"
    "7KJbZUZKNfm8S1hNwM0WaIp5IU/qmCO8zbXqjBoD/HXaMk1LL+m5oznRW2gNdIYZg3w5tgjT+VbPOfdD+aT0NKAY"
    "+SQXT14dTAj+/9X/H/h/askRP/nhiKFFip5RrIgceWU12z5yoxnB/38w9f8vqDXRIRgPQ0UUGp1C0agLRqE71Bo5"
    "qKFsArN3PdZxSwrKTYYDETAECcEJ4X+E8LMFRXB8fgFJk6Be+A//yf/yH/yX/+e//A/+y3/5f/4X4P8AqPsv/+V/"
    "+C//lf9skjFFk6Ae/sP/S90AsLDKgqafSVA+DYr3UWaidNkyp1KKKqmmCWhmSpBSiqQIz7WndBJYFQHVglwN"
)
ZSTD_TARGETS = {f"gfx{number}" for number in range(1000, 1024)}


@pytest.mark.parametrize("version", [2, 3])
def test_zstd_compressed_bundles_are_opened(version: int) -> None:
    data = compressed_bundle(version, 1, ZSTD_BUNDLE, 1 << 20)
    codes = found(Part(".hip_fatbin", data))
    assert {code.arch for code in codes} == ZSTD_TARGETS
    assert all(code.compressed == code.count == 1 for code in codes)


def test_without_a_library_the_gpus_of_a_zstd_compressed_bundle_are_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("buildmatrix.facts.trees.decompression.find_decompressor", lambda: None)
    (code,) = found(Part(".hip_fatbin", compressed_bundle(2, 1, ZSTD_BUNDLE, 1 << 20)))
    assert (code.kind, code.arch) == ("unknown", None)
    assert code.note is not None and "library for Zstandard" in code.note


def test_a_damaged_compressed_bundle_is_unknown_with_the_reason() -> None:
    data = compressed_bundle(3, 1, b"\x28\xb5\x2f\xfd" + b"\xff" * 64, 1 << 20)
    (code,) = found(Part(".hip_fatbin", data))
    assert (code.format, code.kind, code.arch) == ("hip-ccob", "unknown", None)
    assert code.note is not None
    assert code.note.startswith("compressed with zstd, and not readable")


@pytest.mark.parametrize(
    "parts",
    [
        [Part(".hip_fatbin", bytes(4096)), Part(".rocm_kpack_ref", b"\x81\xa4path")],
        [Part(".hip_fatbin", bytes(4096)), Part(".hipFatBinSegment", b"HIPK" + bytes(20))],
    ],
)
def test_code_that_was_moved_to_a_kpack_file_is_unknown_and_not_absent(parts: list[Part]) -> None:
    (code,) = found(*parts)
    assert (code.format, code.kind, code.arch) == ("hip-kpack", "unknown", None)
    assert code.note == "the code was moved to a .kpack file"


@pytest.mark.parametrize(
    ("target", "content", "expected"),
    [
        ("sycl-spir64", b"\x03\x02\x23\x07" + bytes(60), ("offload-bundle", "spirv", "spir64")),
        ("sycl-spir64_gen", bytes(64), ("offload-bundle", "unknown", "spir64_gen")),
        ("sycl-spir64", b"BC\xc0\xde" + bytes(60), ("offload-bundle", "bitcode", "spir64")),
        ("openmp-amdgcn-amd-amdhsa--gfx906", bytes(64), ("offload-bundle", "amdgcn", "gfx906")),
    ],
)
def test_offload_sections_name_their_target(
    target: str, content: bytes, expected: tuple[str, str, str]
) -> None:
    (code,) = found(Part(f"__CLANG_OFFLOAD_BUNDLE__{target}", content))
    assert (code.format, code.kind, code.arch) == expected


def test_the_host_part_of_an_offload_bundle_is_no_device_code() -> None:
    assert found(Part("__CLANG_OFFLOAD_BUNDLE__host-x86_64-unknown-linux-gnu", bytes(64))) == ()


@pytest.mark.parametrize(
    ("image_kind", "triple", "arch", "kind"),
    [
        (1, "amdgcn-amd-amdhsa", "gfx942", "amdgcn"),
        (3, "nvptx64-nvidia-cuda", "sm_90", "sass"),
        (5, "nvptx64-nvidia-cuda", "sm_90", "ptx"),
        # LLVM 19 knows no kind of an image of SPIR-V.
        (0, "spirv64-intel-unknown", "spirv64", "spirv"),
        (0, "riscv64-unknown-unknown", "rv64", "unknown"),
    ],
)
def test_an_offload_binary_names_triple_and_architecture(
    image_kind: int, triple: str, arch: str, kind: str
) -> None:
    words = [b"triple", triple.encode(), b"arch", arch.encode()]
    strings = b"".join(word + b"\0" for word in words)
    places = [sum(len(word) + 1 for word in words[:number]) for number in range(4)]
    table_at = 32 + 48
    strings_at = table_at + 32
    image_at = strings_at + len(strings)
    data = struct.pack("<4sIQQQ", b"\x10\xff\x10\xad", 1, image_at + 100, 32, 48)
    data += struct.pack("<HHIQQQQ", image_kind, 4, 0, table_at, 2, image_at, 100)[:48].ljust(
        48, b"\0"
    )
    data += b"".join(struct.pack("<Q", strings_at + place) for place in places)
    data += strings + bytes(100)
    assert brief(found(Part(".llvm.offloading", data))) == [("offload-binary", kind, arch, 1)]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({"machine": 190, "flags": 0x5A055A, "abi_version": 7}, ("sass", "sm_90")),
        ({"machine": 190, "flags": 0x5A0D5A, "abi_version": 7}, ("sass", "sm_90a")),
        ({"machine": 190, "flags": 0x6004B04, "abi_version": 8}, ("sass", "sm_75")),
        ({"machine": 190, "flags": 0x600640A, "abi_version": 8}, ("sass", "sm_100a")),
        ({"machine": 190, "flags": 0x6007802, "abi_version": 8}, ("sass", "sm_120")),
        ({"machine": 224, "flags": 0x12C, "abi_version": 1}, ("amdgcn", "gfx900")),
        ({"machine": 224, "flags": 0x62F, "abi_version": 2}, ("amdgcn", "gfx906:xnack-")),
        ({"machine": 224, "flags": 0xE3F, "abi_version": 2}, ("amdgcn", "gfx90a:sramecc+:xnack-")),
        ({"machine": 224, "flags": 0xFE, "abi_version": 2}, ("amdgcn", None)),
    ],
)
def test_an_object_for_an_accelerator_names_its_architecture(
    header: dict[str, int], expected: tuple[str, str | None]
) -> None:
    (code,) = found(Part(".text", b"\0libnot.so.1\0"), **header)
    assert (code.format, code.kind, code.arch) == ("elf", *expected)
    assert (code.note is None) == (expected[1] is not None)


@pytest.mark.parametrize(("value", "arch"), [(0, "sm_100"), (1, "sm_100a")])
@pytest.mark.parametrize("section", [None, ".rodata"], ids=["file", "in host data"])
def test_an_attribute_of_a_cubin_binds_it_to_one_gpu(
    value: int, arch: str, section: str | None
) -> None:
    """`.nv.compat` as ptxas 13.5 writes it; attribute 9 comes last here."""
    compat = bytes.fromhex("040b080009000000 00000000 020c0000") + bytes([2, 9, value, 0])
    header = {"machine": 190, "flags": 0x6006402, "abi_version": 8}
    part = Part(".nv.compat", compat, type=0x70000086)
    cubin = Image(parts=[part], **header).build()  # type: ignore[arg-type]
    (code,) = found(Part(section, bytes(8) + cubin)) if section else found(part, **header)
    assert (code.kind, code.arch) == ("sass", arch)


def test_a_bare_cubin_in_read_only_data_is_found() -> None:
    cubin = Image(machine=190, flags=0x500550, abi_version=7, parts=[Part(".text.k", b"k" * 99)])
    data = cubin.build()
    (code,) = found(Part(".rodata", b"names\0\0\0" + data + b"\0after"))
    assert (code.format, code.kind, code.arch, code.size) == ("elf", "sass", "sm_80", len(data))


def stored(content: bytes) -> bytes:
    """A Zstandard frame of one block that is not compressed."""
    head = b"\x28\xb5\x2f\xfd" + bytes([0x60]) + struct.pack("<H", len(content) - 256)
    return head + (len(content) << 3 | 1).to_bytes(3, "little") + content


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "zstd"])
@pytest.mark.parametrize(
    ("image", "kind"),
    [
        (b"\x03\x02\x23\x07" + bytes(300), "spirv"),
        (Image(machine=205).build() + bytes(300), "zebin"),
        (
            b"!<arch>\n" + b"pad_0/".ljust(48) + b"8         `\n" + bytes(8)
            + b"64.12.60.7/".ljust(48) + b"400       `\n" + Image(machine=205).build() + bytes(300),
            "zebin",
        ),
        (b"unknown" + bytes(300), "unknown"),
    ],
    ids=["SPIR-V", "object", "archive", "other"],
)  # fmt: skip
def test_an_image_ahead_of_time_is_told_from_spirv_also_when_it_is_compressed(
    image: bytes, kind: str, packed: bool
) -> None:
    name = "__CLANG_OFFLOAD_BUNDLE__sycl-spir64_gen"
    (code,) = found(Part(name, stored(image) if packed else image))
    assert (code.kind, code.arch, code.compressed) == (kind, "spir64_gen", int(packed))


def test_an_offload_binary_may_hold_several_images() -> None:
    strings = b"triple\0spirv64-intel\0arch\0gfx942\0amdgcn-amd-amdhsa\0"
    pairs_at, strings_at = 32 + 2 * 40, 32 + 2 * 40 + 3 * 24
    place = {
        text: strings_at + strings.index(text + b"\0") for text in strings.split(b"\0") if text
    }
    pairs = [
        (place[b"triple"], place[b"spirv64-intel"]),
        (place[b"triple"], place[b"amdgcn-amd-amdhsa"]),
        (place[b"arch"], place[b"gfx942"]),
    ]
    size = strings_at + len(strings)
    data = b"\x10\xff\x10\xad" + struct.pack("<IQQQ", 2, size, 32, 2)
    data += struct.pack("<HHIQQQQ", 6, 8, 0, pairs_at, 1, 0, 10)
    data += struct.pack("<HHIQQQQ", 1, 4, 0, pairs_at + 24, 2, 0, 20)
    data += b"".join(struct.pack("<QQQ", *pair, 0) for pair in pairs) + strings
    assert brief(found(Part(".llvm.offloading", data))) == [
        ("offload-binary", "amdgcn", "gfx942", 1),
        ("offload-binary", "spirv", "spirv64", 1),
    ]


PTX = b"""// Generated by NVIDIA NVVM Compiler
.version 8.2
.target sm_75, texmode_independent
.address_size 64

.visible .entry kernel()
{ ret; }
"""


def test_a_program_as_text_in_the_hosts_data_is_found_and_measured() -> None:
    data = b"before\0" + PTX + b"\0behind\0"
    (code,) = found(Part(".rodata", data))
    start = data.index(b".version")
    assert (code.format, code.kind, code.arch) == ("ptx-text", "ptx", "compute_75")
    assert (code.section, code.size) == (".rodata", len(data) - start - len(b"\0behind\0"))


@pytest.mark.parametrize(
    "text",
    [
        PTX.replace(b"8.2", b"%u.%u"),
        PTX.replace(b"sm_75", b"%s"),
        PTX.partition(b".visible")[0],
        PTX.replace(b".version", b".verbose"),
        b".version 8.2\0.target sm_75\0.address_size 64\0.entry",
        b"".join([b".version 8.2\n.target sm_75\n", b"//" + b"x" * 300, b"\n.address_size 64\n"]),
    ],
    ids=["version", "target", "header", "other", "words", "far"],
)
def test_the_templates_of_a_compiler_are_no_program(text: bytes) -> None:
    assert found(Part(".rodata", b"\0" + text + b"\0")) == ()


def test_names_of_libraries_inside_a_program_are_the_programs() -> None:
    text = PTX.replace(b"ret;", b"// libcudart.so.12")
    data = Image(parts=[Part(".rodata", text + b"\0libcuda.so.1\0")]).build()
    elf = read_elf(BytesSource(data), len(data))
    assert elf is not None
    assert [literal.text for literal in elf.literals] == ["libcuda.so.1"]


def test_a_damaged_piece_between_good_ones_is_told() -> None:
    good, bad = fat_binary(fat_entry(2, 80)), bytearray(fat_binary(fat_entry(2, 90)))
    bad[4:6] = bytes(2)  # version 0, which no container has
    data = Image(parts=[Part(".nv_fatbin", good + bytes(bad) + good)]).build()
    elf = read_elf(BytesSource(data), len(data))
    assert elf is not None
    assert brief(elf.device_code) == [("nv-fatbin", "sass", "sm_80", 2)]
    assert elf.unread == (".nv_fatbin holds 1 pieces of device code that are damaged or cut short",)


def test_an_object_for_a_gpu_that_is_not_known_says_so() -> None:
    inner = Image(machine=224, flags=0x7E).build()
    (code,) = found(Part(".rodata", inner))
    assert (code.arch, code.note) == (
        None,
        "the header does not name an architecture that is known",
    )
