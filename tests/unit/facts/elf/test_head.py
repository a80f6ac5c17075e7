"""The head of an ELF file says nothing that the whole file would not say."""

from __future__ import annotations

import random
import struct
import tracemalloc
from pathlib import Path

import pytest
from elf_images import NOTE, Image, Part, bundle, fat_binary, fat_entry
from headcases import assert_says_no_more, fed, whole

from buildmatrix.base.data import replace
from buildmatrix.facts.binaries.stream import Head, HeadReader, Malformed
from buildmatrix.facts.trees.archive import BytesSource, OpenFile

FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/bin", "/usr/lib64")
CUDART = b"CUDA driver version is insufficient for CUDA runtime version\0"


def system_files() -> list[Path]:
    found = {
        path.resolve()
        for folder in FOLDERS
        if Path(folder).is_dir()
        for path in sorted(Path(folder).iterdir())
        if path.is_file() and 100_000 < path.stat().st_size < 8 << 20
    }
    elves = [path for path in sorted(found) if path.open("rb").read(4) == b"\x7fELF"]
    return elves[:: max(1, len(elves) // 40)]


def test_a_part_of_a_real_library_says_no_more_than_all_of_it(subtests: pytest.Subtests) -> None:
    for path in system_files():
        data = path.read_bytes()
        full = whole(data)
        for size in (4096, 20_000, 65_536, len(data) // 2, len(data) - 1):
            with subtests.test(path=path, size=size):
                head = fed(data, size, 7001)
                assert head.elf.read == size
                assert_says_no_more(head.elf, full)


def test_most_real_libraries_show_what_they_link_before_their_dynamic_section() -> None:
    shown = 0
    files = system_files()
    for path in files:
        data = path.read_bytes()
        full = whole(data)
        shown += set(full.needed) <= set(fed(data, len(data) * 2 // 3, 1 << 20).elf.linked_names)
    assert shown > len(files) // 2


def read_head(data: bytes, size: int) -> Head | None:
    """What `data`, the beginning of a file of `size` bytes, says."""
    reader = HeadReader(BytesSource(data), size)
    reader.read_to(len(data))
    return reader.head()


def library(*, needed: tuple[str, ...] = ("libz.so.1",), parts: tuple[Part, ...] = ()) -> Image:
    return Image(needed=needed, parts=parts)


def test_device_code_is_told_with_a_note_that_there_may_be_more() -> None:
    code = fat_binary(*(fat_entry(2, arch) for arch in (80, 90)), fat_entry(1, 90))
    later = fat_binary(fat_entry(2, 120))
    gap = Part(".rodata", b"x" * 400_000)
    data = library(parts=(Part(".nv_fatbin", code), gap, Part("__nv_relfatbin", later))).build()
    head = fed(data, 300_000, 10_000)
    assert [one.arch for one in head.elf.device_code] == ["compute_90", "sm_80", "sm_90"]
    assert all("up to byte 300000" in (one.note or "") for one in head.elf.device_code)


@pytest.mark.parametrize("step", [97, 5000, 1 << 20])
def test_a_container_that_is_cut_gives_the_entries_that_passed_by(step: int) -> None:
    code = fat_binary(*(fat_entry(2, arch, bytes(200_000)) for arch in (70, 80, 90)))
    data = library(parts=(Part(".nv_fatbin", code),)).build()
    reader = HeadReader(BytesSource(data), len(data))
    for at in range(step, 300_000 + step, step):
        reader.read_to(min(at, 300_000))
    assert not reader.device_code_seen
    head = reader.head()
    assert head is not None
    assert [one.arch for one in head.elf.device_code] == ["sm_70", "sm_80"]


def test_a_reader_tells_when_the_first_device_code_has_passed_by() -> None:
    code = fat_binary(fat_entry(2, 90), fat_entry(2, 100))
    data = library(
        parts=(Part(".nv_fatbin", code), Part(".data", random.Random(1).randbytes(3 << 20)))
    ).build()
    reader = HeadReader(BytesSource(data), len(data))
    while not reader.device_code_seen:
        reader.read_to(reader.offset + 65_536)
    assert reader.offset < len(data) // 2


def test_bundles_are_told_by_their_table_even_where_their_images_are_cut() -> None:
    code = bundle(
        {"host-x86_64-unknown-linux-gnu-": b"", "hipv4-amdgcn-amd-amdhsa--gfx942": bytes(600_000)}
    )
    data = library(parts=(Part(".hip_fatbin", code),)).build()
    assert [one.arch for one in fed(data, 350_000, 50_000).elf.device_code] == ["gfx942"]


def test_marks_and_literals_of_data_count_and_names_in_the_string_table_do_not() -> None:
    strings = b"\0__gmon_start__\0libcudart.so.12\0libm.so.6\0\x01"
    data = library(
        parts=(
            Part(".x", strings),
            Part(".rodata", b"\0libcuda.so.1\0" + CUDART),
            Part(".data", b"x" * 100_000),
        )
    ).build()
    elf = fed(data, 50_000, 1000).elf
    assert [one.text for one in elf.literals] == ["libcuda.so.1"]
    assert [one.name for one in elf.marks] == ["cudart-error-string"]
    assert elf.read == 50_000


SEGMENT = "<IIQQQQQQ"


def with_segments(tail: int, *segments: tuple[int, int, int, int]) -> bytes:
    """The page of a file whose segments are given as type, offset, size and memory."""
    page = bytearray(4096)
    page[:64] = library().build()[:64]
    struct.pack_into("<Q", page, 32, 64)
    struct.pack_into("<Q", page, 40, 0)
    struct.pack_into("<HH", page, 54, 56, len(segments))
    for index, (kind, offset, size, memory) in enumerate(segments):
        row = (kind, 4, offset, offset, offset, size, memory, 4096)
        struct.pack_into(SEGMENT, page, 64 + 56 * index, *row)
    names = b"\0__cxa_finalize\0libcudart.so.12\0libm.so.6\0\x01"
    page[1024 : 1024 + len(names)] = names
    return bytes(page).ljust(tail, b"\0")


def test_what_lies_behind_the_loaded_parts_is_passed_over_and_not_held(tmp_path: Path) -> None:
    size = 48 << 20
    page = with_segments(65_536, (1, 0, 8192, 8192), (1, 40_000, 10_000, 10_000))
    file = tmp_path / "file"
    with file.open("wb") as out:
        out.write(page)
        for _ in range(len(page), size, 1 << 20):
            out.write(b"\7" * (1 << 20))
    tracemalloc.start()
    try:
        with file.open("rb") as opened:
            reader = HeadReader(OpenFile(opened.fileno()), size)
            for end in range(1 << 20, size, 1 << 20):
                reader.read_to(end)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 6 << 20


def flagged(flags: int, *segments: tuple[int, int, int, int]) -> bytes:
    """A file whose first segment has these flags: 4 reads, 2 writes, 1 is executable."""
    page = bytearray(with_segments(4096, *segments))
    struct.pack_into("<I", page, 64 + 4, flags)
    return bytes(page)


def test_how_much_device_code_there_can_be_is_known_from_the_first_page() -> None:
    size = 100_000_000
    segments = (1, 0, 20_000_000, 20_000_000), (1, 20_000_000, 70_000_000, 70_000_000)
    separate = bytearray(flagged(4, *segments))
    struct.pack_into("<I", separate, 64 + 56 + 4, 5)
    head = read_head(bytes(separate), size)
    assert head is not None
    # Constants have a segment of their own, so the executable one holds none.
    assert head.elf.unread_data == 20_000_000 - 4096
    head = read_head(flagged(5, *segments), size)
    assert head is not None
    # Headers, code and constants in one: all of it counts, but for what was read.
    assert head.elf.unread_data == 90_000_000 - 4096
    complete = library().build()
    head = read_head(complete, len(complete))
    assert head is not None
    assert (head.elf.read, head.elf.unread_data) == (len(complete), 0)


def test_names_of_a_table_that_may_be_a_leftover_are_neither_linked_nor_literals() -> None:
    usual = with_segments(
        60_000, (1, 0, 8192, 8192), (1, 40_000, 10_000, 20_000), (2, 41_000, 160, 160)
    )
    head = fed(usual, 30_000, 4096)
    assert head.elf.linked_names == ("libcudart.so.12", "libm.so.6")
    assert head.linking_end == 41_160
    # patchelf puts its segment behind the one with .bss, and may have moved the table there.
    patched = with_segments(
        90_000, (1, 0, 8192, 8192), (1, 40_000, 10_000, 20_000), (1, 80_000, 9000, 9000),
        (2, 41_000, 160, 160),
    )  # fmt: skip
    head = fed(patched, 30_000, 4096)
    assert (head.elf.linked_names, head.elf.literals) == ((), ())
    assert head.linking_end == 89_000


def test_the_interpreter_and_the_build_id_are_told_as_soon_as_they_passed_by() -> None:
    note = b"\x04\0\0\0\x04\0\0\0\x03\0\0\0GNU\0\xaa\xbb\xcc\xdd"
    image = replace(
        library(parts=(Part(".note", note, NOTE), Part(".data", b"y" * 300_000))),
        interpreter="/lib64/ld-linux-x86-64.so.2",
    )
    data = image.build()
    elf = fed(data, 100_000, 999).elf
    assert (elf.interpreter, elf.build_id) == ("/lib64/ld-linux-x86-64.so.2", "aabbccdd")
    assert elf.literals == ()


def test_a_dynamic_section_within_reach_is_read() -> None:
    data = library(needed=("libz.so.1", "libm.so.6"), parts=(Part(".d", b"z" * 99_999),)).build()
    head = fed(data, 70_000, 4096)
    assert head.elf.needed == ("libz.so.1", "libm.so.6")
    assert head.linking_end is None
    assert head.elf.linked_names == ()


def test_what_is_no_elf_is_nothing_and_what_is_broken_is_told() -> None:
    assert read_head(b"MZ" + bytes(100), 102) is None
    with pytest.raises(Malformed, match="class"):
        read_head(b"\x7fELF\x09\x01" + bytes(60), 66)


def test_no_cut_and_no_damage_makes_the_reader_fail_or_say_more_than_its_bytes() -> None:
    code = fat_binary(fat_entry(2, 90), fat_entry(1, 90, bytes(3000)))
    parts = (Part(".nv_fatbin", code), Part(".rodata", b"\0libcuda.so.1\0" + CUDART))
    data = Image(needed=("libz.so.1",), strings={14: "liba.so"}, parts=parts).build()
    random_numbers = random.Random(4)
    for size in range(64, len(data), 37):
        assert_says_no_more(fed(data, size, 500).elf, whole(data))
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(random_numbers.randint(1, 6)):
            damaged[random_numbers.randrange(len(data))] = random_numbers.randrange(256)
        damaged[:4] = b"\x7fELF"
        try:
            read_head(bytes(damaged[: random_numbers.randrange(64, len(data) + 1)]), len(damaged))
        except Malformed as problem:
            assert problem.reason


def test_a_version_that_a_file_defines_is_no_library_that_it_links() -> None:
    usual = bytearray(
        with_segments(
            60_000, (1, 0, 8192, 8192), (1, 40_000, 10_000, 20_000), (2, 41_000, 160, 160)
        )
    )
    # As libsndfile.so.1 has it: the name of its version is its own name with more behind it.
    names = b"\0__cxa_finalize\0libm.so.6\0libsndfile.so.1\0libsndfile.so.1.0\0\x01"
    usual[1024 : 1024 + len(names)] = names
    head = fed(bytes(usual), 30_000, 4096)
    assert head.elf.linked_names == ("libm.so.6", "libsndfile.so.1")
