"""LZ4 in Python (lz4_Block_format.md and lz4_Frame_format.md of the LZ4 project).

fatbinary writes blocks without a frame, of which only the beginning is needed; files have frames.
No Python includes a library for it, and few images have the system's.
"""

from __future__ import annotations

from buildmatrix.trees.base import Readable

MAGIC = b"\x04\x22\x4d\x18"
#: Format of `lz4 -l` and the kernel: blocks of 8 MiB without an end marker.
LEGACY_MAGIC = b"\x02\x21\x4c\x18"

_LEGACY_BLOCK = 8 << 20
#: Bytes before a block that it may copy.
_WINDOW = 64 << 10
_UNCOMPRESSED = 1 << 31


def head(data: bytes, limit: int, before: bytes = b"") -> bytes:
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
        elif magic == MAGIC:
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
        self._plain = data if is_plain else head(data, self._block_size, self._window)
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
