"""What a library loads by name is found where the bytes allowed do not last for all of a wheel."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path

import pytest
from elf_images import Image, Part

from buildmatrix.locks.index import depth
from buildmatrix.locks.index.depth import Reading, read_parts
from buildmatrix.locks.index.model import HEAD
from buildmatrix.locks.index.parts import DLOPEN
from buildmatrix.locks.index.wheels import _LocalWheel

METADATA = "Metadata-Version: 2.1\nName: alpha\nVersion: 1.0\n"


def noise(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


def library(seed: int, size: int, start: bytes = b"", end: bytes = b"") -> bytes:
    """A library of `size` bytes that deflate cannot make smaller, between two other parts."""
    parts = (
        Part(".hash", start or b"\0"),
        Part(".text", noise(size, seed), flags=6),
        Part(".rodata", end or b"\0"),
    )
    return Image(needed=("libm.so.6",), parts=parts).build()


def read(tmp_path: Path, loading: bytes, most: int, small: int = 20) -> Reading:
    path = tmp_path / "alpha-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(small):
            archive.writestr(f"alpha/s{number}.so", library(number, 100_000))
        archive.writestr("alpha/libloading.so", loading)
        archive.writestr("alpha-1.0.dist-info/METADATA", METADATA)
    with _LocalWheel(path) as source:
        return read_parts(source, "heads", most)


def names(reading: Reading) -> set[str]:
    return {
        literal.text
        for binary in reading.inventory.binaries
        if binary.path == "alpha/libloading.so"
        for literal in binary.elf.literals
    }


# Too little to read all of the small ones, and the library that loads others.
@pytest.mark.parametrize("most", [1_900_000, 2_050_000])
def test_a_library_that_loads_others_is_read_before_the_last_of_the_small_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(depth, "SMALL_WHEEL", 0)
    loading = library(99, 400_000, DLOPEN, b"\0libcuda.so.1\0")
    reading = read(tmp_path, loading, most)
    assert "libcuda.so.1" in names(reading)
    small = [one for one in reading.inventory.binaries if "/s" in one.path]
    cut = [one for one in small if one.elf.read is not None]
    # Of each the beginning was read; none was passed over.
    assert len(small) == 20
    assert cut
    assert all((one.elf.read or 0) >= HEAD // 2 for one in cut)
    assert reading.limited


def test_small_ones_are_read_whole_where_there_is_enough(tmp_path: Path) -> None:
    loading = library(99, 400_000, DLOPEN, b"\0libcuda.so.1\0")
    reading = read(tmp_path, loading, 4_000_000)
    assert all(one.elf.read is None for one in reading.inventory.binaries)
    assert "libcuda.so.1" in names(reading)


def test_a_wheel_that_is_fetched_whole_leaves_nothing_open(tmp_path: Path) -> None:
    loading = library(99, 700_000, DLOPEN, b"\0libcuda.so.1\0")
    reading = read(tmp_path, loading, 700_000, small=2)
    assert all(one.elf.read is None for one in reading.inventory.binaries)
    assert "libcuda.so.1" in names(reading)
    assert not reading.limited
