"""Names of libraries in data and code, and marks of static runtimes."""

from __future__ import annotations

import random

import pytest
from elf_images import ALLOC, EXEC, STRTAB, Image, Part

from buildmatrix.facts.binaries.reader import read_elf
from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.elf.search import AFTER, CHUNK, MARKS
from buildmatrix.facts.trees.archive import BytesSource


def read(*parts: Part, needed: tuple[str, ...] = (), section_headers: bool = True) -> Elf:
    data = Image(parts=parts, needed=needed, section_headers=section_headers).build()
    elf = read_elf(BytesSource(data), len(data))
    assert elf is not None
    return elf


def names(data: bytes, name: str = ".rodata", flags: int = ALLOC) -> list[str]:
    return [literal.text for literal in read(Part(name, data, flags=flags)).literals]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\0libcuda.so.1\0", ["libcuda.so.1"]),
        (b"\0libOpenCL.so\0", ["libOpenCL.so"]),
        (b"\0libstdc++.so.6.0.30\0", ["libstdc++.so.6.0.30"]),
        (b"\0libcudart-9335f6a2.so.12\0", ["libcudart-9335f6a2.so.12"]),
        (b"\0ld-linux-x86-64.so.2\0", ["ld-linux-x86-64.so.2"]),
        (b"\0/usr/lib/wsl/lib/libdxcore.so\0", ["libdxcore.so"]),
        (b"\0Failed to load libcuda.so. Check the driver\0", ["libcuda.so"]),
        (b"\0probe libA.so first, then libA.so.0\0", ["libA.so", "libA.so.0"]),
        (b"\0dlopen `libvulkan.so.1` failed\0", ["libvulkan.so.1"]),
        (b"\0libop_plugin.so.debug\0", ["libop_plugin.so"]),
    ],
)
def test_names_are_found_alone_in_paths_and_in_sentences(data: bytes, expected: list[str]) -> None:
    assert names(data) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"libnvidia-ml.so.1libnvidia-ml.solibcuda.so", None),
        (b"could not loadlibvulkan.so.1Falling back", ["libvulkan.so.1"]),
        (b"opening libcuda.soFailed to open", ["libcuda.so"]),
    ],
)
def test_string_tables_without_nul_are_cut_into_names(
    data: bytes, expected: list[str] | None
) -> None:
    assert names(data) == (expected or ["libnvidia-ml.so.1", "libnvidia-ml.so", "libcuda.so"])


@pytest.mark.parametrize(
    "data",
    [
        b"\0library.source\0",
        b"\0from zlib.solver import x\0",
        b"\0module.cpython-311-x86_64-linux-gnu.so\0",
        b"\0lib%s.so\0",
        b"\0lib.so\0",
        b"\0.so.1\0",
        b"\0/etc/ld.so.cache\0",
        b"\0a.sort\0",
    ],
)
def test_what_only_resembles_a_name_is_left_alone(data: bytes) -> None:
    assert names(data) == []


def test_a_whole_string_is_told_from_a_part_of_one() -> None:
    text = b"\0cannot find libinside.so.1\0libalone.so.1\0/opt/lib/libpath.so\0see /lib/libsee.so\0"
    literals = read(Part(".rodata", text)).literals
    assert {literal.text: literal.exact for literal in literals} == {
        "libinside.so.1": False,
        "libalone.so.1": True,
        "libpath.so": True,
        "libsee.so": False,
    }


def test_a_name_that_occurs_both_ways_counts_as_a_whole_string() -> None:
    (literal,) = read(Part(".rodata", b"\0cannot find libx.so.1\0libx.so.1\0")).literals
    assert literal.exact


def test_symbol_and_string_tables_and_debug_information_do_not_count() -> None:
    elf = read(
        Part(".strtab", b"\0cudaMalloc@libcudart.so.13\0", STRTAB, 0),
        Part(".dynstr.old", b"\0libcudart.so.12\0", STRTAB, ALLOC),
        Part(".debug_str", b"\0libdebug.so.1\0", flags=0),
        Part(".comment", b"\0libcomment.so.1\0", flags=0),
        needed=("libneeded.so.1",),
    )
    assert elf.needed == ("libneeded.so.1",)
    assert elf.literals == ()


