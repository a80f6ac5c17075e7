"""Compression whose output depends on its input and on the release of a library alone.

zlib of Python is the system's, which may be zlib-ng; ISA-L takes other ways on other processors;
Zstandard of Python 3.14 is the system's again. `deflate` and `zstandard` bring libdeflate and
libzstd along. The bytes are cut into blocks of one size, and each is a gzip member or a Zstandard
frame of its own (RFC 1952, 2.2; RFC 8878, 3): so all processors work on one layer, and how many
there are changes nothing. Readers take members in a row for one stream; eStargz is made of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from types import ModuleType
from typing import Final, Literal

from buildmatrix.errors import ComponentError

Compression = Literal["gzip", "zstd"]

#: Bytes of a block. The window of gzip has 32 KiB, that of level 3 of Zstandard 2 MiB.
BLOCK: Final = 2 << 20
#: Measured in docs/architecture.md.
_GZIP_LEVEL: Final = 3
_ZSTD_LEVEL: Final = 3
#: Blocks of one layer that are compressed or wait for it, beside the one that is filled.
_AHEAD: Final = 3


def compressor(kind: Compression) -> Callable[[bytes], bytes]:
    """What compresses one block; for all threads at once, none waits for another."""
    if kind == "gzip":
        import deflate

        return lambda block: bytes(deflate.gzip_compress(block, _GZIP_LEVEL))
    compress = _zstandard().ZstdCompressor

    def frame(block: bytes) -> bytes:
        return bytes(compress(level=_ZSTD_LEVEL, write_checksum=True).compress(block))

    return frame


def settings(kind: Compression) -> str:
    """All that the compressed bytes depend on beside their input: a part of the names of caches."""
    if kind == "gzip":
        import deflate

        return f"gzip {deflate.__version__} {_GZIP_LEVEL} {BLOCK}"
    version = ".".join(map(str, _zstandard().ZSTD_VERSION))
    return f"zstd {version} {_ZSTD_LEVEL} {BLOCK}"


def _zstandard() -> ModuleType:
    """Import the library. Raises `ComponentError` without the extra that brings it."""
    try:
        import zstandard
    except ImportError:
        raise ComponentError(
            "compression = \"zstd\" needs the package zstandard: pip install 'buildmatrix[zstd]'"
        ) from None
    return zstandard


class BlockWriter:
    """Cuts what it is given into blocks, which `pool` compresses side by side."""

    def __init__(self, kind: Compression, pool: Executor, write: Callable[[bytes], None]) -> None:
        self._compress = compressor(kind)
        self._pool = pool
        self._write = write
        self._block = bytearray()
        self._ahead: deque[Future[bytes]] = deque()

    def write(self, data: bytes) -> None:
        """Append `data`; it may come out later."""
        rest = memoryview(data)
        while rest:
            part = rest[: BLOCK - len(self._block)]
            self._block += part
            rest = rest[len(part) :]
            if len(self._block) == BLOCK:
                self._submit()

    def finish(self) -> None:
        """Write what is left."""
        if self._block:
            self._submit()
        for block in self._done(0):
            self._write(block)

    def _submit(self) -> None:
        self._ahead.append(self._pool.submit(self._compress, bytes(self._block)))
        self._block.clear()
        for block in self._done(_AHEAD):
            self._write(block)

    def _done(self, left: int) -> Iterator[bytes]:
        while len(self._ahead) > left:
            yield self._ahead.popleft().result()
