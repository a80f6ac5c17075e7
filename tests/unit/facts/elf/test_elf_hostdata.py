"""The search through data of the host, at the seams: windows, regions, containers."""

from __future__ import annotations

import pytest
from elf_images import Image, Part, fat_binary, fat_entry

from buildmatrix.facts.binaries import finder, hostdata
from buildmatrix.facts.binaries.reader import read_elf
from buildmatrix.facts.elf import search
from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.elf.search import Sieve
from buildmatrix.facts.trees.archive import BytesSource

NCCL = b"\0NCCL version 2.1"


def read(data: bytes, section: str = ".rodata") -> tuple[Elf, BytesSource]:
    source = BytesSource(Image(parts=[Part(section, data)]).build())
    elf = read_elf(source, source.size)
    assert elf is not None
    return elf, source


def names(elf: Elf) -> list[str]:
    return [literal.text for literal in elf.literals]


@pytest.mark.parametrize("shift", range(-140, 20, 7))
def test_nothing_is_lost_or_found_twice_where_two_windows_meet(
    monkeypatch: pytest.MonkeyPatch, shift: int
) -> None:
    monkeypatch.setattr(hostdata, "CHUNK", 1024)
    fat = fat_binary(fat_entry(2, 80))
    for thing in (b"\0libcuda.so.1\0", NCCL, fat):
        elf, _ = read(bytes(1024 + shift) + thing + bytes(3000))
        assert names(elf) == (["libcuda.so.1"] if b"lib" in thing else [])
        assert len(elf.marks) == (thing is NCCL)
        assert [code.count for code in elf.device_code] == [1] * (thing is fat)


def test_what_looks_like_a_name_or_a_mark_inside_of_device_code_is_none() -> None:
    inside = fat_binary(fat_entry(2, 80, b"\0libcuda.so.1\0" + NCCL + bytes(200)))
    elf, _ = read(inside + b"\0libother.so.2\0")
    assert names(elf) == ["libother.so.2"]
    assert elf.marks == ()
    elf, _ = read(inside + b"\0libcuda.so.1\0" + NCCL)
    assert names(elf) == ["libcuda.so.1"]
    assert [mark.offset > len(inside) for mark in elf.marks] == [True]


def test_device_code_that_lies_in_data_is_not_read() -> None:
    one = fat_binary(fat_entry(2, 80, bytes(3 << 20)))
    # The second follows the first behind padding, the third behind other data.
    elf, source = read(one + bytes(40) + one + b"data" + bytes(300) + one)
    assert [(code.arch, code.count) for code in elf.device_code] == [("sm_80", 3)]
    assert source.bytes_read < source.size / 2


@pytest.mark.parametrize("thing", [b"x.so", b"lib%d.so\0", NCCL + b"\0", b"\x7fELF"])
def test_what_is_not_needed_any_more_is_not_searched_for(
    monkeypatch: pytest.MonkeyPatch, thing: bytes
) -> None:
    monkeypatch.setattr(hostdata, "_MOST_IDLE", 100)
    monkeypatch.setattr(finder, "MOST_CANDIDATES", 100)
    monkeypatch.setattr(search, "MOST_HITS", 100)
    calls: list[int] = []
    find = Sieve.hits

    def counted(self: Sieve, data: bytes, start: int, stop: int) -> list[tuple[int, bytes]]:
        found = find(self, data, start, stop)
        calls.append(len(found))
        return found

    monkeypatch.setattr(Sieve, "hits", counted)
    filling = b"".join(thing.replace(b"%d", b"%d" % number) for number in range(400_000))
    elf, _ = read(filling[: 3 << 20] + b"\0MKL ERROR: %s.\0")
    assert calls[0] > 100
    assert sum(calls[2:]) <= 1
    assert "mkl-error-prefix" in [mark.name for mark in elf.marks]


@pytest.mark.parametrize("filling", [b"\0", b"i", b"li", b"l", b"\x90i", b"ib"])
def test_names_in_code_are_found_whatever_surrounds_them(filling: bytes) -> None:
    filling = filling * 300_000
    image = Image(parts=[Part(".text", filling + b"\0liba.so.1\0x.so.1\0" + filling, flags=6)])
    source = BytesSource(image.build())
    elf = read_elf(source, source.size)
    assert elf is not None
    assert names(elf) == ["liba.so.1"]
