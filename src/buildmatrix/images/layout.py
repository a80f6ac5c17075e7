"""OCI image layouts: a folder of blobs by digest, and an index of its images; durable files.

Format: OCI image specification 1.1, image-layout.md. A blob gets its name once it is complete and
on disk, and an image is added to `index.json` once all of its blobs are. A killed run or a power
cut leaves an unfinished file and no image; several runs can share one layout.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from buildmatrix.base.errors import UndecidedError
from buildmatrix.images.documents import (
    INDEX,
    MAX_DOCUMENT,
    Descriptor,
    ImageIndex,
    Manifest,
    encode,
    index_of,
    manifest_of,
)

# Durable files. A file system may write a rename to disk before the content of the file. After a
# power cut, the file is then empty or full of zeros, under a name that promises more. So no file
# here has its final name before its content is on disk. The last use of a file is its modification
# time.


#: Errors of file systems that cannot sync folders.
_CANNOT: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES})
#: Seconds for which a used file counts as just used.
_USED: Final = 3600.0


def rename_written(file: BinaryIO, unfinished: Path, path: Path) -> None:
    """Move `file` from `unfinished` to `path` once its content is on disk.

    Raises OSError: write errors show here at the latest.
    """
    file.flush()
    os.fsync(file.fileno())
    unfinished.replace(path)


def sync_folder(folder: Path) -> None:
    """Sync the names in `folder` to disk, if its file system can. Raises OSError."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise


def note_use(path: Path, status: os.stat_result) -> None:
    """Mark the file at `path`, whose status is `status`, as used."""
    if time.time() - status.st_mtime > _USED:
        with suppress(OSError):  # a read-only file is still usable
            os.utime(path)


def make_room(files: Iterable[tuple[float, int, str]], limit: int, age: float) -> int:
    """Remove files, least recently used first; return the bytes freed. Raises OSError.

    Args:
        files: time of last use, bytes and path of each.
        limit: bytes that may stay.
        age: seconds after which an unused file is removed in any case.

    Files used within the last two hours stay, since a run may be using them.
    """
    now = time.time()
    by_use = sorted(files)
    excess = sum(size for _, size, _ in by_use) - limit
    freed = 0
    for used, size, path in by_use:
        if now - used <= 2 * _USED or (excess <= 0 and now - used <= age):
            break
        Path(path).unlink(missing_ok=True)
        excess -= size
        freed += size
    return freed


def list_files(folder: Path) -> Iterator[tuple[float, int, str]]:
    """Yield time of last use, bytes and path of everything in `folder`, for `make_room`."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                yield status.st_mtime, status.st_size, entry.path


# Layouts


#: Annotation with the name of an image in an index: a tag, or a full reference.
REF_NAME: Final = "org.opencontainers.image.ref.name"
#: Annotation of containerd and Docker with the full name of an image in an index.
IMAGE_NAME: Final = "io.containerd.image.name"
#: Content of the file `oci-layout`.
LAYOUT_FILE: Final = b'{"imageLayoutVersion":"1.0.0"}'
_UNFINISHED: Final = ".unfinished."
#: Age in seconds of an unfinished file whose run was killed.
_ABANDONED: Final = 86400.0
_CHUNK: Final = 1 << 20
_DIGEST = re.compile(r"(sha256|sha512):([0-9a-f]{64}|[0-9a-f]{128})")


def blob_path(digest: str) -> str:
    """Return the path of the blob with a digest in a layout or an archive."""
    return f"blobs/{digest.replace(':', '/')}"


class BlobWriter:
    """Writer of a new blob; created by `OciLayout.writer`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hasher = hashlib.sha256()
        #: Bytes written so far.
        self.size = 0

    def write(self, data: bytes) -> None:
        """Append `data`. Raises OSError."""
        self._file.write(data)
        self._hasher.update(data)
        self.size += len(data)

    @property
    def digest(self) -> str:
        """Digest of the bytes written so far."""
        return f"sha256:{self._hasher.hexdigest()}"


