"""Sequential decompression: Zstandard, LZ4, gzip, xz and bzip2, and access to such streams."""

from __future__ import annotations

import bz2
import ctypes
import lzma
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from typing import Any, Protocol

from buildmatrix.facts.trees.base import Readable, Unreadable

# Zstandard (RFC 8878): Python 3.14's, the same as a package for older ones, or the system's, which
# dpkg and rpm require, so that most images with Python have it. The scanner also runs in images
# where nothing can be installed.


ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
#: Default limit of bytes per call.
ZSTD_CHUNK = 1 << 20
ZSTD_MISSING = "neither this Python nor its system has a library for Zstandard"


class Decompressor(Protocol):
    """Decompressor of one frame, with the interface of `lzma.LZMADecompressor`."""

    @property
    def eof(self) -> bool:
        """True after the end of the frame."""

    @property
    def needs_input(self) -> bool:
        """True if no byte can be returned without more input."""

    @property
    def unused_data(self) -> bytes:
        """Data after the end of the frame."""

    def decompress(self, data: bytes, max_length: int = ...) -> bytes:
        """Return the next bytes, at most `max_length`. Raises an error that `is_damage` accepts."""


@cache
def find_decompressor() -> Callable[[], Decompressor] | None:
    """Return a constructor of decompressors; None without a library."""
    for module in ("compression.zstd", "backports.zstd"):
        with suppress(ImportError):
            begin: Callable[[], Decompressor] = import_module(module).ZstdDecompressor
            return begin
    with suppress(OSError, AttributeError):
        return partial(SystemDecompressor, _system_library())
    return None


def zstd_head(data: bytes, limit: int) -> bytes:
    """Return the first `limit` decompressed bytes, fewer if the frame or `data` ends.

    Raises:
        ValueError: `data` is not a valid Zstandard frame, or there is no library.
    """
    begin = find_decompressor()
    if begin is None:
        raise ValueError(ZSTD_MISSING)
    try:
        return begin().decompress(data, limit)
    except Exception as error:
        if is_zstd_damage(error):
            raise ValueError(str(error)) from error
        raise


def is_zstd_damage(error: Exception) -> bool:
    """Return True for a library's error about damaged data; each has its own class."""
    return type(error).__name__ == "ZstdError"


class ZstdError(ValueError):
    """Error of the system's library, with the same name as in other libraries."""


class _Buffer(ctypes.Structure):
    """ZSTD_inBuffer and ZSTD_outBuffer."""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("pos", ctypes.c_size_t))


@cache
def _system_library() -> Any:
    """Load the streaming interface (zstd.h). Raises OSError or AttributeError."""
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_createDStream.restype = ctypes.c_void_p
    library.ZSTD_freeDStream.argtypes = [ctypes.c_void_p]
    library.ZSTD_decompressStream.restype = ctypes.c_size_t
    library.ZSTD_decompressStream.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    library.ZSTD_isError.argtypes = [ctypes.c_size_t]
    library.ZSTD_getErrorName.argtypes = [ctypes.c_size_t]
    library.ZSTD_getErrorName.restype = ctypes.c_char_p
    return library


