"""Whatever the bytes say, the answer is bounded: facts, `unread`, None or Malformed."""

from __future__ import annotations

import cProfile
import struct
import sys
import tracemalloc
import zlib
from dataclasses import dataclass
from pathlib import Path

import pytest
from elf_images import NOTE, STRTAB, Image, Part, bundle, compressed_bundle, fat_binary, fat_entry
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from buildmatrix.facts.binaries import finder
from buildmatrix.facts.binaries.devicefile import read_device_file
from buildmatrix.facts.binaries.reader import Malformed, read_elf
from buildmatrix.facts.elf import search
from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.elf.symbols import read_symbols
from buildmatrix.facts.trees.archive import BytesSource
from buildmatrix.facts.trees.base import ByteSource

SYMTAB = 2
PLAIN = bundle({"hipv4-amdgcn-amd-amdhsa--gfx942": b"x" * 100})
SEEDS = [
    Image(
        bits=bits,
        little_endian=little,
        needed=["libcudart.so.12"],
        strings={14: "liba.so", 29: "$ORIGIN"},
        interpreter="/lib/ld.so",
        parts=[
            Part(".rodata", b"\0libcuda.so.1\0" + fat_binary(fat_entry(1, 70))),
            Part(".nv_fatbin", fat_binary(fat_entry(2, 80), fat_entry(1, 90))),
            Part(".hip_fatbin", PLAIN + compressed_bundle(3, 0, zlib.compress(PLAIN), len(PLAIN))),
            Part("__CLANG_OFFLOAD_BUNDLE__sycl-spir64", b"\x03\x02\x23\x07" + bytes(28)),
        ],
        section_headers=sections,
    ).build()
    for bits in (32, 64)
    for little in (True, False)
    for sections in (True, False)
]
SYSTEM = Path(sys.executable).resolve().read_bytes()[: 1 << 20]

MAGICS = (
    b"\x50\xed\x55\xba",
    b"CCOB",
    b"__CLANG_OFFLOAD_BUNDLE__",
    b"\x10\xff\x10\xad",
    b"\x7fELF",
)

NUMBERS = st.one_of(
    st.sampled_from([0, 1, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1]),
    st.integers(0, (1 << 64) - 1),
)
CHANGES = st.lists(
    st.tuples(st.integers(0, 1 << 16), st.sampled_from([1, 2, 4, 8]), NUMBERS), max_size=12
)


class Short:
    """A source that ends early, as a file does that shrinks while it is read."""

    def __init__(self, data: bytes, end: int) -> None:
        self._data = data[:end]

    def read(self, offset: int, length: int) -> bytes:
        assert 0 <= offset < 1 << 63, "pread takes no other offset"
        assert 0 <= length <= len(self._data) + (8 << 20), "a table's claim sets the memory used"
        return self._data[offset : offset + length]


def answer(source: ByteSource, size: int) -> Elf | None:
    try:
        return read_elf(source, size)
    except Malformed as problem:
        assert problem.reason
        return None


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.sampled_from(SEEDS), changes=CHANGES, end=st.integers(0, 1 << 16))
def test_mutated_files_give_an_answer(
    seed: bytes, changes: list[tuple[int, int, int]], end: int
) -> None:
    data = bytearray(seed)
    for at, width, value in changes:
        at %= len(data)
        raw = (value & (1 << 8 * width) - 1).to_bytes(width, "little")
        data[at : at + width] = raw[: len(data) - at]
    answer(Short(bytes(data), end), len(data))
    answer(Short(bytes(data), len(data)), len(data))


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(changes=CHANGES)
def test_a_mutated_header_of_a_real_program_gives_an_answer(
    changes: list[tuple[int, int, int]],
) -> None:
    data = bytearray(SYSTEM)
    for at, width, value in changes:
        at %= 1024
        data[at : at + width] = (value & (1 << 8 * width) - 1).to_bytes(width, "little")
    answer(BytesSource(bytes(data)), len(data))


