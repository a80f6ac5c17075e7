"""The part of Zstandard that is read without a library, against the reference library."""

from __future__ import annotations

import random
import sys

import pytest

from buildmatrix.device_code import zstd

if sys.version_info >= (3, 14):
    from compression.zstd import CompressionParameter, ZstdCompressor
else:
    from backports.zstd import CompressionParameter, ZstdCompressor


def contents() -> dict[str, bytes]:
    source = random.Random(3)
    words = [bytes(source.choices(b"etaoinshrdlu", k=source.randint(2, 9))) for _ in range(400)]
    return {
        "zeros": bytes(200_000),
        "noise": source.randbytes(70_000),
        "period": b"ab" * 100_000,
        "skewed": bytes(source.choices(range(8), weights=[50, 20, 10, 5, 5, 5, 3, 2], k=150_000)),
        "words": b" ".join(source.choices(words, k=40_000)),
        "empty": b"",
    }


@pytest.mark.parametrize("level", [1, 3, 19, -5])
@pytest.mark.parametrize("name", list(contents()))
def test_the_head_of_a_frame_is_what_the_reference_packed(name: str, level: int) -> None:
    data = contents()[name]
    # As a stream: the frame has a window and a checksum, and does not say how long its content is.
    options = {CompressionParameter.compression_level: level, CompressionParameter.checksum_flag: 1}
    packer = ZstdCompressor(options=options)
    frame = packer.compress(data) + packer.flush()
    for limit in (0, 100, 5_000, 140_000):
        assert zstd.head(frame, limit) == data[:limit]
    assert data.startswith(zstd.head(frame[: len(frame) // 2], 140_000))


def test_other_bytes_are_refused() -> None:
    for data in (b"", b"not zstd at all", zstd.MAGIC, zstd.MAGIC + b"\xff" * 40):
        with pytest.raises(ValueError, match=r"frame|block|table|stream"):
            zstd.head(data, 100)


def test_damage_gives_a_value_error_or_bytes_and_nothing_else() -> None:
    # A frame with one compressed block: Huffman literals, three described tables.
    source = random.Random(5)
    for _ in range(2_000):
        size = source.randint(3, 60)
        block = source.randbytes(size)
        frame = zstd.MAGIC + b"\x20\x40" + (size << 3 | 2 << 1 | 1).to_bytes(3, "little") + block
        try:
            assert len(zstd.head(frame, 4096)) <= 4096
        except ValueError as problem:
            assert str(problem)
