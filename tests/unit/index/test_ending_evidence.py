"""What else the end of a library proves: what it links. Sections without names prove nothing."""

from __future__ import annotations

import struct
from pathlib import Path

from elf_images import Image, Part
from headcases import whole
from test_ending import LIBRARIES, deflated, looked_into, text

from buildmatrix.binaries.ending import read_end
from buildmatrix.binaries.head import HeadReader
from buildmatrix.elf.source import BytesSource
from buildmatrix.index.amounts import ENDS
from buildmatrix.index.ending import inflate_end


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


def names_out_of_reach(library: bytes) -> bytes:
    """The library with much between the names of its sections and their table."""
    (table,) = struct.unpack_from("<Q", library, 40)
    moved = library[:table] + text(2 << 20, 77) + library[table:]
    return moved[:40] + struct.pack("<Q", table + (2 << 20)) + moved[48:]


def test_sections_whose_names_are_out_of_reach_stay_data(tmp_path: Path) -> None:
    content = text(3 << 20, 5)
    parts = (Part(".text", text(1 << 20), flags=6), Part(".nv_fatbin", content))
    library = Image(parts=parts, needed=("libc.so.6",)).build()
    plain = looked_into(tmp_path, library, 200_000).elf
    assert (".nv_fatbin", len(content)) in [(one.name, one.size) for one in plain.sections]
    elf = looked_into(tmp_path, names_out_of_reach(library), 200_000).elf
    assert ".nv_fatbin" not in [one.name for one in elf.sections]
    assert elf.unread_data >= len(content) - 200_000