@settings(max_examples=200)
@given(st.binary(max_size=600))
@example(b"")
def test_arbitrary_bytes_behind_the_magic_number_give_an_answer(tail: bytes) -> None:
    answer(BytesSource(b"\x7fELF" + tail), 4 + len(tail))
    for section in (".nv_fatbin", ".hip_fatbin", ".llvm.offloading", ".rodata"):
        for magic in (
            b"\x50\xed\x55\xba",
            b"CCOB",
            b"__CLANG_OFFLOAD_BUNDLE__",
            b"\x10\xff\x10\xad",
        ):
            data = Image(parts=[Part(section, magic + tail)]).build()
            answer(BytesSource(data), len(data))


@dataclass(frozen=True)
class Cost:
    """Work that reading a file takes, the same on every machine."""

    #: Calls of functions, those of C included.
    calls: int
    bytes_read: int
    #: Most memory beyond the input, in bytes.
    peak: int


def measure(data: bytes) -> tuple[Elf, Cost]:
    """Read a file that has an answer, and count the work instead of seconds."""
    source = BytesSource(data)
    profile = cProfile.Profile()
    tracemalloc.start()
    elf = profile.runcall(answer, source, len(data))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert elf is not None
    calls = sum(entry.callcount for entry in profile.getstats())
    return elf, Cost(calls, source.bytes_read, peak)


#: Work that each flood below may cost. Without the bound it is about, it costs many times as much.
CALLS, READ = 1_000_000, 24 << 20


def test_sections_that_all_cover_the_whole_file_are_searched_once() -> None:
    data = bytearray(
        Image(
            parts=[Part(f".rodata{n}", b"") for n in range(5000)] + [Part(".z", bytes(1 << 20))]
        ).build()
    )
    sections_at = struct.unpack_from("<Q", data, 40)[0]
    for index in range(1, 5000):
        struct.pack_into("<QQ", data, sections_at + index * 64 + 24, 0, len(data))
    source = BytesSource(bytes(data))
    assert answer(source, len(data)) is not None
    assert source.bytes_read < 4 * len(data)


def test_a_file_of_nothing_but_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_HITS", 1 << 13)
    elf, cost = measure(Image(parts=[Part(".rodata", b"x.so" * (1 << 16))]).build())
    assert elf.unread != ()
    assert cost.calls < CALLS
    assert cost.peak < 10 << 20


def test_a_file_of_nothing_but_magic_numbers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder, "MOST_FAILURES", 1 << 10)
    for magic in MAGICS:
        for section in (".rodata", ".nv_fatbin"):
            _, cost = measure(Image(parts=[Part(section, magic * 5_000)]).build())
            assert cost.calls < CALLS
            assert cost.bytes_read < READ
            assert cost.peak < 60 << 20


def test_a_fat_binary_of_many_empty_entries_is_bounded() -> None:
    container = fat_binary(fat_entry(2, 80, b"") * 300_000)
    elf, cost = measure(Image(parts=[Part(".nv_fatbin", container)]).build())
    assert any("entries" in (code.note or "") for code in elf.device_code)
    assert cost.calls < CALLS
    assert cost.peak < 40 << 20


def test_a_section_behind_every_offset_that_pread_takes_is_not_read() -> None:
    data = bytearray(Image(parts=[Part(".hipFatBinSegment", bytes(48))]).build())
    sections_at = struct.unpack_from("<Q", data, 40)[0]
    struct.pack_into("<QQ", data, sections_at + 64 + 24, 1 << 63, 48)
    assert answer(Short(bytes(data), len(data)), len(data)) is not None


def test_a_claim_of_four_billion_entries_allocates_nothing() -> None:
    data = bytearray(SEEDS[4])
    sections_at = struct.unpack_from("<Q", data, 40)[0]
    struct.pack_into("<H", data, 60, 0)
    struct.pack_into("<Q", data, sections_at + 32, 1 << 32)
    elf, cost = measure(bytes(data))
    assert any("section headers were read" in why for why in elf.unread)
    assert cost.peak < 20 << 20