class SystemDecompressor:
    """`Decompressor` of the system's library."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._stream = library.ZSTD_createDStream()
        if not self._stream:
            raise MemoryError
        self._input = b""
        self.eof = False
        self.needs_input = True
        self.unused_data = b""

    def __del__(self) -> None:
        self._library.ZSTD_freeDStream(self._stream)

    def decompress(self, data: bytes, max_length: int = ZSTD_CHUNK) -> bytes:
        """See `Decompressor.decompress`."""
        data = self._input + data
        out = ctypes.create_string_buffer(max_length)
        source = _Buffer(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data), 0)
        target = _Buffer(ctypes.cast(out, ctypes.c_void_p), max_length, 0)
        while target.pos < max_length and not self.eof:
            before = source.pos, target.pos
            hint = self._library.ZSTD_decompressStream(
                self._stream, ctypes.byref(target), ctypes.byref(source)
            )
            if self._library.ZSTD_isError(hint):
                raise ZstdError(self._library.ZSTD_getErrorName(hint).decode())
            self.eof = hint == 0
            if (source.pos, target.pos) == before:
                break
        rest = data[source.pos :]
        self._input, self.unused_data = (b"", rest) if self.eof else (rest, b"")
        self.needs_input = not self.eof and target.pos < max_length
        return out.raw[: target.pos]


# LZ4 in Python (lz4_Block_format.md and lz4_Frame_format.md of the LZ4 project).
#
# fatbinary writes blocks without a frame, of which only the beginning is needed; files have frames.
# No Python includes a library for it, and few images have the system's.


LZ4_MAGIC = b"\x04\x22\x4d\x18"
#: Format of `lz4 -l` and the kernel: blocks of 8 MiB without an end marker.
LEGACY_MAGIC = b"\x02\x21\x4c\x18"

_LEGACY_BLOCK = 8 << 20
#: Bytes before a block that it may copy.
_WINDOW = 64 << 10
_UNCOMPRESSED = 1 << 31


def lz4_head(data: bytes, limit: int, before: bytes = b"") -> bytes:
    """Return the first decompressed bytes, slightly more than `limit`; fewer if `data` ends.

    `before` is the content that the block may copy from.

    Raises:
        ValueError: the block is damaged.
    """
    out = bytearray(before)
    limit += len(before)
    at = 0
    while at < len(data) and len(out) < limit:
        token = data[at]
        at, length = _read_length(data, at + 1, token >> 4, limit)
        out += data[at : at + length]
        at += length
        if at + 2 > len(data) or len(out) >= limit:
            break
        distance = int.from_bytes(data[at : at + 2], "little")
        at, length = _read_length(data, at + 2, token & 15, limit)
        length += 4
        start = len(out) - distance
        if distance == 0 or start < 0:
            raise ValueError("a copy in the LZ4 block begins before its start")
        copied = out[start : start + length]
        out += copied if len(copied) == length else (copied * (length // distance + 1))[:length]
    return bytes(out[len(before) :])


def _read_length(data: bytes, at: int, start: int, limit: int) -> tuple[int, int]:
    """Read a length: four bits, followed by bytes while each is 255."""
    length = start
    while start == 15 and at < len(data):
        length += data[at]
        at += 1
        if data[at - 1] != 255 or length > limit:
            break
    return at, length


class FrameDecompressor:
    """Decompressor of consecutive frames. Does not verify checksums."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._plain = b""
        self._window = b""
        #: Maximum size of the current frame's blocks; 0 outside of frames.
        self._block_size = 0
        self._is_legacy = self._is_linked = self._has_sums = self._has_sum = False

    def read(self, length: int) -> bytes:
        """Return at most `length` bytes; none at the end. Raises ValueError or EOFError."""
        while not self._plain:
            if not self._block_size and not self._begin_frame():
                return b""
            self._read_block()
        data, self._plain = self._plain[:length], self._plain[length:]
        return data

    def _begin_frame(self) -> bool:
        """Read the header of the next frame; return False at the end of the stream."""
        magic = self._read_exactly(4, may_end=True)
        while magic[1:] == b"\x2a\x4d\x18" and 0x50 <= magic[0] <= 0x5F:
            remaining = int.from_bytes(self._read_exactly(4), "little")
            while remaining:
                remaining -= len(self._read_exactly(min(remaining, _WINDOW)))
            magic = self._read_exactly(4, may_end=True)
        self._is_legacy = magic == LEGACY_MAGIC
        if self._is_legacy:
            self._block_size, self._is_linked, self._has_sums = _LEGACY_BLOCK, False, False
        elif magic == LZ4_MAGIC:
            flags, sizes = self._read_exactly(2)
            if flags >> 6 != 1 or sizes >> 4 < 4:
                raise ValueError("a frame of LZ4 of an unknown version")
            self._block_size = 1 << (8 + 2 * (sizes >> 4))
            self._is_linked, self._has_sums = not flags & 0x20, bool(flags & 0x10)
            self._has_sum = bool(flags & 0x04)
            # Content size, dictionary ID, and checksum of the header.
            self._read_exactly((8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0) + 1)
        elif magic:
            raise ValueError("no frame of LZ4")
        self._window = b""
        return bool(magic)

    def _read_block(self) -> None:
        """Decompress one block, or end the frame."""
        field = self._read_exactly(4, may_end=self._is_legacy)
        size = int.from_bytes(field, "little")
        if self._is_legacy and field == LEGACY_MAGIC:
            return
        if not size:
            if self._has_sum and not self._is_legacy:
                self._read_exactly(4)
            self._block_size = 0
            return
        is_plain = bool(size & _UNCOMPRESSED) and not self._is_legacy
        size &= _UNCOMPRESSED - 1
        if size > self._block_size + self._block_size // 64 + 64:
            raise ValueError("a block of LZ4 is larger than its frame allows")
        data = self._read_exactly(size)
        self._plain = data if is_plain else lz4_head(data, self._block_size, self._window)
        if len(self._plain) > self._block_size:
            raise ValueError("a block of LZ4 is larger than its frame allows")
        if self._is_linked:
            self._window = (self._window + self._plain)[-_WINDOW:]
        if self._has_sums:
            self._read_exactly(4)

    def _read_exactly(self, length: int, *, may_end: bool = False) -> bytes:
        pieces = []
        missing = length
        while missing:
            piece = self._stream.read(missing)
            if not piece:
                if may_end and missing == length:
                    return b""
                raise EOFError("the stream ends early")
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)


# Formats as streams


#: Compressed bytes to process at once.
INPUT = 128 << 10


class StreamDecompressor:
    """Joins consecutive streams of a format, with zeros between them, as its program does."""

    def __init__(
        self,
        stream: Readable,
        begin: Callable[[], lzma.LZMADecompressor | bz2.BZ2Decompressor | Decompressor],
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
    begin = find_decompressor()
    if begin is None:
        raise Unreadable(f"compressed with Zstandard: {ZSTD_MISSING}")
    return StreamDecompressor(stream, begin)


# Compressed streams and their content


#: Bytes before the current position that can be read again, for detecting compression.
WINDOW = 64 << 10
#: Size of a stream whose length is only known at its end.
ENDLESS = 1 << 62
#: zlib setting: a gzip header, and the largest window.
GZIP_WINDOW = 16 + zlib.MAX_WBITS


class Inflater:
    """`Decompressor` of one stream of zlib, by default a member of gzip (RFC 1952).

    Before Python 3.12, gzip.GzipFile reads 8 KiB at a time, a quarter of the total time.
    """

    def __init__(self, window: int = GZIP_WINDOW) -> None:
        self._member = zlib.decompressobj(wbits=window)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        """See `Decompressor.eof`."""
        return self._member.eof

    @property
    def unused_data(self) -> bytes:
        """See `Decompressor.unused_data`."""
        return self._member.unused_data

    def decompress(self, data: bytes, max_length: int = ZSTD_CHUNK) -> bytes:
        """See `Decompressor.decompress`."""
        out = self._member.decompress(self._member.unconsumed_tail + data, max_length)
        # Output that did not fit may be left without any input.
        self.needs_input = not self._member.unconsumed_tail and len(out) < max_length
        return out


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
