"""Sources of bytes: short reads at the end, and few reads for many small tables."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from buildmatrix.facts.elf.layout import CachedSource
from buildmatrix.facts.trees.archive import BytesSource, OpenFile


def test_a_file_and_memory_read_alike(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10
    path = tmp_path / "data"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        file, memory = OpenFile(fd), BytesSource(data)
        assert file.size == memory.size == len(data)
        for offset, length in ((0, 10), (2550, 100), (2560, 1), (9999, 5), (0, 0)):
            assert file.read(offset, length) == memory.read(offset, length)
        assert file.bytes_read == memory.bytes_read == 20
    finally:
        os.close(fd)


def test_a_closed_file_is_an_os_error(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"x")
    fd = os.open(path, os.O_RDONLY)
    source = OpenFile(fd)
    os.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        source.read(0, 1)


def test_small_reads_close_together_cost_one_block() -> None:
    source = BytesSource(bytes(100_000))
    cached = CachedSource(source, source.size)
    for offset in range(0, 4096, 16):
        cached.read(offset, 16)
    assert source.bytes_read == 4096


def test_wide_reads_are_not_kept() -> None:
    data = random.Random(1).randbytes(1 << 20)
    source = BytesSource(data)
    cached = CachedSource(source, source.size)
    assert cached.read(5, 1 << 19) == data[5 : 5 + (1 << 19)]
    assert source.bytes_read == 1 << 19


@pytest.mark.parametrize(
    ("offset", "length"), [(-1, 10), (100, 10), (1 << 70, 1), (0, -5), (90, 1 << 70)]
)
def test_reads_outside_the_file_are_short_and_no_error(offset: int, length: int) -> None:
    data = bytes(range(100))
    expected = data[90:] if offset == 90 else b""
    assert CachedSource(BytesSource(data), 100).read(offset, length) == expected