def test_a_zlib_bomb_in_a_bundle_is_not_inflated() -> None:
    bomb = zlib.compress(bytes(32 << 20), 9)
    data = Image(parts=[Part(".hip_fatbin", compressed_bundle(3, 0, bomb, 32 << 20))]).build()
    elf, cost = measure(data)
    assert [code.kind for code in elf.device_code] == ["unknown"]
    assert cost.calls < CALLS
    assert cost.peak < 8 << 20


def test_compressed_bundles_beyond_a_bound_are_counted_and_not_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(finder, "MOST_OPENED", 20)
    packed = zlib.compress(PLAIN)
    flood = compressed_bundle(3, 0, packed, len(PLAIN)) * 1_000
    elf, cost = measure(Image(parts=[Part(".hip_fatbin", flood)]).build())
    assert {code.arch: code.count for code in elf.device_code} == {"gfx942": 20, None: 980}
    assert [code.note for code in elf.device_code if code.arch is None] == [
        "compressed with zlib, and not opened: the file has too many bundles"
    ]
    assert cost.calls < CALLS
    assert cost.peak < 20 << 20


def test_strings_that_all_point_at_one_long_string_are_bounded() -> None:
    needed = 20_000
    image = Image(needed=["a" * 100_000])
    data = bytearray(image.build())
    row = data.index(struct.pack("<QQ", 1, 1), 64)
    tail = bytes(data[row + 16 :])
    data = data[:row] + struct.pack("<QQ", 1, 1) * needed + tail
    struct.pack_into("<Q", data, 64 + 56 + 32, (needed + 4) * 16)
    elf, cost = measure(bytes(data))
    assert sum(map(len, elf.needed)) <= 4 << 20
    assert any("too long" in why for why in elf.unread)
    assert cost.calls < CALLS
    assert cost.peak < 60 << 20


def spirv(*words: int) -> bytes:
    return struct.pack(f"<{5 + len(words)}I", 0x07230203, 0x10000, 0, 9, 0, *words)


CAPABILITY, MEMORY_MODEL, FUNCTION_END, NO_OPERATION = 2 << 16 | 17, 3 << 16 | 14, 65592, 65537


