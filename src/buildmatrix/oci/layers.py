"""Layers that depend on nothing but what is put into them: no clock, no host, no user, no locale.

Format: POSIX pax, "ustar" where that holds a name, with numbers for owners. Entries stand in the
order of their paths, folder by folder, and a folder before what is in it.
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

#: What the name of an entry begins with that removes files of the layers below (OCI image
#: specification, layer.md, "Whiteouts"). Engines take no other file to be called so.
WHITEOUT: Final = ".wh."
#: The time of every file: 1980-01-01, the first that a ZIP archive of it could hold.
TIME: Final = 315532800
_KINDS: Final = {
    "file": tarfile.REGTYPE,
    "folder": tarfile.DIRTYPE,
    "symlink": tarfile.SYMTYPE,
    "hardlink": tarfile.LNKTYPE,
}


@dataclass(frozen=True, slots=True)
class LayerEntry:
    """One file, folder or link of a layer."""

    #: Below the root, without a slash at the beginning or the end.
    path: str
    kind: Literal["file", "folder", "symlink", "hardlink"] = "file"
    mode: int = 0o644
    #: Bytes of a file.
    size: int = 0
    #: What a link leads to.
    target: str = ""
    user: int = 0
    group: int = 0


def order(path: str) -> list[str]:
    """The key that entries are sorted by: a folder, then what is in it, then its neighbors."""
    return path.split("/")


def is_whiteout(path: str) -> bool:
    """Whether an entry of this path, or a folder above it, would remove files of other layers."""
    return f"/{WHITEOUT}" in f"/{path}"


@dataclass(frozen=True, slots=True)
class StoredLayer:
    """A layer in a layout."""

    descriptor: Descriptor
    #: Digest of its uncompressed bytes.
    diff_id: str


@contextmanager
def layer_writer(layout: OciLayout, kind: Compression, pool: Executor) -> Iterator[LayerWriter]:
    """A new layer in `layout`, whose blocks `pool` compresses; `layer` says afterwards what it is.

    Nothing is stored where the `with` statement is left by an exception. Raises OSError.
    """
    with layout.writer() as blob:
        writer = LayerWriter(blob, kind, pool)
        yield writer
        writer.finish()


class LayerWriter:
    """A layer that is written entry by entry; see `layer_writer`.

    Folders that are missing in it are added, for root and with mode 0755.
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
        """What was written, once it is finished."""
        descriptor = Descriptor(
            media_type=self._media_type, digest=self._blob.digest, size=self._blob.size
        )
        return StoredLayer(descriptor, f"sha256:{self._hasher.hexdigest()}")

    def add(self, entry: LayerEntry, content: Iterable[bytes] = ()) -> None:
        """Append an entry, which must come behind the last one in `order`.

        Raises ValueError for a path that is out of order, comes twice, leads out of the root or
        lies in what is no folder, and for content that has not the size of its entry. Raises
        UndecidedError for names that no layer can hold.
        """
        parts = order(entry.path)
        if is_whiteout(entry.path):
            raise UndecidedError(
                f"/{entry.path[:200]} cannot be in an image, where a name that begins with "
                f"`{WHITEOUT}` removes other files"
            )
        if "\0" in entry.path + entry.target:
            raise UndecidedError(f"/{entry.path[:200]!r} has a NUL in its name or its target")
        if parts <= self._last or not all(parts) or not {".", ".."}.isdisjoint(parts):
            raise ValueError(f"{entry.path!r} cannot be added to a layer behind {self._last}")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            if folder in self._others:
                raise ValueError(f"{entry.path!r} lies in {folder!r}, which is no folder")
            if folder not in self._folders:
                self._begin(LayerEntry(folder, "folder", 0o755))
        self._last = parts
        self._begin(entry)
        size = 0
        for data in content:
            size += len(data)
            self._write(data)
        if size != entry.size:
            raise ValueError(f"{entry.path} has {size} bytes in place of {entry.size}")
        self._write(bytes(-size % tarfile.BLOCKSIZE))

    def finish(self) -> None:
        """Write the end."""
        self._write(bytes(2 * tarfile.BLOCKSIZE))
        self._blocks.finish()

    def _begin(self, entry: LayerEntry) -> None:
        info = tarfile.TarInfo(entry.path)
        info.type = _KINDS[entry.kind]
        info.mode = entry.mode
        info.uid, info.gid = entry.user, entry.group
        info.size = entry.size
        info.linkname = entry.target
        info.mtime = TIME
        (self._folders if entry.kind == "folder" else self._others).add(entry.path)
        self._write(_header(info))

    def _write(self, data: bytes) -> None:
        self._hasher.update(data)
        self._blocks.write(data)


def _header(info: tarfile.TarInfo) -> bytes:
    """A header of the oldest form that holds it: tarfile's pax ignores half of what "ustar" has."""
    if info.name.isascii() and info.linkname.isascii():
        with suppress(ValueError):
            return info.tobuf(tarfile.USTAR_FORMAT, "ascii")
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
