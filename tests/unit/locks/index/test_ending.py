"""The end of a deflated library tells its sections, without what lies before it."""

from __future__ import annotations

import itertools
import random
import struct
import zipfile
import zlib
from pathlib import Path

import pytest
from elf_images import Image, Part, fat_binary, fat_entry
from headcases import fed, whole

from buildmatrix.facts.binaries.stream import UNKNOWN, EndSections, add_end_sections, read_end
from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.inventory.model import Binary
from buildmatrix.locks.index.depth import read_parts
from buildmatrix.locks.index.model import ENDS
from buildmatrix.locks.index.parts import Ending, inflate_end
from buildmatrix.locks.index.wheels import _LocalWheel

NAME = "alpha-1.0-py3-none-any.whl"
CUT = 64 << 10


def system_libraries() -> list[Path]:
    folders = (Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib/aarch64-linux-gnu"))
    found = {
        path.resolve()
        for folder in folders
        if folder.is_dir()
        for path in folder.glob("lib*.so*")
        if path.is_file() and 1_000_000 < path.stat().st_size < 6 << 20
    }
    return sorted(found)[:4]


LIBRARIES = system_libraries()


def deflated(data: bytes, level: int = 6) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def text(size: int, seed: int = 1) -> bytes:
    """Bytes that deflate shrinks as it does code: with codes of their own in each block."""
    chance = random.Random(seed)
    words = [chance.randbytes(chance.randint(2, 9)) for _ in range(3000)]
    # `join` takes 80 bytes for each word while it runs.
    parts = (b"".join(chance.choices(words, k=10_000)) for _ in range(size // 40_000 + 1))
    return b"".join(parts)[:size]


# The end of a stream


@pytest.mark.parametrize("path", LIBRARIES, ids=[path.name for path in LIBRARIES])
@pytest.mark.parametrize("level", [1, 9])
def test_what_is_known_of_an_end_is_what_is_there(path: Path, level: int) -> None:
    data = path.read_bytes()
    end = inflate_end(deflated(data, level)[-CUT:])
    assert end is not None
    there = data[-len(end) :]
    stands_for: dict[int, int] = {}
    for code, byte in zip(end.codes(0, len(end)), there, strict=True):
        if code < UNKNOWN:
            assert code == byte
        else:
            assert stands_for.setdefault(code, byte) == byte


def test_bytes_that_are_no_deflate_stream_have_no_end() -> None:
    assert inflate_end(b"") is None
    assert inflate_end(bytes(CUT)) is None
    assert inflate_end(noise(CUT)) is None
    assert inflate_end(noise(CUT)[:1]) is None


def test_a_stream_that_stores_its_bytes_as_they_are_is_known_from_a_block_on() -> None:
    data = noise(1 << 20)
    end = inflate_end(deflated(data)[-CUT:])
    assert end is not None
    assert len(end) > CUT // 4
    assert end.known_bytes(0, len(end)) == data[-len(end) :]


def test_an_end_that_goes_on_behind_the_stream_is_none() -> None:
    packed = deflated(text(1 << 20))
    assert inflate_end(packed[-CUT:]) is not None
    assert inflate_end((packed + noise(1000))[-CUT:]) is None


def test_a_bomb_is_not_inflated_beyond_what_is_allowed() -> None:
    packer = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    zeros = [bytes(1 << 20)] * 64
    packed = b"".join(map(packer.compress, (text(1 << 20), *zeros))) + packer.flush()
    bomb = packed[-CUT:]
    assert inflate_end(bomb) is None
    assert inflate_end(bomb, most=1 << 20) is None


# Sections


def sections_told(path: Path, level: int) -> Elf | None:
    data = path.read_bytes()
    head = fed(data, 100_000, 50_000).elf
    for length in ENDS:
        end = inflate_end(deflated(data, level)[-length:])
        told = read_end(data[:4096], end, len(data)) if end is not None else None
        if told is not None:
            elf = add_end_sections(head, told)
            assert elf.unread_data <= head.unread_data
            return elf
    return None


@pytest.mark.parametrize("level", [1, 6, 9])
def test_the_ends_of_real_libraries_say_what_their_tables_of_sections_say(level: int) -> None:
    found = {path: sections_told(path, level) for path in LIBRARIES}
    for path, elf in found.items():
        full = whole(path.read_bytes())
        for one, other in zip(elf.sections, full.sections, strict=True) if elf is not None else ():
            assert (one.offset, one.size, one.nobits) == (other.offset, other.size, other.nobits)
            assert one.name == other.name or "?" in one.name
    assert sum(elf is not None for elf in found.values()) * 4 >= len(found) * 3


def test_an_end_with_too_few_bytes_says_nothing() -> None:
    data = Image(parts=(Part(".data", text(200_000)),)).build()
    assert read_end(data[:4096], Ending(*[data[-100:]] * 3), len(data)) is None
    assert read_end(data[:20], Ending(*[data[-5000:]] * 3), len(data)) is None


LIBRARY = Image(
    needed=("libc.so.6",),
    parts=(
        Part(".nv_fatbin", text(200_000)),
        Part(".eh_frame", text(300_000, 2)),
        Part(".rodata", text(100_000, 3)),
    ),
).build()
#: Of its table of sections: number of a row, and of bytes in one.
NV_FATBIN, EH_FRAME, DYNAMIC, ROW = 3, 4, 2, 64
#: Places of the fields in a row.
NAME_AT, TYPE, FLAGS, ADDRESS, OFFSET, SIZE = 0, 4, 8, 16, 24, 32


def told_of(library: bytes, known: int = 5000) -> EndSections | None:
    return read_end(LIBRARY[:4096], Ending(*[library[-known:]] * 3), len(LIBRARY))


def changed(row: int, field: int, number: int, width: int = 8) -> bytes:
    data = bytearray(LIBRARY)
    (table,) = struct.unpack_from("<Q", data, 40)
    at = table + row * ROW + field
    data[at : at + width] = number.to_bytes(width, "little")
    return bytes(data)


def test_what_no_section_claims_stays_data() -> None:
    told = told_of(LIBRARY)
    assert told is not None
    assert sum(end - start for start, end in told.data) == pytest.approx(300_000, abs=1000)
    # The table says nothing of the device code any more: it is there all the same.
    hidden = told_of(changed(NV_FATBIN, FLAGS, 0))
    assert hidden is not None
    assert sum(end - start for start, end in hidden.data) == pytest.approx(300_000, abs=1000)


@pytest.mark.parametrize(
    ("row", "field", "number"),
    [
        pytest.param(0, SIZE, 7, id="something before the first section"),
        pytest.param(DYNAMIC, OFFSET, 0x400, id="the dynamic section elsewhere"),
        pytest.param(DYNAMIC, SIZE, 0x10, id="the dynamic section shorter"),
        pytest.param(EH_FRAME, SIZE, 390_000, id="two sections in one place"),
        pytest.param(EH_FRAME, OFFSET, 16, id="two sections in one place, the other way"),
        pytest.param(EH_FRAME, SIZE, 1 << 40, id="behind the file"),
        pytest.param(EH_FRAME, ADDRESS, 0x40, id="loaded to another address"),
        pytest.param(EH_FRAME, NAME_AT, 1 << 20, id="a name that is nowhere"),
    ],
)
def test_a_table_that_cannot_be_that_of_the_file_is_not_believed(
    row: int, field: int, number: int
) -> None:
    assert told_of(changed(row, field, number, 4 if field == NAME_AT else 8)) is None


def test_a_table_of_another_file_is_not_believed() -> None:
    other = Image(needed=("libm.so.6", "libc.so.6"), parts=(Part(".eh_frame", text(9000)),))
    library = LIBRARY[:-2000] + other.build()[-2000:]
    assert told_of(library) is None


def test_a_file_whose_segments_say_nothing_about_its_table_has_no_end() -> None:
    data = Image(parts=(Part(".eh_frame", text(200_000)),)).build()
    assert read_end(data[:4096], Ending(*[data[-5000:]] * 3), len(data)) is None


class Guessed(Ending):
    """An end with unknown bytes: offset → number of the byte that it is a copy of."""

    def __init__(self, data: bytes, unknown: dict[int, int]) -> None:
        super().__init__(data, data, data)
        self._unknown = unknown

    def codes(self, start: int, stop: int) -> list[int]:
        found = super().codes(start, stop)
        for at, number in self._unknown.items():
            if start <= at < stop:
                found[at - start] = UNKNOWN + number
        return found


def unknown_end(places: dict[int, int], known: int = 5000) -> EndSections | None:
    """What is told where the bytes at these places of the library are unknown."""
    start = len(LIBRARY) - known
    end = Guessed(LIBRARY[start:], {at - start: number for at, number in places.items()})
    return read_end(LIBRARY[:4096], end, len(LIBRARY))


def place_of(row: int, field: int) -> int:
    (table,) = struct.unpack_from("<Q", LIBRARY, 40)
    return int(table + row * ROW + field)


def test_what_unknown_bytes_can_only_be_is_filled_in_and_nothing_else() -> None:
    # The highest byte of a size can only be zero; a letter of a name cannot.
    letter = LIBRARY.rindex(b".eh_frame\0") + 1
    assert unknown_end({place_of(EH_FRAME, SIZE) + 7: 1}) == told_of(LIBRARY)
    assert unknown_end({letter: 2}) == told_of(LIBRARY)
    both = unknown_end({place_of(EH_FRAME, SIZE) + 7: 1, letter: 1})
    assert both is not None
    assert sum(end - start for start, end in both.data) > 590_000
    start = LIBRARY.rindex(b"\0.dynstr\0")
    first = unknown_end({start: 1})
    assert first == told_of(LIBRARY)


def test_a_section_whose_place_or_size_is_unknown_leaves_the_file_undecided() -> None:
    for field in (TYPE, FLAGS, OFFSET, SIZE):
        assert unknown_end({place_of(EH_FRAME, field): 1}) is None


def test_a_section_whose_name_may_be_another_one_stays_data() -> None:
    name = LIBRARY.rindex(b".eh_frame\0")
    told = unknown_end({name + at: at for at in range(1, 9)})
    assert told is not None
    assert sum(end - start for start, end in told.data) > 590_000
    # Nor is device code taken for anything else, however little of its name is known.
    name = LIBRARY.rindex(b".nv_fatbin\0")
    for left in itertools.combinations(range(10), 3):
        unknown = {name + at: at for at in range(11) if at not in left}
        told = unknown_end(unknown)
        assert told is None or sum(end - start for start, end in told.data) > 290_000


def test_a_stream_within_a_stored_block_cannot_make_a_file_say_what_its_segments_deny() -> None:
    # What lies in a stored block looks like blocks of the stream itself, and ends where it does.
    other = Image(needed=("libm.so.6",), parts=(Part(".eh_frame", text(300_000)),)).build()
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    false = packer.compress(other) + packer.flush(zlib.Z_SYNC_FLUSH)
    stored = zlib.compressobj(0, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = stored.compress(false[-60_000:]) + stored.flush(zlib.Z_SYNC_FLUSH)
    packed = deflated(LIBRARY)[:10] + body + b"\x03\x00"
    end = inflate_end(packed[-(64 << 10) :])
    assert end is None or read_end(LIBRARY[:4096], end, len(LIBRARY)) is None


@pytest.mark.parametrize("seed", range(30))
def test_no_end_makes_the_reader_fail(seed: int) -> None:
    chance = random.Random(seed)
    data = LIBRARY
    head = fed(data, 70_000, 50_000).elf
    page = bytearray(data[:4096])
    end = bytearray(data[-4000:])
    for _ in range(chance.randint(1, 40)):
        end[chance.randrange(len(end))] = chance.randrange(256)
        page[chance.randrange(4, 64)] = chance.randrange(256)
    told = read_end(bytes(page), Ending(*[bytes(end)] * 3), len(data))
    assert told is None or add_end_sections(head, told).unread_data <= head.unread_data


# Wheels


def looked_into(tmp_path: Path, library: bytes, most: int) -> Binary:
    path = tmp_path / NAME
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("alpha/lib.so", library)
        archive.writestr("alpha-1.0.dist-info/METADATA", "Name: alpha\nVersion: 1.0\n")
        archive.writestr("alpha-1.0.dist-info/RECORD", "")
    with _LocalWheel(path) as source:
        (binary,) = read_parts(source, "heads", most).inventory.binaries
    return binary


def test_device_code_that_was_not_reached_is_known_by_its_section(tmp_path: Path) -> None:
    code = fat_binary(fat_entry(2, 90, text(2_000_000, 2)))
    library = Image(
        parts=(Part(".text", text(8_000_000), flags=6), Part(".nv_fatbin", code)),
        needed=("libc.so.6",),
    ).build()
    binary = looked_into(tmp_path, library, 600_000)
    sections = {one.name: one.size for one in binary.elf.sections}
    assert not binary.elf.device_code
    assert sections[".nv_fatbin"] == len(code)


def test_tables_for_unwinding_are_no_room_for_device_code(tmp_path: Path) -> None:
    parts = (
        Part(".text", text(4_000_000), flags=6),
        Part(".rodata", text(300_000, 2)),
        Part(".eh_frame", text(3_000_000, 3)),
    )
    library = Image(parts=parts, needed=("libc.so.6",)).build()
    assert looked_into(tmp_path, library, 200_000).elf.unread_data == 300_000
    assert looked_into(tmp_path, library, 90_000).elf.unread_data > 3_000_000