def test_spirv_modules_within_one_another_are_walked_over_once() -> None:
    # Behind each module come instructions without an end of a function, and the next one is hidden
    # in the operands of one of them.
    module = spirv(CAPABILITY, 6, MEMORY_MODEL, 2, 2, FUNCTION_END)
    hidden = struct.pack("<I", (1 + len(module) // 4) << 16 | 1) + module
    flood = module + (hidden + struct.pack("<16I", *[NO_OPERATION] * 16)) * 600
    elf, cost = measure(Image(parts=[Part(".rodata", flood)]).build())
    assert [(code.format, code.arch) for code in elf.device_code] == [("spirv", "spirv64")]
    assert cost.calls < CALLS
    assert cost.bytes_read < READ
    assert cost.peak < 20 << 20


def test_a_flood_of_headers_of_spirv_is_bounded() -> None:
    flood = spirv(CAPABILITY, 6, 400 << 16 | 10) * 2_000
    elf, cost = measure(Image(parts=[Part(".rodata", flood)]).build())
    assert elf.device_code == ()
    assert cost.calls < CALLS
    assert cost.bytes_read < READ


def test_symbols_whose_names_never_end_are_bounded() -> None:
    names = b"\0" + b"a" * (1 << 20)
    table = bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0, 1, 0, 0) * 100_000
    parts = [Part(".strtab", names, STRTAB, 0), Part(".symtab", table, SYMTAB, 0)]
    data = bytearray(Image(type=1, parts=parts).build())
    sections_at = struct.unpack_from("<Q", data, 40)[0]
    struct.pack_into("<I", data, sections_at + 2 * 64 + 40, 1)
    profile = cProfile.Profile()
    found = profile.runcall(read_symbols, BytesSource(bytes(data)), len(data))
    assert found is not None
    assert found.defined == ()
    assert any("symbol names were skipped" in why for why in found.unread)
    assert sum(entry.callcount for entry in profile.getstats()) < CALLS


def test_strings_that_never_end_are_bounded() -> None:
    needed = 20_000
    data = bytearray(Image(needed=["a" * (1 << 20)]).build())
    at = data.index(b"a" * 64)
    data[at : at + (1 << 20) + 1] = b"a" * ((1 << 20) + 1)
    row = data.index(struct.pack("<QQ", 1, 1), 64)
    data[row : row + 16] = struct.pack("<QQ", 1, 1) * needed
    struct.pack_into("<Q", data, 64 + 56 + 32, (needed + 4) * 16)
    source = BytesSource(bytes(data))
    elf = answer(source, len(data))
    assert elf is not None
    assert any("too long" in why for why in elf.unread)
    assert source.bytes_read < 64 << 20


def test_a_file_with_holes_of_a_terabyte_is_searched_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(finder, "MOST_SEARCHED", 32 << 20)

    class Sparse:
        """A small file that claims to be large; what it does not have is zeros."""

        def __init__(self, data: bytes) -> None:
            self._data = data
            self.bytes_read = 0

        def read(self, offset: int, length: int) -> bytes:
            self.bytes_read += length
            return self._data[offset : offset + length].ljust(length, b"\0")

    for name in (".nv_fatbin", ".rodata"):
        data = bytearray(Image(parts=[Part(name, bytes(64))]).build())
        sections_at = struct.unpack_from("<Q", data, 40)[0]
        struct.pack_into("<Q", data, sections_at + 64 + 32, 1 << 40)
        source = Sparse(bytes(data))
        elf = answer(source, 1 << 41)
        assert elf is not None
        assert any("bytes of data were searched" in why for why in elf.unread)
        assert 32 << 20 <= source.bytes_read < 40 << 20


def test_members_of_an_archive_share_one_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder, "MOST_OPENED", 20)
    packed = zlib.compress(PLAIN)
    flood = compressed_bundle(3, 0, packed, len(PLAIN)) * 10
    member = Image(type=1, parts=[Part(".hip_fatbin", flood)]).build()
    member += bytes(len(member) % 2)
    header = b"a.o/".ljust(48) + b"%-10d`\n" % len(member)
    data = b"!<arch>\n" + (header + member) * 5
    found = read_device_file(BytesSource(data), len(data), "x.a")
    assert found is not None
    assert {code.arch: code.count for code in found.device_code} == {"gfx942": 20, None: 30}


def test_notes_beyond_the_bound_are_told_and_those_of_a_compiler_are_not_read() -> None:
    note = struct.pack("<III", 4, 4, 0x7FFF) + b"ABC\0" + bytes(4)
    for flags, told in ((2, True), (0, False)):
        data = bytearray(Image(parts=[Part(".note.many", note * 5000, NOTE, flags)]).build())
        struct.pack_into("<I", data, 64 + 56, 0)  # the section alone tells of it, no segment
        elf = read_elf(BytesSource(bytes(data)), len(data))
        assert elf is not None
        assert any("groups of notes" in why for why in elf.unread) is told


def test_a_flood_of_beginnings_of_programs_is_bounded() -> None:
    flood = b".version 8.2\n.target sm_75\n.address_size 64\n" * 5_000
    elf, cost = measure(Image(parts=[Part(".rodata", flood)]).build())
    assert elf.device_code == ()
    assert cost.calls < CALLS
    assert cost.bytes_read < READ
    assert cost.peak < 60 << 20


def test_more_sections_than_two_bytes_can_count_are_all_searched() -> None:
    most = search.MOST_NAMES
    # Names stand in the last sections alone: most of the time would go into them.
    parts = [Part(".rodata")] * (1 << 16)
    parts += [Part(".rodata", b"\0libx%05d.so.1\0" % number) for number in range(most + 1)]
    elf, cost = measure(Image(parts=parts).build())
    assert len(elf.sections) >= len(parts)
    assert len(elf.literals) == most
    assert any("names of libraries" in why for why in elf.unread)
    assert cost.calls < 40 * len(parts)
    assert cost.peak < 80 << 20
