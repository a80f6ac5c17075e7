"""Reproducible layers, their compression, and OCI archives."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, Literal

import msgspec
from msgspec import Struct, field

from buildmatrix.base.errors import UndecidedError
from buildmatrix.images.documents import INDEX, LAYER_GZIP, Descriptor, ImageIndex, encode
from buildmatrix.images.layout import (
    IMAGE_NAME,
    LAYOUT_FILE,
    REF_NAME,
    BlobWriter,
    OciLayout,
    blob_path,
)

# Compression. Its output depends only on its input and on the release of a library.
#
# Python's zlib is the system's, which may be zlib-ng; ISA-L's output depends on the processor.
# `deflate` bundles libdeflate. The input is cut into blocks of one size, and each becomes a gzip
# member (RFC 1952, 2.2): all processors work on one layer, and their number changes nothing.
# Readers treat consecutive members as one stream; eStargz consists of them.


#: Bytes per block. The window of gzip is 32 KiB.
BLOCK: Final = 2 << 20
#: Measured in docs/architecture.md.
_LEVEL: Final = 3
#: Blocks per layer in compression or waiting for it, besides the one being filled.
_AHEAD: Final = 3


def output_key() -> str:
    """Return all that the output depends on besides its input, for cache keys."""
    import deflate

    return f"gzip {deflate.__version__} {_LEVEL} {BLOCK}"


class BlockWriter:
    """Writer that cuts its input into blocks, compressed in parallel by `pool`."""

    def __init__(self, pool: Executor, write: Callable[[bytes], None]) -> None:
        import deflate

        self._compress = partial(deflate.gzip_compress, compresslevel=_LEVEL)
        self._pool = pool
        self._write = write
        self._block = bytearray()
        self._ahead: deque[Future[bytearray]] = deque()

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
        self._write_done(0)

    def _submit(self) -> None:
        self._ahead.append(self._pool.submit(self._compress, bytes(self._block)))
        self._block.clear()
        self._write_done(_AHEAD)

    def _write_done(self, left: int) -> None:
        while len(self._ahead) > left:
            self._write(bytes(self._ahead.popleft().result()))


# Layers, independent of clock, host, user and locale.
#
# Format: POSIX pax, "ustar" for names that fit, with numeric owners. Entries are in the order of
# their paths, folder by folder, and a folder precedes its content.


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


class LayerEntry(Struct, frozen=True):
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


def parent_folders(path: str) -> Iterator[str]:
    """Yield the folders above a path, the nearest first."""
    while path := path.rpartition("/")[0]:
        yield path


#: Distribution → its paths in a layer; folders end with a slash.
LayerPaths = Mapping[str, Sequence[str]]


class StoredLayer(Struct, frozen=True):
    """A layer in an image layout."""

    descriptor: Descriptor
    #: Digest of its uncompressed bytes.
    diff_id: str
    #: The paths of distributions, if it holds some.
    paths: LayerPaths = field(default_factory=dict)


@contextmanager
def layer_writer(layout: OciLayout, pool: Executor) -> Iterator[LayerWriter]:
    """Open a new layer in `layout`, compressed by `pool`; its `layer` is valid afterwards.

    Stores nothing if the `with` statement ends with an exception. Raises OSError.
    """
    with layout.writer() as blob:
        writer = LayerWriter(blob, pool)
        yield writer
        writer.finish()


class LayerWriter:
    """Writer of a layer, entry by entry; see `layer_writer`.

    Adds missing folders, owned by root and with mode 0755.
    """

    def __init__(self, blob: BlobWriter, pool: Executor) -> None:
        self._blob = blob
        self._blocks = BlockWriter(pool, blob.write)
        self._hasher = hashlib.sha256()
        self._folders: set[str] = set()
        self._others: set[str] = set()
        self._last: list[str] = []

    @property
    def layer(self) -> StoredLayer:
        """The layer, once it is finished."""
        descriptor = Descriptor(
            media_type=LAYER_GZIP, digest=self._blob.digest, size=self._blob.size
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


# Archives.
#
# Format: a tar archive of an image layout (OCI image specification 1.1), plus a `manifest.json` for
# Docker without containerd's image store (moby, image/tarexport). `docker save` writes the same
# since Docker 25. Equal images give equal bytes.


def iter_archive(
    layout: OciLayout, image: Descriptor, references: Sequence[str]
) -> Iterator[bytes]:
    """Yield the bytes of an archive of `image` under the names `references`.

    Names have to be complete, as containerd does not complete them: `docker.io/library/app:1`, the
    `str` of a `registry.reference.Reference`.
    Verifies the digests of all blobs on the way. Raises UndecidedError or OSError.
    """
    manifest = layout.manifest(image)
    entries = tuple(_with_name(image, reference) for reference in references) or (image,)
    index = ImageIndex(schema_version=2, media_type=INDEX, manifests=entries)
    for_docker = [
        {
            "Config": blob_path(manifest.config.digest),
            "RepoTags": list(references),
            "Layers": [blob_path(layer.digest) for layer in manifest.layers],
        }
    ]
    blobs = {blob.digest: blob for blob in (*manifest.layers, manifest.config, image)}
    for folder in ("blobs", "blobs/sha256"):
        yield _file_header(folder, 0, tarfile.DIRTYPE)
    for digest in sorted(blobs):
        blob = blobs[digest]
        with layout.blob(blob) as chunks:
            yield from _iter_file(blob_path(blob.digest), blob.size, chunks)
    for name, data in (
        ("index.json", encode(index)),
        ("manifest.json", json.dumps(for_docker, separators=(",", ":")).encode()),
        ("oci-layout", LAYOUT_FILE),
    ):
        yield from _iter_file(name, len(data), (data,))
    yield bytes(2 * tarfile.BLOCKSIZE)


def _with_name(image: Descriptor, reference: str) -> Descriptor:
    names = {IMAGE_NAME: reference, REF_NAME: reference.rpartition(":")[2]}
    return msgspec.structs.replace(image, annotations={**image.annotations, **names})


def _iter_file(path: str, size: int, chunks: Iterable[bytes]) -> Iterator[bytes]:
    yield _file_header(path, size, tarfile.REGTYPE)
    yield from chunks
    yield bytes(-size % tarfile.BLOCKSIZE)


def _file_header(path: str, size: int, kind: bytes) -> bytes:
    info = tarfile.TarInfo(path)
    info.type = kind
    info.size = size
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    info.mtime = FIXED_TIME
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8")
