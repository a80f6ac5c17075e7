"""What the objects of a file were compiled for, and which kernels those are."""

from __future__ import annotations

import struct

import pytest
import zstandard
from elf_images import Image, Part, bundle, compressed_bundle, fat_binary, fat_entry

from buildmatrix.facts.binaries import groups
from buildmatrix.facts.binaries.groups import HEAD, demangle
from buildmatrix.facts.binaries.reader import read_elf
from buildmatrix.facts.elf.model import CodeGroup
from buildmatrix.facts.trees import decompression
from buildmatrix.facts.trees.archive import BytesSource

FATBIN = ".nv_fatbin"


def found(*parts: Part) -> tuple[CodeGroup, ...]:
    data = Image(parts=parts).build()
    elf = read_elf(BytesSource(data), len(data))
    assert elf is not None
    return elf.code_groups


def cubin(*kernels: str, functions: tuple[str, ...] = ()) -> bytes:
    """The beginning of one: the names of its sections come first."""
    names = [f".nv.constant0.{kernel}" for kernel in kernels]
    names += [f".text.{function}" for function in (*functions, *kernels)]
    text = b"\x7fELF".ljust(64, b"\x02") + b"\0.shstrtab\0" + "\0".join(names).encode() + b"\0"
    return text.ljust(2048 if names else 200, b"\0")


def unit(*archs: int, kernel: str = "fill", flags: int = 0x11) -> bytes:
    return fat_binary(*(fat_entry(2, arch, cubin(kernel), flags) for arch in archs))


