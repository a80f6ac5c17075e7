"""Streams of xz, bzip2 and Zstandard, read from front to back."""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable

from buildmatrix.trees import zstd
from buildmatrix.trees.base import Readable, Unreadable

#: Compressed bytes that are unpacked at once.
INPUT = 128 << 10


class Unpacking:
    """A stream of xz, bzip2 or Zstandard; several in a row are one, as for their programs."""

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
        """The next bytes, at most `length`; none at the end. Raises what decompressors raise."""
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


def zstandard(stream: Readable) -> Readable:
    """What a Zstandard stream holds. Raises `Unreadable` where there is no library for it."""
    begin = zstd.decompressor()
    if begin is None:
        raise Unreadable(f"compressed with Zstandard: {zstd.MISSING}")
    return Unpacking(stream, begin)