def test_without_section_headers_needed_names_are_still_no_literals() -> None:
    elf = read(
        Part(".rodata", b"\0libwanted.so.1\0"), needed=("libneeded.so.1",), section_headers=False
    )
    assert elf.needed == ("libneeded.so.1",)
    assert [literal.text for literal in elf.literals] == ["libwanted.so.1"]


def test_device_code_sections_are_not_searched_for_names() -> None:
    assert names(b"\0libfake.so.1\0", ".hip_fatbin") == []


def test_the_half_of_a_name_that_a_compiler_split_into_operands_is_no_name() -> None:
    code = b"\x48\xb8CL.so.1\0\x48\x89\x44\x24\x0f\x48\xb8libOpenC"
    assert names(code, ".text", ALLOC | EXEC) == []
    assert names(b"\0libcode.so.1\0", ".text", ALLOC | EXEC) == ["libcode.so.1"]


def test_the_offset_is_that_of_the_name_in_the_file() -> None:
    part = Part(".rodata", b"x" * 777 + b"\0libcuda.so.1\0")
    data = Image(parts=[part]).build()
    elf = read_elf(BytesSource(data), len(data))
    assert elf is not None
    (literal,) = elf.literals
    assert data[literal.offset :].startswith(b"libcuda.so.1\0")
    assert literal.section == ".rodata"


@pytest.mark.parametrize("shift", [-200, -AFTER, -20, -12, -8, -4, -1, 0, 1, AFTER])
def test_names_and_marks_across_the_border_of_two_reads_are_found_once(shift: int) -> None:
    noise = random.Random(7).randbytes(3 * CHUNK).replace(b".so", b"...")
    data = bytearray(noise)
    for border in (CHUNK, 2 * CHUNK):
        name = f"\0libborder{border}.so.1\0".encode()
        data[border + shift : border + shift + len(name)] = name
    mark = MARKS["cudart-error-string"]
    at = CHUNK + shift - 400
    data[at : at + len(mark)] = mark
    elf = read(Part(".rodata", bytes(data)))
    assert [literal.text for literal in elf.literals] == [
        f"libborder{CHUNK}.so.1",
        f"libborder{2 * CHUNK}.so.1",
    ]
    assert [mark.name for mark in elf.marks] == ["cudart-error-string"]


def test_every_mark_is_found_in_data() -> None:
    elf = read(Part(".rodata", b"\0".join(MARKS.values()) + b"\0"))
    assert {mark.name for mark in elf.marks} == set(MARKS)


def test_no_mark_is_longer_than_what_is_kept_behind_a_window() -> None:
    assert max(map(len, MARKS.values())) <= AFTER


def test_a_flood_of_names_is_cut_off_and_told() -> None:
    flood = b"".join(b"lib%d.so.1\0" % number for number in range(6000))
    elf = read(Part(".rodata", flood))
    assert len(elf.literals) == 4096
    assert elf.unread == ("more than 4096 names of libraries: only the first are kept",)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        # wandb-symon of wandb 0.31.0, a program in Rust
        (b"src/vec/spec_from_iter_nested.rslibnvidia-ml.so.1U32U64could not", "libnvidia-ml.so.1"),
        (b"threadspipeTensorActivelibrocm_smi64.soperf_determinism", "librocm_smi64.so"),
        (b"wandb_internal.rs/opt/rocm/lib/librocm_smi64.sorsmi_init\0", "librocm_smi64.so"),
    ],
)
def test_names_in_tables_without_nul_are_told_from_parts_of_sentences(
    data: bytes, name: str
) -> None:
    (literal,) = read(Part(".rodata", b"\0" + data + b"\0")).literals
    assert (literal.text, literal.exact, literal.packed) == (name, False, True)


@pytest.mark.parametrize(
    "data",
    [
        b"AMD GPU metrics disabledlibrocm_smi64.so not found",
        b"cannot load libcuda.so.1, is the driver there?",
        b"\0/opt/lib/libcuda.so.1\0",
    ],
)
def test_a_name_with_something_around_it_is_not_packed(data: bytes) -> None:
    assert not any(one.packed for one in read(Part(".rodata", data)).literals)


def test_a_word_behind_a_name_in_a_sentence_makes_it_none() -> None:
    assert names(b"\0see libfoo.source for more\0") == []
