"""Compressed streams, and what they hold, read once from front to back."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from buildmatrix.trees.base import Readable, Unreadable
from buildmatrix.trees.unpacking import INPUT

#: Bytes behind the reader that can be read again: the first ones tell how a blob is compressed.
WINDOW = 64 << 10
#: A size that no stream reaches: how long it is shows at its end.
ENDLESS = 1 << 62
#: For zlib: a gzip header, and the largest window.
GZIP_WINDOW = 16 + zlib.MAX_WBITS


class Gunzip:
    """A gzip stream (RFC 1952, one or several members), checked at the end of each member.

    gzip.GzipFile takes 8 KiB at a time before Python 3.12: a quarter of all time.
    """

    def __init__(self, stream: Readable, window: int = GZIP_WINDOW) -> None:
        """`window` tells zlib of another format of streams."""
        self._stream = stream
        self._window = window
        self._member = zlib.decompressobj(wbits=window)
        self._ahead = b""

    def read(self, length: int) -> bytes:
        """The next bytes, at most `length`; none at the end. Raises `zlib.error` or EOFError."""
        while True:
            if self._member.eof:
                # There may be another one, and zeros before it.
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
    """A source that is read in its order; a window behind the reader can be read again."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._window = bytearray()
        #: Offset of the window's first byte.
        self._start = 0
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `Source.read`. Raises `Unreadable` for what lies behind the window."""
        if offset < self._start:
            raise Unreadable("its entries are not in the order in which they lie")
        while self._start + len(self._window) < offset + length:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            self.bytes_read += len(chunk)
            if self.bytes_read <= offset - WINDOW:
                # All of it is skipped: most of a layer is the contents of large files.
                self._start = self.bytes_read
                self._window.clear()
                continue
            self._window += chunk
            # What is skipped is not kept, but for the window before the place that is asked for.
            passed = min(len(self._window), offset - self._start) - WINDOW
            if passed > WINDOW:
                del self._window[:passed]
                self._start += passed
        begin = offset - self._start
        return bytes(self._window[begin : begin + length])
