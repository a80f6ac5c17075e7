"""Zstandard (RFC 8878), by whichever library is available.

Python 3.14's, the same as a package for older ones, or the system's, which dpkg and rpm require, so
that most images with Python have it. The scanner also runs in images where nothing can be
installed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from typing import Any, Protocol

MAGIC = b"\x28\xb5\x2f\xfd"
#: Default limit of bytes per call.
CHUNK = 1 << 20
MISSING = "neither this Python nor its system has a library for Zstandard"


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


def head(data: bytes, limit: int) -> bytes:
    """Return the first `limit` decompressed bytes, fewer if the frame or `data` ends.

    Raises:
        ValueError: `data` is not a valid Zstandard frame, or there is no library.
    """
    begin = find_decompressor()
    if begin is None:
        raise ValueError(MISSING)
    try:
        return begin().decompress(data, limit)
    except Exception as error:
        if is_damage(error):
            raise ValueError(str(error)) from error
        raise


def is_damage(error: Exception) -> bool:
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

    def decompress(self, data: bytes, max_length: int = CHUNK) -> bytes:
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