class OciLayout:
    """The layout in `folder`, which is created by the first write. For all threads at once.

    Raises OSError if the disk fails.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: str) -> Path:
        """Return a blob's path, present or not. Raises UndecidedError for an invalid digest."""
        match = _DIGEST.fullmatch(digest)
        if match is None:
            raise UndecidedError(f"{digest[:100]!r} is not a digest of a blob")
        return self.folder / "blobs" / match[1] / match[2]

    def has(self, descriptor: Descriptor) -> bool:
        """Return True if the complete blob is present, and mark it as used."""
        path = self.path(descriptor.digest)
        try:
            status = path.stat()
        except FileNotFoundError:
            return False
        if status.st_size != descriptor.size:
            return False
        note_use(path, status)
        return True

    def open(self, descriptor: Descriptor) -> BinaryIO:
        """Open a blob. Raises UndecidedError if it is missing or truncated."""
        try:
            file = self.path(descriptor.digest).open("rb")
        except FileNotFoundError:
            raise UndecidedError(
                f"the image layout {self.folder} has no blob {descriptor.digest}"
            ) from None
        size = os.fstat(file.fileno()).st_size
        if size != descriptor.size:
            file.close()
            raise UndecidedError(
                f"the image layout {self.folder}: blob {descriptor.digest} has {size} bytes "
                f"instead of {descriptor.size}"
            )
        return file

    @contextmanager
    def blob(self, descriptor: Descriptor) -> Iterator[Iterator[bytes]]:
        """Open a blob; its iterator raises UndecidedError at the end if the blob is damaged."""
        with self.open(descriptor) as file:
            yield verify_chunks(iter(lambda: file.read(_CHUNK), b""), descriptor, str(self.folder))

    def document(self, descriptor: Descriptor) -> bytes:
        """Read and verify a small blob. Raises UndecidedError."""
        if descriptor.size > MAX_DOCUMENT:
            raise UndecidedError(f"{descriptor.digest} is too large for a document of an image")
        with self.blob(descriptor) as chunks:
            return b"".join(chunks)

    # Writing

    @contextmanager
    def writer(self) -> Iterator[BlobWriter]:
        """Open a new blob, named at the end of the `with` statement, or removed after an error."""
        with self._unfinished(self._blob_folder("sha256")) as (file, unfinished):
            blob = BlobWriter(file)
            yield blob
            rename_written(file, unfinished, self.path(blob.digest))

    def put(self, data: bytes, media_type: str) -> Descriptor:
        """Store a document, once for equal data."""
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        descriptor = Descriptor(media_type=media_type, digest=digest, size=len(data))
        if not self.has(descriptor):
            with self.writer() as blob:
                blob.write(data)
        return descriptor

    def take(self, descriptor: Descriptor, chunks: Iterable[bytes]) -> None:
        """Store a blob from elsewhere. Raises UndecidedError if its digest differs."""
        if not descriptor.digest.startswith("sha256:"):
            raise UndecidedError(f"{descriptor.digest[:100]}: only sha256 digests can be stored")
        with self.writer() as blob:
            for chunk in verify_chunks(iter(chunks), descriptor, "its source"):
                blob.write(chunk)

    def adopt(self, other: OciLayout, image: Descriptor) -> None:
        """Copy all blobs of an image from `other`, as hard links on the same disk.

        Name it with `publish` afterwards. Raises UndecidedError for blobs that `other` lacks.
        """
        manifest = other.manifest(image)
        for descriptor in (*manifest.layers, manifest.config, image):
            if self.has(descriptor):
                continue
            with other.open(descriptor):
                pass  # present and complete
            target = self.path(descriptor.digest)
            self._blob_folder(target.parent.name)
            target.unlink(missing_ok=True)  # a blob of another size is damaged
            try:
                os.link(other.path(descriptor.digest), target)
            except FileExistsError:
                continue  # another run was faster
            except OSError:  # another disk, or one without hard links
                with other.blob(descriptor) as chunks:
                    self.take(descriptor, chunks)

    def manifest(self, image: Descriptor) -> Manifest:
        """Read the manifest of an image. Raises UndecidedError."""
        return manifest_of(self.document(image), f"{self.folder}: {image.digest}")

    # Images

    def images(self) -> tuple[Descriptor, ...]:
        """Return the entries of `index.json`, none without that file. Raises UndecidedError."""
        path = self.folder / "index.json"
        try:
            with path.open("rb") as file:
                data = file.read(MAX_DOCUMENT + 1)
        except FileNotFoundError:
            return ()
        return index_of(data, str(path)).manifests

    def publish(self, image: Descriptor, names: Iterable[str] = ()) -> None:
        """Add `image`, whose blobs are all present, to the index, under `names`.

        Moves these names from other images. Without a name, replaces all images.
        """
        blobs = self._blob_folder("sha256")
        for folder in (blobs, blobs.parent):
            sync_folder(folder)
        wanted = tuple(names)
        with self._lock_index():
            kept = [
                entry
                for entry in self.images()
                if wanted
                and entry.digest != image.digest
                and entry.annotations.get(REF_NAME) not in wanted
            ]
            named = [
                msgspec.structs.replace(image, annotations={**image.annotations, REF_NAME: name})
                for name in wanted
            ]
            entries = [*kept, *(named or [image])]
            entries.sort(key=lambda entry: (entry.annotations.get(REF_NAME, ""), entry.digest))
            index = ImageIndex(schema_version=2, media_type=INDEX, manifests=tuple(entries))
            self._replace_file("oci-layout", LAYOUT_FILE)
            self._replace_file("index.json", encode(index))
            sync_folder(self.folder)

    # Room

    def prune(self, limit: int, age: float) -> int:
        """Remove unused blobs by `make_room`, and files of killed runs; return the bytes freed."""
        now = time.time()
        blobs: list[tuple[float, int, str]] = []
        for folder in (self.folder / "blobs").glob("sha*"):
            for used, size, path in list_files(folder):
                if not Path(path).name.startswith(_UNFINISHED):
                    blobs.append((used, size, path))
                elif now - used > _ABANDONED:
                    Path(path).unlink(missing_ok=True)
        return make_room(blobs, limit, age)

    # Inside

    def _blob_folder(self, algorithm: str) -> Path:
        folder = self.folder / "blobs" / algorithm
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _replace_file(self, name: str, data: bytes) -> None:
        with self._unfinished(self.folder) as (file, unfinished):
            file.write(data)
            rename_written(file, unfinished, self.folder / name)

    @contextmanager
    def _unfinished(self, folder: Path) -> Iterator[tuple[BinaryIO, Path]]:
        """Create a file without its final name, which is removed after an error."""
        unfinished = folder / f"{_UNFINISHED}{secrets.token_hex(16)}"
        try:
            with unfinished.open("xb") as file:
                yield file, unfinished
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise

    @contextmanager
    def _lock_index(self) -> Iterator[None]:
        """Lock the index against other runs; the system releases the lock of a killed run."""
        with (self.folder / ".lock").open("ab") as file:
            with suppress(OSError):  # some network file systems have no locks
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def verify_chunks(chunks: Iterator[bytes], descriptor: Descriptor, where: str) -> Iterator[bytes]:
    """Yield `chunks`; raise UndecidedError if they are not the content of `descriptor`."""
    algorithm, _, wanted = descriptor.digest.partition(":")
    hasher = hashlib.new(algorithm)
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > descriptor.size:
            break
        hasher.update(chunk)
        yield chunk
    if size != descriptor.size:
        more = "more than" if size > descriptor.size else f"{size} bytes instead of"
        raise UndecidedError(
            f"{where}: blob {descriptor.digest} has {more} {descriptor.size} bytes"
        )
    if hasher.hexdigest() != wanted:
        raise UndecidedError(
            f"{where}: blob {descriptor.digest} is damaged: its bytes have another digest"
        )
