"""Instruction levels in the GNU properties, as ld.so reads them."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from pathlib import Path

import pytest
from elf_images import NOTE, Image, Part

from buildmatrix.facts.binaries.reader import read_elf
from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.elf.notes import level_number
from buildmatrix.facts.trees.archive import BytesSource

NEEDED, USED = 0xC0008002, 0xC0010002
DAMAGED = ("a GNU property note has a property of an impossible size",)


def read(data: bytes) -> Elf:
    elf = read_elf(BytesSource(data), len(data), deep=False)
    assert elf is not None
    return elf


def properties(*pairs: tuple[int, int], bits: int = 64, order: str = "<") -> bytes:
    body = b"".join(
        struct.pack(order + "III", kind, 4, mask) + bytes(4 if bits == 64 else 0)
        for kind, mask in pairs
    )
    return note(body, order)


def note(body: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "III", 4, len(body), 5) + b"GNU\0" + body


def object_with(
    *notes: bytes, bits: int = 64, machine: int = 62, align: int | None = None
) -> bytes:
    image = Image(
        bits=bits,
        machine=machine,
        parts=[Part(f".note.{number}", data, NOTE) for number, data in enumerate(notes)],
        note_align=bits // 8 if align is None else align,
    )
    return image.build()


@pytest.mark.parametrize(
    ("mask", "level"),
    [
        (0, None),
        (1, "x86-64"),
        (2, "x86-64-v2"),
        (0b111, "x86-64-v3"),
        (8, "x86-64-v4"),
        (1 << 31, "x86-64-v32"),
    ],
)
def test_the_highest_bit_is_the_level(mask: int, level: str | None) -> None:
    elf = read(object_with(properties((NEEDED, mask))))
    assert (elf.isa_needed, elf.isa_used, elf.unread) == (level, None, ())


def test_what_is_needed_and_what_is_used_are_told_apart() -> None:
    # Between them as compilers write them: shadow stacks (a mask), and a property of no bytes.
    odd = struct.pack("<II", 0xC0008003, 0)
    body = b"".join(
        (
            struct.pack("<IIII", 0xC0000002, 4, 3, 0),
            struct.pack("<IIII", NEEDED, 4, 3, 0),
            odd,
            struct.pack("<IIII", USED, 4, 8, 0),
        )
    )
    elf = read(object_with(note(body)))
    assert (elf.isa_needed, elf.isa_used) == ("x86-64-v2", "x86-64-v4")


def test_properties_of_a_32_bit_object_are_padded_to_four_bytes() -> None:
    data = object_with(properties((NEEDED, 4), (USED, 8), bits=32), bits=32, machine=3)
    assert (read(data).isa_needed, read(data).isa_used) == ("x86-64-v3", "x86-64-v4")


def test_a_number_that_another_machine_uses_otherwise_is_no_level() -> None:
    assert read(object_with(properties((NEEDED, 8)), machine=183)).isa_needed is None


def test_only_the_first_note_counts_and_only_where_it_is_aligned() -> None:
    first, second = properties((NEEDED, 2)), properties((NEEDED, 8))
    assert read(object_with(first, second)).isa_needed == "x86-64-v2"
    assert read(object_with(second, align=4)).isa_needed is None


@pytest.mark.parametrize(
    "body",
    [
        struct.pack("<II", NEEDED, 0xFFFFFFFF),
        struct.pack("<IIQ", NEEDED, 8, 8),
        struct.pack("<III", NEEDED, 2, 8) + bytes(4),
        struct.pack("<IIII", 0xC0000002, 0xFFFFFFF0, 3, 0),
    ],
)
def test_a_property_whose_size_lies_is_told_and_says_nothing(body: bytes) -> None:
    elf = read(object_with(note(body)))
    assert (elf.isa_needed, elf.unread) == (None, DAMAGED)


@pytest.mark.parametrize(
    "body",
    [
        struct.pack("<I", NEEDED),
        # ld.so leaps over what a property says to have, too.
        struct.pack("<IIII", 0xC0000002, 9, 3, 0) + struct.pack("<IIII", NEEDED, 4, 8, 0),
    ],
)
def test_a_property_that_is_cut_off_says_nothing(body: bytes) -> None:
    elf = read(object_with(note(body)))
    assert (elf.isa_needed, elf.unread) == (None, ())


def test_a_note_full_of_properties_is_read_within_its_bound() -> None:
    many = note(struct.pack("<II", 0xC0000001, 0) * 100_000)
    elf = read(object_with(many))
    assert elf.isa_needed is None
    assert any("groups of notes" in why for why in elf.unread)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("x86-64", 1),
        ("x86-64-v4", 4),
        ("x86-64-v0", None),
        ("x86-64-v3 ", None),
        ("z14", None),
        ("", None),
    ],
)
def test_the_number_of_a_level(name: str, number: int | None) -> None:
    assert level_number(name) == number


def test_ld_so_refuses_what_is_needed_and_nothing_else(tmp_path: Path) -> None:
    """The levels of a real linker; no processor has the 20th one, whose bit is then set."""
    source = tmp_path / "x.c"
    source.write_text("int answer(void) { return 42; }\n")
    for level in ("", "-v2", "-v3", "-v4"):
        flag = f"-Wl,-z,x86-64{level or '-baseline'}"
        library = tmp_path / f"lib{level}.so"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-nostdlib", flag, str(source), "-o", str(library)],
            check=True,
        )
        assert read(library.read_bytes()).isa_needed == f"x86-64{level}"
    plain = (tmp_path / "lib.so").read_bytes()
    before = struct.pack("<III", NEEDED, 4, 1)
    assert plain.count(before) == 1
    ctypes.CDLL(str(tmp_path / "lib.so"))
    for kind, refused in ((NEEDED, True), (USED, False)):
        changed = plain.replace(before, struct.pack("<III", kind, 4, 1 | 1 << 19))
        library = tmp_path / f"{kind:x}.so"
        library.write_bytes(changed)
        elf = read(changed)
        assert (elf.isa_needed if refused else elf.isa_used) == "x86-64-v20"
        if refused:
            with pytest.raises(OSError, match="CPU ISA level is lower than required"):
                ctypes.CDLL(str(library))
        else:
            ctypes.CDLL(str(library))
