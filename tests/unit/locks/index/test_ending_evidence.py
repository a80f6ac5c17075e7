"""What else the end of a library proves: what it links, and which section is device code."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from elf_images import Image, Part, fat_binary, fat_entry
from headcases import whole
from test_ending import LIBRARIES, LIBRARY, NAME, deflated, noise, text

from buildmatrix.facts.binaries.stream import EndSections, HeadReader, begins_device_code, read_end
from buildmatrix.facts.inventory.model import Binary
from buildmatrix.facts.trees.archive import BytesSource
from buildmatrix.locks.index import ends
from buildmatrix.locks.index.depth import read_parts
from buildmatrix.locks.index.model import ENDS
from buildmatrix.locks.index.parts import Ending, inflate_end, inflate_middle
from buildmatrix.locks.index.wheels import _LocalWheel


def told_by_table(library: bytes) -> EndSections:
    """What the table of sections tells without their names."""
    (table,) = struct.unpack_from("<Q", library, 40)
    told = read_end(library[:4096], Ending(*[library[table:]] * 3), len(library))
    assert told is not None
    return told


def test_what_a_library_links_is_known_by_its_beginning_and_its_end() -> None:
    seen = 0
    for path in LIBRARIES:
        data = path.read_bytes()
        full = whole(data)
        end = inflate_end(deflated(data)[-ENDS[-1] :])
        told = read_end(data[:4096], end, len(data)) if end is not None else None
        if told is None or not told.linking:
            continue
        begun = len(data) // 2
        reader = HeadReader(BytesSource(data), len(data))
        reader.read_to(begun)
        for start, piece in told.linking:
            assert data[start : start + len(piece)] == piece
            reader.lend(start, piece)
        head = reader.head()
        assert head is not None
        if head.elf.dynamic_read:
            seen += 1
            assert (head.elf.needed, head.elf.soname) == (full.needed, full.soname)
            assert head.elf.read == begun
    assert seen * 2 >= len(LIBRARIES)


def test_a_section_without_its_name_is_likely_by_length_type_and_flags() -> None:
    (likely,) = told_by_table(LIBRARY).likely
    (section,) = (one for one in whole(LIBRARY).sections if one.name == ".nv_fatbin")
    assert likely == section
    assert not told_by_table(LIBRARY).named
    # Other flags, or another length of the name, are those of another section.
    for part in (
        Part(".nv_fatbin", text(9000), flags=6),
        Part(".nv_fatbins", text(9000), flags=3),
        Part(".rodata", text(9000)),
    ):
        library = Image(needed=("libc.so.6",), parts=(part, Part(".data", text(900)))).build()
        assert not told_by_table(library).likely


@cache
def device_code() -> bytes:
    return b"".join(fat_binary(fat_entry(2, 90, text(60_000, seed))) for seed in range(40))


def test_a_middle_shows_device_code_only_where_all_of_its_header_is_known() -> None:
    code = device_code()
    packed = deflated(text(1 << 20) + code)
    middle = inflate_middle(packed[-(512 << 10) : -1000])
    assert middle is not None
    assert begins_device_code(middle.copies, ".nv_fatbin")
    assert not begins_device_code(middle.copies, ".hip_fatbin")
    plain = inflate_middle(deflated(text(4 << 20))[200_000:600_000])
    assert plain is not None
    assert not begins_device_code(plain.copies, ".nv_fatbin")
    place = code.index(struct.pack("<I", 0xBA55ED50), 1)
    part = code[: place + 200]
    header = bytearray(part)
    header[0] ^= 1
    header[place] ^= 1
    assert not begins_device_code((part, bytes(header)), ".nv_fatbin")


def test_bytes_that_are_no_deflate_stream_have_no_middle() -> None:
    for data in (b"", bytes(64 << 10), noise(64 << 10)):
        assert inflate_middle(data) is None


def names_out_of_reach(library: bytes) -> bytes:
    """The library with much between the names of its sections and their table."""
    (table,) = struct.unpack_from("<Q", library, 40)
    moved = library[:table] + text(2 << 20, 77) + library[table:]
    return moved[:40] + struct.pack("<Q", table + (2 << 20)) + moved[48:]


def looked_into(tmp_path: Path, library: bytes, most: int) -> Binary:
    path = tmp_path / NAME
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("alpha/lib.so", library)
        archive.writestr("alpha-1.0.dist-info/METADATA", "Name: alpha\nVersion: 1.0\n")
        archive.writestr("alpha-1.0.dist-info/RECORD", "")
    with _LocalWheel(path) as source:
        (binary,) = read_parts(source, "heads", most).inventory.binaries
    return binary


@pytest.mark.parametrize(
    ("build", "is_device_code"),
    [
        pytest.param(lambda code: code * 2, True, id="fat binaries"),
        pytest.param(lambda code: text(len(code) * 2, 5), False, id="anything else"),
        pytest.param(
            lambda code: code[:60_000] + text(len(code) * 2, 5), False, id="one fat binary"
        ),
    ],
)
def test_a_likely_section_counts_where_device_code_shows_in_the_middle(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    build: Callable[[bytes], bytes],
    is_device_code: bool,
) -> None:
    content = build(device_code())
    monkeypatch.setattr(ends, "MUCH_DEVICE_CODE", 2 << 20)
    monkeypatch.setattr(ends, "MIDDLE", 128 << 10)
    parts = (Part(".text", text(1 << 20), flags=6), Part(".nv_fatbin", content))
    library = names_out_of_reach(Image(parts=parts, needed=("libc.so.6",)).build())
    elf = looked_into(tmp_path, library, 1_500_000).elf
    assert elf.read is not None
    (size,) = [one.size for one in elf.sections if one.name == ".nv_fatbin"] or [0]
    assert size == (len(content) if is_device_code else 0)
