"""Zstandard by each of the libraries that may be there."""

from __future__ import annotations

import io
import random
import sys
import tracemalloc
from collections.abc import Callable

import pytest

from buildmatrix.facts.trees import decompression
from buildmatrix.facts.trees.decompression import open_zstandard

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, compress
else:
    from backports.zstd import ZstdDecompressor, compress

Begin = Callable[[], decompression.Decompressor]


def of_the_system() -> decompression.Decompressor:
    return decompression.SystemDecompressor(decompression._system_library())


def data() -> bytes:
    source = random.Random(3)
    return bytes(source.choices(b"etaoinshrdlu", k=300_000)) + bytes(100_000)


@pytest.fixture(params=[ZstdDecompressor, of_the_system], ids=["package", "system"])
def begin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Begin:
    monkeypatch.setattr(decompression, "find_decompressor", lambda: request.param)
    return request.param


@pytest.mark.usefixtures("begin")
def test_the_head_of_a_frame_is_read_even_where_the_frame_is_cut() -> None:
    frame = compress(data())
    for limit in (0, 100, 5_000, 140_000, 1 << 20):
        assert decompression.zstd_head(frame, limit) == data()[:limit]
    cut = decompression.zstd_head(frame[: len(frame) // 2], 1 << 20)
    assert 100_000 < len(cut) < 300_000
    assert data().startswith(cut)


@pytest.mark.usefixtures("begin")
def test_what_is_damaged_is_a_value_error() -> None:
    for broken in (b"not zstd at all", decompression.ZSTD_MAGIC + b"\xff" * 40):
        with pytest.raises(ValueError, match=r"[a-z]{4}"):
            decompression.zstd_head(broken, 100)
    assert decompression.zstd_head(b"", 100) == b""


@pytest.mark.usefixtures("begin")
def test_a_stream_of_several_frames_is_read_in_pieces_to_its_end() -> None:
    packed = compress(data()) + compress(b"more")
    stream = open_zstandard(io.BytesIO(packed))
    assert b"".join(iter(lambda: stream.read(7_001), b"")) == data() + b"more"
    stream = open_zstandard(io.BytesIO(packed[:-10]))
    with pytest.raises(EOFError):
        while stream.read(1 << 16):
            pass


@pytest.mark.usefixtures("begin")
def test_a_tiny_zstd_frame_that_grows_is_decoded_only_as_far_as_asked() -> None:
    frame = compress(bytes(1 << 28))
    assert len(frame) < 1 << 15
    tracemalloc.start()
    try:
        assert decompression.zstd_head(frame, 100) == bytes(100)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_random_damage_gives_the_system_no_other_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompression, "find_decompressor", lambda: of_the_system)
    source = random.Random(5)
    frame = compress(data()[:20_000])
    for _ in range(500):
        damaged = bytearray(frame)
        damaged[source.randrange(len(frame))] = source.randrange(256)
        try:
            assert len(decompression.zstd_head(bytes(damaged), 4096)) <= 4096
        except ValueError as problem:
            assert str(problem)


def test_without_packages_the_system_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    def raise_no_library() -> object:
        raise OSError("libzstd.so.1: cannot open shared object file")

    monkeypatch.setattr(decompression, "import_module", missing)
    decompression.find_decompressor.cache_clear()
    try:
        assert decompression.zstd_head(compress(b"text"), 10) == b"text"
        monkeypatch.setattr(decompression, "_system_library", raise_no_library)
        decompression.find_decompressor.cache_clear()
        assert decompression.find_decompressor() is None
        with pytest.raises(ValueError, match="library for Zstandard"):
            decompression.zstd_head(compress(b"text"), 10)
    finally:
        decompression.find_decompressor.cache_clear()
