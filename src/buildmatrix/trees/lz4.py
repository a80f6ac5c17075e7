"""LZ4 blocks (lz4_Block_format.md of the LZ4 project), as fatbinary writes them.

They have no frame around them, and only their beginnings are of interest, so a library for files
would be of no help.
"""

from __future__ import annotations


def head(data: bytes, limit: int) -> bytes:
    """The first decompressed bytes, a little more than `limit`; fewer where `data` ends.

    Raises:
        ValueError: the block is damaged.
    """
    out = bytearray()
    at = 0
    while at < len(data) and len(out) < limit:
        token = data[at]
        at, length = _length(data, at + 1, token >> 4, limit)
        out += data[at : at + length]
        at += length
        if at + 2 > len(data) or len(out) >= limit:
            break
        distance = int.from_bytes(data[at : at + 2], "little")
        at, length = _length(data, at + 2, token & 15, limit)
        length += 4
        if not 0 < distance <= len(out):
            raise ValueError("a copy in the LZ4 block begins before its start")
        copied = out[-distance:][:length]
        out += (copied * (length // len(copied) + 1))[:length]
    return bytes(out)


def _length(data: bytes, at: int, start: int, limit: int) -> tuple[int, int]:
    """A length that begins with four bits and goes on in bytes while these are 255."""
    length = start
    while start == 15 and at < len(data):
        length += data[at]
        at += 1
        if data[at - 1] != 255 or length > limit:
            break
    return at, length