def as_lz4(data: bytes) -> bytes:
    """A block of literals alone."""
    more = len(data) - 15
    return b"\xf0" + b"\xff" * (more // 255) + bytes([more % 255]) + data


def packed(kind: int, arch: int, data: bytes, flag: int) -> bytes:
    """An entry whose payload is compressed, which its header gives the size of."""
    padded = data.ljust(-(-len(data) // 8) * 8, b"\0")
    entry = bytearray(fat_entry(kind, arch, padded, flag | 0x11))
    struct.pack_into("<I", entry, 16, len(data))
    return bytes(entry)


def test_one_object_of_five_that_lacks_an_architecture_is_a_group_with_its_kernels() -> None:
    whole = [unit(80, 90, kernel=f"whole_{number}") for number in range(4)]
    data = b"".join([*whole[:2], unit(80, kernel="_ZN3net4lostEv"), *whole[2:]])
    first, second = found(Part(FATBIN, data))
    assert (first.format, first.architectures, first.count) == ("nv-fatbin", ("sm_80", "sm_90"), 4)
    assert first.kernels == ("whole_0", "whole_1", "whole_2", "whole_3")
    assert (second.architectures, second.count) == (("sm_80",), 1)
    assert second.kernels == ("_ZN3net4lostEv",)
    assert second.size == 64 + 2048
    assert first.offset < second.offset
    assert not first.is_relocatable


def test_objects_that_are_all_alike_are_no_groups() -> None:
    assert found(Part(FATBIN, unit(80, 90) * 3)) == ()


def test_names_that_fewer_objects_have_come_first() -> None:
    common = [f"cub_{number}" for number in range(4)]
    one = fat_binary(*(fat_entry(2, arch, cubin(*common, "own_one")) for arch in (80, 90)))
    two = fat_binary(fat_entry(2, 80, cubin(*common, "own_two")))
    assert [group.kernels[0] for group in found(Part(FATBIN, one + two))] == ["own_one", "own_two"]


def test_a_file_compiled_without_a_kernel_is_no_object() -> None:
    empty = fat_binary(fat_entry(2, 52, cubin()), fat_entry(1, 52, b".version 8.0\n".ljust(40)))
    assert found(Part(FATBIN, unit(80, 90) + empty * 3)) == ()
    function = fat_binary(fat_entry(2, 52, cubin(functions=("helper",))))
    assert [group.count for group in found(Part(FATBIN, unit(80, 90) + function))] == [1, 1]


def test_a_long_name_is_cut_and_one_that_goes_on_behind_what_is_read_is_left_out() -> None:
    long = fat_binary(fat_entry(2, 80, cubin("k" * 600)))
    assert found(Part(FATBIN, unit(80, 90) + long))[1].kernels == ("k" * 512,)
    head = cubin("first").ljust(HEAD - 20, b"\0")
    cut = fat_binary(fat_entry(2, 80, head + b"\0.nv.constant0." + b"k" * 100))
    assert found(Part(FATBIN, unit(80, 90) + cut))[1].kernels == ("first",)


def test_a_small_object_that_cannot_be_read_counts() -> None:
    broken = fat_binary(packed(2, 52, b"\x0f\xff\xff", 0x2000))
    assert [group.count for group in found(Part(FATBIN, unit(80, 90) + broken))] == [1, 1]


def test_objects_that_were_linked_into_others_are_marked() -> None:
    linked = Part("__nv_relfatbin", fat_binary(fat_entry(2, 80, cubin("f")), fat_entry(1, 80)))
    result = found(Part(FATBIN, unit(80)), linked)
    assert [(group.architectures, group.is_relocatable) for group in result] == [
        (("sm_80",), False),
        (("compute_80", "sm_80"), True),
    ]


def test_what_a_program_loads_itself_may_be_for_one_architecture() -> None:
    chosen = bytes(64) + unit(100, kernel="topk") + unit(90, kernel="topk")
    assert found(Part(FATBIN, unit(80, 90)), Part(".lrodata", chosen)) == ()
    both = bytes(64) + unit(80, 89, kernel="cast")
    result = found(Part(FATBIN, unit(80, 90)), Part(".lrodata", both))
    assert [group.architectures for group in result] == [("sm_80", "sm_90"), ("sm_80", "sm_89")]


def test_an_object_with_code_for_an_unknown_architecture_is_not_compared() -> None:
    odd = fat_binary(fat_entry(2, 80, cubin("f")), fat_entry(99, 80))
    assert found(Part(FATBIN, unit(80, 90) + odd)) == ()


def test_the_groups_are_bounded_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MOST_GROUPS", 3)
    result = found(Part(FATBIN, b"".join(unit(arch) for arch in (50, 60, 70, 80, 90))))
    assert [(group.architectures, group.count) for group in result] == [
        (("sm_50",), 1),
        (("sm_60",), 1),
        (("sm_70",), 1),
        ((), 2),
    ]


def test_code_for_linkers_is_no_code_for_a_gpu() -> None:
    mixed = fat_binary(*(fat_entry(2, arch, cubin("f")) for arch in (80, 90)), fat_entry(8, 75))
    assert found(Part(FATBIN, unit(80, 90) + mixed + fat_binary(fat_entry(8, 75)))) == ()


def test_only_so_many_small_pieces_are_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MOST_SMALL", 6)
    empty = fat_binary(fat_entry(2, 52, cubin()), fat_entry(2, 60, cubin()))
    first, second = found(Part(FATBIN, empty * 5 + unit(80, 90)))
    assert (first.architectures, first.count) == (("sm_52", "sm_60"), 2)
    assert second.count == 1


PTX = b".version 8.0\n.target sm_90\n.visible .entry _Z4scalePf(\n.param .u64 p\n)\n".ljust(2048)


@pytest.mark.parametrize(
    ("kind", "flag", "payload"),
    [
        (2, 0x2000, as_lz4(cubin("_Z4scalePf"))),
        (2, 0x8000, zstandard.compress(cubin("_Z4scalePf"))),
        (1, 0x2000, as_lz4(PTX)),
        (1, 0x8000, zstandard.compress(PTX)),
    ],
    ids=["lz4", "zstd", "ptx-lz4", "ptx-zstd"],
)
def test_kernels_of_compressed_code_are_named(kind: int, flag: int, payload: bytes) -> None:
    entry = fat_binary(packed(kind, 90, payload, flag))
    assert found(Part(FATBIN, unit(80, 90) + entry))[1].kernels == ("_Z4scalePf",)


def code_object(kernel: str) -> bytes:
    return (b"\x7fELF".ljust(64, b"\x02") + f"\0{kernel}\0{kernel}.kd\0".encode()).ljust(4096, b"x")


@pytest.mark.parametrize("compressed", [False, True])
def test_kernels_of_code_objects_are_named(compressed: bool) -> None:
    images = [
        bundle({f"hipv4-amdgcn-amd-amdhsa--{gfx}": code_object(kernel) for gfx in archs})
        for kernel, archs in (("both", ["gfx90a", "gfx942"]), ("one", ["gfx90a"]))
    ]
    if compressed:
        packed_images = [zstandard.compress(image) for image in images]
        images = [
            compressed_bundle(2, 1, packed, len(image))
            for image, packed in zip(images, packed_images, strict=True)
        ]
    result = found(Part(".hip_fatbin", b"".join(images)))
    assert [group.kernels for group in result] == [("both",), ("one",)]


def test_lz4_copies_may_overlap_and_end_with_the_data() -> None:
    block = b"\x2fab\x02\x00\x05"  # "ab", then 24 bytes from two bytes before
    assert decompression.lz4_head(block + b"\x10c", 100) == b"ab" * 13 + b"c"
    assert decompression.lz4_head(block, 100) == b"ab" * 13
    assert decompression.lz4_head(block[:4], 100) == b"ab"
    assert decompression.lz4_head(b"", 100) == b""


@pytest.mark.parametrize("block", [b"\x10a\x00\x00", b"\x10a\x02\x00", b"\x00\x01\x00"])
def test_a_copy_from_before_the_start_is_damage(block: bytes) -> None:
    with pytest.raises(ValueError, match="before its start"):
        decompression.lz4_head(block, 100)


def test_little_more_is_decompressed_than_was_asked_for() -> None:
    bomb = b"\x1fa\x01\x00" + b"\xff" * 100_000 + b"\x00"
    assert HEAD <= len(decompression.lz4_head(bomb, HEAD)) <= HEAD + 512
    assert len(decompression.lz4_head(b"\xf0" + b"\xff" * 100_000, HEAD)) <= HEAD + 512


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("zlacpy", "zlacpy"),
        ("_Z18zlacpy_conj_kerneliP7double2iS0_i", "zlacpy_conj_kernel"),
        ("_ZN2at6native4fillIfEEvPT_", "at::native::fill"),
        ("_ZN4demo12_GLOBAL__N_14fillEv", "demo::fill"),
        ("_ZN2atL4fillEv", "at::fill"),
        ("_Z", "_Z"),
        ("_ZN", "_ZN"),
        ("_ZN9999a", "a"),
    ],
)
def test_mangled_names_are_read_up_to_their_arguments(symbol: str, name: str) -> None:
    assert demangle(symbol) == name
