"""Sequential decompression of xz, bzip2 and Zstandard."""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable

from buildmatrix.trees import zstd
from buildmatrix.trees.base import Readable, Unreadable

#: Compressed bytes to process at once.
INPUT = 128 << 10


class StreamDecompressor:
    """Decompressor of xz, bzip2 or Zstandard; joins consecutive streams, as their programs do."""

    def __init__(
        self,
        stream: Readable,
        begin: Callable[[], lzma.LZMADecompressor | bz2.BZ2Decompressor | zstd.Decompressor],
    ) -> None:
        self._stream = stream
        self._begin = begin
        self._decoder = begin()
        self._ahead = b""

    def read(self, length: int) -> bytes:
        """Return at most `length` bytes; none at the end. Raises decompressors' errors."""
        while True:
            if self._decoder.eof:
                rest = self._decoder.unused_data.lstrip(b"\0")
                while not rest:
                    block = self._stream.read(INPUT)
                    if not block:
                        return b""
                    rest = block.lstrip(b"\0")
                self._decoder, self._ahead = self._begin(), rest
            block = b""
            if self._decoder.needs_input:
                block, self._ahead = self._ahead or self._stream.read(INPUT), b""
                if not block:
                    raise EOFError("the stream ends early")
            data = self._decoder.decompress(block, length)
            if data:
                return data


def open_zstandard(stream: Readable) -> Readable:
    """Decompress a Zstandard stream. Raises `Unreadable` without a library for it."""
    begin = zstd.find_decompressor()
    if begin is None:
        raise Unreadable(f"compressed with Zstandard: {zstd.MISSING}")
    return StreamDecompressor(stream, begin)
