"""Layers with a table of contents, written as their makers write them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from layer_archives import Entry

from buildmatrix.layers.table import STARGZ_DIGEST, ZSTD_DIGEST, ZSTD_POSITION

if sys.version_info >= (3, 14):
    from compression.zstd import compress as zstandard
else:
    from backports.zstd import compress as zstandard

KINDS = {
    tarfile.REGTYPE: "reg",
    tarfile.DIRTYPE: "dir",
    tarfile.SYMTYPE: "symlink",
    tarfile.LNKTYPE: "hardlink",
    tarfile.FIFOTYPE: "fifo",
}


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _pieces(entries: Sequence[Entry], part: int) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """The bytes of the archive, cut where a part begins, with what the table says of the part."""
    for entry in entries:
        info = entry if isinstance(entry, tarfile.TarInfo) else tarfile.TarInfo(entry[0])
        data = b"" if isinstance(entry, tarfile.TarInfo) else entry[1]
        info.size = len(data)
        yield info.tobuf(tarfile.PAX_FORMAT), None
        told = {"name": info.name, "type": KINDS[info.type], "mode": info.mode}
        if info.linkname:
            told["linkName"] = info.linkname
        if info.type == tarfile.REGTYPE:
            told |= {"size": len(data), "digest": digest_of(data)}
        if not data:
            yield b"", told
        for start in range(0, len(data), part):
            piece = data[start : start + part]
            more = {"chunkDigest": digest_of(piece)}
            if len(data) > part:
                more |= {"chunkOffset": start, "chunkSize": len(piece)}
            yield piece, {**(told if start == 0 else {"name": info.name, "type": "chunk"}), **more}
        if padding := -len(data) % 512:
            yield bytes(padding), None


def _written(
    entries: Sequence[Entry], part: int, squeeze: Callable[[bytes], bytes]
) -> tuple[bytearray, list[dict[str, Any]]]:
    layer, told = bytearray(), []
    waiting = b""
    for piece, says in _pieces(entries, part):
        if says is None:
            waiting += piece
            continue
        if waiting:
            layer += squeeze(waiting)
            waiting = b""
        if piece:
            says |= {"offset": len(layer), "endOffset": len(layer) + len(squeeze(piece))}
            layer += squeeze(piece)
        told.append(says)
    if waiting:
        layer += squeeze(waiting)
    return layer, told


Change = Callable[[list[dict[str, Any]]], None]


def stargz(
    entries: Sequence[Entry], part: int = 4 << 20, change: Change = lambda _: None
) -> tuple[bytes, dict[str, str]]:
    """An eStargz layer, and its annotations; `change` makes its table lie."""
    layer, told = _written(entries, part, lambda data: gzip.compress(data, 6, mtime=0))
    for says in told:
        says.pop("endOffset", None)
    change(told)
    table = json.dumps({"version": 1, "entries": told}).encode()
    start = len(layer)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as out:
        info = tarfile.TarInfo("stargz.index.json")
        info.size = len(table)
        out.addfile(info, io.BytesIO(table))
    layer += gzip.compress(buffer.getvalue(), mtime=0)
    extra = b"SG\x16\x00" + f"{start:016x}STARGZ".encode()
    layer += b"\x1f\x8b\x08\x04" + bytes(4) + b"\x00\xff" + len(extra).to_bytes(2, "little") + extra
    layer += b"\x01\x00\x00\xff\xff" + bytes(8)
    return bytes(layer), {STARGZ_DIGEST: digest_of(table)}


def zstd_chunked(
    entries: Sequence[Entry], part: int = 64 << 10, change: Change = lambda _: None
) -> tuple[bytes, dict[str, str]]:
    """A zstd:chunked layer, and its annotations."""
    layer, told = _written(entries, part, zstandard)
    layer += zstandard(bytes(1024))
    change(told)
    table = json.dumps({"version": 1, "entries": told}).encode()
    packed = zstandard(table)
    # Tables lie in frames that decompressors skip (RFC 8878, 3.1.2).
    start = len(layer) + 8
    layer += b"\x50\x2a\x4d\x18" + len(packed).to_bytes(4, "little") + packed
    position = f"{start}:{len(packed)}:{len(table)}:1"
    return bytes(layer), {ZSTD_DIGEST: digest_of(packed), ZSTD_POSITION: position}
