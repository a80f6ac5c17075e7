"""Reproducible layers: independent of clock, host, user and locale.

Format: POSIX pax, "ustar" for names that fit, with numeric owners. Entries are in the order of
their paths, folder by folder, and a folder precedes its content.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Literal

from buildmatrix.errors import UndecidedError
from buildmatrix.oci.compression import BlockWriter, Compression
from buildmatrix.oci.documents import LAYER_GZIP, LAYER_ZSTD, Descriptor
from buildmatrix.oci.layout import BlobWriter, OciLayout

#: Prefix of an entry that removes files of lower layers (OCI image specification, layer.md,
#: "Whiteouts"). Engines reject other files with such names.
WHITEOUT: Final = ".wh."
#: Time of every file: 1980-01-01, the earliest in ZIP archives.
FIXED_TIME: Final = 315532800
_KINDS: Final = {
    "file": tarfile.REGTYPE,
    "folder": tarfile.DIRTYPE,
    "symlink": tarfile.SYMTYPE,
    "hardlink": tarfile.LNKTYPE,
}


@dataclass(frozen=True, slots=True)
class LayerEntry:
    """One file, folder or link of a layer."""

    #: Relative to the root, without leading or trailing slash.
    path: str
    kind: Literal["file", "folder", "symlink", "hardlink"] = "file"
    mode: int = 0o644
    #: Bytes of the content.
    size: int = 0
    #: Target of a link.
    target: str = ""
    user: int = 0
    group: int = 0


def sort_key(path: str) -> list[str]:
    """Return the sort key of an entry: a folder precedes its content, then its neighbors."""
    return path.split("/")


def is_whiteout(path: str) -> bool:
    """Return True if an entry of this path, or a folder above it, would remove other files."""
    return f"/{WHITEOUT}" in f"/{path}"


@dataclass(frozen=True, slots=True)
class StoredLayer:
    """A layer in an image layout."""

    descriptor: Descriptor
    #: Digest of its uncompressed bytes.
    diff_id: str


@contextmanager
def layer_writer(layout: OciLayout, kind: Compression, pool: Executor) -> Iterator[LayerWriter]:
    """Open a new layer in `layout`, compressed by `pool`; its `layer` is valid afterwards.

    Stores nothing if the `with` statement ends with an exception. Raises OSError.
    """
    with layout.writer() as blob:
        writer = LayerWriter(blob, kind, pool)
        yield writer
        writer.finish()


class LayerWriter:
    """Writer of a layer, entry by entry; see `layer_writer`.

    Adds missing folders, owned by root and with mode 0755.
    """

    def __init__(self, blob: BlobWriter, kind: Compression, pool: Executor) -> None:
        self._media_type = LAYER_GZIP if kind == "gzip" else LAYER_ZSTD
        self._blob = blob
        self._blocks = BlockWriter(kind, pool, blob.write)
        self._hasher = hashlib.sha256()
        self._folders: set[str] = set()
        self._others: set[str] = set()
        self._last: list[str] = []

    @property
    def layer(self) -> StoredLayer:
        """The layer, once it is finished."""
        descriptor = Descriptor(
            media_type=self._media_type, digest=self._blob.digest, size=self._blob.size
        )
        return StoredLayer(descriptor, f"sha256:{self._hasher.hexdigest()}")

    def add(self, entry: LayerEntry, content: Iterable[bytes] = ()) -> None:
        """Append an entry, which must follow the last one in `sort_key` order.

        Raises ValueError for a path that is out of order, repeated, outside the root or inside a
        non-folder, and for content whose size differs from its entry. Raises UndecidedError for
        names that a layer cannot have.
        """
        parts = sort_key(entry.path)
        if is_whiteout(entry.path):
            raise UndecidedError(
                f"/{entry.path[:200]} cannot be in an image: names that begin with `{WHITEOUT}` "
                "remove other files"
            )
        if "\0" in entry.path + entry.target:
            raise UndecidedError(f"/{entry.path[:200]!r} has a NUL in its name or its target")
        if parts <= self._last or not all(parts) or not {".", ".."}.isdisjoint(parts):
            raise ValueError(f"{entry.path!r} cannot be added to a layer after {self._last}")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            if folder in self._others:
                raise ValueError(f"{entry.path!r} lies in {folder!r}, which is not a folder")
            if folder not in self._folders:
                self._write_header(LayerEntry(folder, "folder", 0o755))
        self._last = parts
        self._write_header(entry)
        size = 0
        for data in content:
            size += len(data)
            self._write(data)
        if size != entry.size:
            raise ValueError(f"{entry.path} has {size} bytes instead of {entry.size}")
        self._write(bytes(-size % tarfile.BLOCKSIZE))

    def finish(self) -> None:
        """Write the end of the archive."""
        self._write(bytes(2 * tarfile.BLOCKSIZE))
        self._blocks.finish()

    def _write_header(self, entry: LayerEntry) -> None:
        info = tarfile.TarInfo(entry.path)
        info.type = _KINDS[entry.kind]
        info.mode = entry.mode
        info.uid, info.gid = entry.user, entry.group
        info.size = entry.size
        info.linkname = entry.target
        info.mtime = FIXED_TIME
        (self._folders if entry.kind == "folder" else self._others).add(entry.path)
        self._write(_encode_header(info))

    def _write(self, data: bytes) -> None:
        self._hasher.update(data)
        self._blocks.write(data)


def _encode_header(info: tarfile.TarInfo) -> bytes:
    """Encode a header as ustar if it fits: tarfile's pax ignores half of ustar's fields."""
    if info.name.isascii() and info.linkname.isascii():
        with suppress(ValueError):
            return info.tobuf(tarfile.USTAR_FORMAT, "ascii")
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
