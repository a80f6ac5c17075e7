"""Archives of conda packages, read in place.

Formats: `.conda`, a stored ZIP of `info-*.tar.zst` and `pkg-*.tar.zst`, and `.tar.bz2`
(https://conda.org/learn/ceps).
"""

from __future__ import annotations

import bz2
from collections.abc import Iterable

from buildmatrix.facts.trees.archive import (
    INFLATION_ALLOWANCE,
    MAX_INFLATION,
    BoundedStream,
    Slice,
    SliceReader,
    Spool,
    iter_decompressed,
)
from buildmatrix.facts.trees.base import Unreadable
from buildmatrix.facts.trees.decompression import StreamDecompressor
from buildmatrix.facts.trees.tar import TarMember, members
from buildmatrix.facts.trees.wheel import WheelTree


def package_members(blob: Slice, spool: Spool) -> dict[str, TarMember]:
    """Return the members of a package by name, from its one archive or its two.

    Raises `Unreadable` for damage and bombs.
    """
    archives: Iterable[Slice] = [blob]
    if blob.read(0, 2) == b"PK":
        with WheelTree(blob, located=str) as tree:
            names = [entry.name for entry in tree.entries if entry.name.endswith(".tar.zst")]
            placed = [tree.place(name) for name in names if name.startswith(("info-", "pkg-"))]
        if any(entry.compressed != entry.size for entry, _ in placed):
            raise Unreadable("its archives are compressed twice")
        archives = [Slice(blob, start, entry.size) for entry, start in placed]
    found: dict[str, TarMember] = {}
    for archive in archives:
        for member in members(_unpacked(archive, spool)):
            original = found.get(member.target) if member.kind == "hardlink" else None
            found[member.name.removeprefix("./")] = original or member
    return found


def _unpacked(archive: Slice, spool: Spool) -> Slice:
    if archive.read(0, 3) != b"BZh":
        return spool.store(iter_decompressed(archive))
    stream = StreamDecompressor(SliceReader(archive), bz2.BZ2Decompressor)
    most = INFLATION_ALLOWANCE + MAX_INFLATION * archive.size
    limit = f"{MAX_INFLATION} times its size: a bomb"
    return spool.store(iter(BoundedStream(stream, most, limit, (EOFError, OSError, ValueError))))
