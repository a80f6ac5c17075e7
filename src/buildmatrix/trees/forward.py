"""Sequential access to compressed streams and their content."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from buildmatrix.trees.base import Readable, Unreadable
from buildmatrix.trees.unpacking import INPUT

#: Bytes before the current position that can be read again, for detecting compression.
WINDOW = 64 << 10
#: Size of a stream whose length is only known at its end.
ENDLESS = 1 << 62
#: zlib setting: a gzip header, and the largest window.
GZIP_WINDOW = 16 + zlib.MAX_WBITS


class Gunzip:
    """Decompressor of gzip (RFC 1952), one or more members, with their checksums.

    Before Python 3.12, gzip.GzipFile reads 8 KiB at a time, a quarter of the total time.
    """

    def __init__(self, stream: Readable, window: int = GZIP_WINDOW) -> None:
        """Create the decompressor; `window` selects other formats of zlib."""
        self._stream = stream
        self._window = window
        self._member = zlib.decompressobj(wbits=window)
        self._ahead = b""

    def read(self, length: int) -> bytes:
        """Return the next bytes, at most `length`; none at the end. Raises zlib.error, EOFError."""
        while True:
            if self._member.eof:
                # Another member may follow, after zeros.
                while not self._ahead:
                    block = self._stream.read(INPUT)
                    if not block:
                        return b""
                    self._ahead = block.lstrip(b"\0")
                self._member = zlib.decompressobj(wbits=self._window)
            compressed = self._ahead or self._stream.read(INPUT)
            data = self._member.decompress(compressed, length)
            if self._member.eof:
                self._ahead = self._member.unused_data.lstrip(b"\0")
            else:
                self._ahead = self._member.unconsumed_tail
            if data:
                return data
            if not compressed and not self._member.eof:
                raise EOFError("the stream ends early")


class ForwardSource:
    """Source for reading in order; only a window before the current position is available."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._window = bytearray()
        #: Offset of the first byte in the window.
        self._start = 0
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `RandomAccess.read`. Raises `Unreadable` before the window."""
        if offset < self._start:
            raise Unreadable("its entries are not in the order in which they lie")
        while self._start + len(self._window) < offset + length:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            self.bytes_read += len(chunk)
            if self.bytes_read <= offset - WINDOW:
                # Drop whole chunks: most of a layer is the skipped content of large files.
                self._start = self.bytes_read
                self._window.clear()
                continue
            self._window += chunk
            # Drop skipped bytes, except for the window before the requested offset.
            passed = min(len(self._window), offset - self._start) - WINDOW
            if passed > WINDOW:
                del self._window[:passed]
                self._start += passed
        begin = offset - self._start
        return bytes(self._window[begin : begin + length])
