"""Compression that depends only on its input and on the release of a library.

Python's zlib is the system's, which may be zlib-ng; ISA-L's output depends on the processor; Python
3.14's Zstandard is the system's again. `deflate` and `zstandard` bundle libdeflate and libzstd. The
input is cut into blocks of one size, and each becomes a gzip member or a Zstandard frame (RFC 1952,
2.2; RFC 8878, 3): all processors work on one layer, and their number changes nothing. Readers treat
consecutive members as one stream; eStargz consists of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from types import ModuleType
from typing import Final, Literal

from buildmatrix.errors import ComponentError

Compression = Literal["gzip", "zstd"]

#: Bytes per block. The window of gzip is 32 KiB, that of Zstandard's level 3 is 2 MiB.
BLOCK: Final = 2 << 20
#: Measured in docs/architecture.md.
_GZIP_LEVEL: Final = 3
_ZSTD_LEVEL: Final = 3
#: Blocks per layer in compression or waiting for it, besides the one being filled.
_AHEAD: Final = 3


def make_compressor(kind: Compression) -> Callable[[bytes], bytes]:
    """Return a function that compresses one block; safe to call from all threads at once."""
    if kind == "gzip":
        import deflate

        return lambda block: bytes(deflate.gzip_compress(block, _GZIP_LEVEL))
    compress = _import_zstandard().ZstdCompressor

    def frame(block: bytes) -> bytes:
        return bytes(compress(level=_ZSTD_LEVEL, write_checksum=True).compress(block))

    return frame


def output_key(kind: Compression) -> str:
    """Return all that the output depends on besides its input, for cache keys."""
    if kind == "gzip":
        import deflate

        return f"gzip {deflate.__version__} {_GZIP_LEVEL} {BLOCK}"
    version = ".".join(map(str, _import_zstandard().ZSTD_VERSION))
    return f"zstd {version} {_ZSTD_LEVEL} {BLOCK}"


def _import_zstandard() -> ModuleType:
    """Import the library. Raises `ComponentError` without the extra that installs it."""
    try:
        import zstandard
    except ImportError:
        raise ComponentError(
            "compression = \"zstd\" requires the package zstandard: pip install 'buildmatrix[zstd]'"
        ) from None
    return zstandard


class BlockWriter:
    """Writer that cuts its input into blocks, compressed in parallel by `pool`."""

    def __init__(self, kind: Compression, pool: Executor, write: Callable[[bytes], None]) -> None:
        self._compress = make_compressor(kind)
        self._pool = pool
        self._write = write
        self._block = bytearray()
        self._ahead: deque[Future[bytes]] = deque()

    def write(self, data: bytes) -> None:
        """Append `data`; the output may be written later."""
        rest = memoryview(data)
        while rest:
            part = rest[: BLOCK - len(self._block)]
            self._block += part
            rest = rest[len(part) :]
            if len(self._block) == BLOCK:
                self._submit()

    def finish(self) -> None:
        """Write the remaining blocks."""
        if self._block:
            self._submit()
        for block in self._pop_done(0):
            self._write(block)

    def _submit(self) -> None:
        self._ahead.append(self._pool.submit(self._compress, bytes(self._block)))
        self._block.clear()
        for block in self._pop_done(_AHEAD):
            self._write(block)

    def _pop_done(self, left: int) -> Iterator[bytes]:
        while len(self._ahead) > left:
            yield self._ahead.popleft().result()
