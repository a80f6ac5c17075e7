"""What the loader and a person see in the headers of one file."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from elf_images import ALLOC, DYNAMIC, NOBITS, NOTE, Image, Part

from buildmatrix.base.data import replace
from buildmatrix.facts.binaries.reader import Malformed, read_elf
from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.trees.archive import BytesSource, OpenFile

BUILD_ID = struct.pack("<III", 4, 20, 3) + b"GNU\0" + bytes(range(20))


def read(image: Image | bytes, *, deep: bool = True) -> Elf:
    data = image if isinstance(image, bytes) else image.build()
    elf = read_elf(BytesSource(data), len(data), deep=deep)
    assert elf is not None
    return elf


LIBRARY = Image(
    needed=["libcudart.so.12", "libc.so.6"],
    strings={14: "libexample.so.1", 15: "/opt/a:$ORIGIN", 29: "$ORIGIN/../lib::/b"},
    numbers={0x6FFFFFFB: 0x800},
    parts=[Part(".rodata", b"text\0")],
)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("little_endian", [True, False])
@pytest.mark.parametrize("section_headers", [True, False], ids=["sections", "stripped"])
def test_the_dynamic_section_is_read_in_every_layout_and_without_section_headers(
    bits: int, little_endian: bool, section_headers: bool
) -> None:
    elf = read(
        replace(LIBRARY, bits=bits, little_endian=little_endian, section_headers=section_headers)
    )
    assert (elf.bits, elf.little_endian, elf.machine, elf.type) == (
        bits,
        little_endian,
        "x86_64",
        "dyn",
    )
    assert elf.needed == ("libcudart.so.12", "libc.so.6")
    assert elf.soname == "libexample.so.1"
    assert elf.rpath == ("/opt/a", "$ORIGIN")
    assert elf.runpath == ("$ORIGIN/../lib", "", "/b")
    assert elf.flags_1 == 0x800
    assert [section.name for section in elf.sections] == (
        [".dynstr", ".dynamic", ".rodata", ".shstrtab"] if section_headers else []
    )
    assert elf.unread == ()


def test_a_file_without_the_magic_number_is_no_elf() -> None:
    for data in (b"", b"\x7fEL", b"#!/bin/sh\n", bytes(4096)):
        assert read_elf(BytesSource(data), len(data)) is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x7fELF", "ends inside the ELF identification"),
        (LIBRARY.build()[:40], "ends inside the ELF header"),
        (b"\x7fELF\x07" + LIBRARY.build()[5:], "the ELF class is 7"),
        (b"\x7fELF\x02\x00" + LIBRARY.build()[6:], "the ELF data encoding is 0"),
    ],
)
def test_an_unusable_header_is_malformed_and_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        read_elf(BytesSource(data), len(data))


def test_an_empty_search_path_names_no_folder() -> None:
    assert read(Image(needed=["libc.so.6"], strings={29: ""})).runpath == ()


def test_a_runpath_of_twenty_thousand_characters_is_read_whole() -> None:
    runpath = ":".join(["$ORIGIN/../../nvidia/cublas/lib"] * 640)[:20297]
    assert ":".join(read(Image(strings={29: runpath})).runpath) == runpath


def test_the_last_of_two_sonames_counts_as_it_does_for_the_loader() -> None:
    data = bytearray(Image(strings={14: "libfirst.so", 15: "libsecond.so"}).build())
    elf = read(bytes(data))
    assert elf.soname == "libfirst.so"
    tag = data.index(struct.pack("<Q", 15), 64 + 2 * 56)
    data[tag : tag + 8] = struct.pack("<Q", 14)
    assert read(bytes(data)).soname == "libsecond.so"


def test_names_that_are_no_utf8_stay_printable() -> None:
    data = Image(needed=["libXYZ.so"]).build().replace(b"libXYZ", b"lib\xff\xfe\xfd")
    assert read(data).needed == ("lib\\xff\\xfe\\xfd.so",)


def test_more_sections_than_the_header_can_count_are_all_read() -> None:
    parts = [Part(f".text.f{number % 100}", b"", flags=ALLOC) for number in range(70_000)]
    elf = read(Image(parts=parts, type=1))
    assert len(elf.sections) == 70_001
    assert elf.sections[-1].name == ".shstrtab"
    assert elf.unread == ()


@pytest.mark.parametrize("section_headers", [True, False])
def test_the_build_id_and_the_interpreter_are_read(section_headers: bool) -> None:
    image = Image(
        interpreter="/lib64/ld-linux-x86-64.so.2",
        parts=[Part(".note.gnu.build-id", BUILD_ID, NOTE)],
        section_headers=section_headers,
    )
    elf = read(image)
    assert elf.build_id == bytes(range(20)).hex()
    assert elf.interpreter == "/lib64/ld-linux-x86-64.so.2"
    assert elf.literals == () or not section_headers


def test_split_debug_information_has_no_dynamic_section_to_read() -> None:
    # objcopy --only-keep-debug keeps the program headers and turns the sections into SHT_NOBITS.
    data = bytearray(replace(LIBRARY, parts=[Part(".debug_info", b"x" * 64, flags=0)]).build())
    sections_at = struct.unpack_from("<Q", data, 40)[0]
    row = sections_at + 2 * 64
    assert struct.unpack_from("<I", data, row + 4)[0] == DYNAMIC
    struct.pack_into("<I", data, row + 4, NOBITS)
    elf = read(bytes(data))
    assert elf.needed == ()
    assert elf.unread == ()


def test_a_section_without_bytes_says_so() -> None:
    elf = read(Image(parts=[Part(".bss", b"", NOBITS, size=1 << 40)]))
    assert [(s.size, s.nobits) for s in elf.sections if s.name == ".bss"] == [(1 << 40, True)]


def test_tables_behind_the_end_of_the_file_are_told_as_unread() -> None:
    data = bytearray(LIBRARY.build())
    struct.pack_into("<Q", data, 40, 1 << 50)
    elf = read(bytes(data))
    assert elf.needed == ("libcudart.so.12", "libc.so.6")
    assert elf.sections == ()
    assert any("section header table" in why for why in elf.unread)


def test_a_cut_file_keeps_what_its_start_says() -> None:
    data = LIBRARY.build()
    elf = read(data[: data.index(b".shstrtab")])
    assert elf.needed == ("libcudart.so.12", "libc.so.6")
    assert elf.unread != ()


def test_a_name_outside_the_string_table_is_told_as_unread() -> None:
    data = bytearray(Image(needed=["libc.so.6"]).build())
    at = data.index(struct.pack("<QQ", 1, 1), 64)
    struct.pack_into("<Q", data, at + 8, 1 << 40)
    elf = read(bytes(data))
    assert elf.needed == ()
    assert elf.unread == (
        "1 strings of the dynamic section lie outside its string table or are too long",
    )


def test_the_headers_of_a_large_library_cost_kilobytes(tmp_path: Path) -> None:
    small = LIBRARY.build()
    path = tmp_path / "large.so"
    with path.open("wb") as file:
        file.write(small)
        file.seek(400 << 20)
        sections_at = struct.unpack_from("<Q", small, 40)[0]
        file.write(small[sections_at:])
        file.seek(40)
        file.write(struct.pack("<Q", 400 << 20))
    fd = os.open(path, os.O_RDONLY)
    try:
        source = OpenFile(fd)
        elf = read_elf(source, source.size, deep=False)
    finally:
        os.close(fd)
    assert elf is not None
    assert elf.needed == ("libcudart.so.12", "libc.so.6")
    assert len(elf.sections) == 4
    assert source.bytes_read < 32 << 10


def test_a_shallow_read_leaves_out_everything_that_has_to_be_searched() -> None:
    image = Image(parts=[Part(".rodata", b"\0libcuda.so.1\0")], machine=62)
    assert read(image, deep=False).literals == ()
    assert [literal.text for literal in read(image).literals] == ["libcuda.so.1"]


def test_a_file_that_ends_before_its_contents_is_told() -> None:
    whole = Image(parts=[Part(".rodata", b"x" * 5000)], section_headers=False).build()
    elf = read_elf(BytesSource(whole[:-1000]), len(whole) - 1000)
    assert elf is not None
    size = len(whole)
    assert elf.unread == (f"the file ends at {size - 1000}, and its contents go on to {size}",)
    complete = read_elf(BytesSource(whole), len(whole))
    assert complete is not None
    assert complete.unread == ()


def test_split_debug_information_is_no_file_that_was_cut_short() -> None:
    parts = [Part(".text", b"", NOBITS, size=1 << 20), Part(".debug_info", b"x" * 64, flags=0)]
    data = bytearray(Image(parts=parts).build())
    struct.pack_into("<Q", data, 64 + 32, 1 << 20)  # p_filesz of the object that was split
    elf = read_elf(BytesSource(bytes(data)), len(data))
    assert elf is not None
    assert elf.unread == ()
