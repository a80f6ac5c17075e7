"""An OCI image layout: a folder of blobs by digest, and an index of the images in it.

Format: OCI image specification 1.1, image-layout.md. A blob gets its name when all of it is there,
and an image is named in `index.json` when all of its blobs are. So a run that was killed leaves an
unfinished file and no image; several runs can use one layout at once. The same holds for a power
cut: a blob has its name when its bytes are on disk, and the index names what is there.
"""

from __future__ import annotations

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

from buildmatrix.errors import UndecidedError
from buildmatrix.oci.documents import (
    INDEX,
    LARGEST_DOCUMENT,
    Descriptor,
    ImageIndex,
    Manifest,
    encode,
    index_of,
    manifest_of,
)
from buildmatrix.oci.durable import rename_written, sync_folder
from buildmatrix.oci.last_use import make_room, note_use

#: Annotation with the name of an image in an index: a tag, or all of a reference.
REF_NAME: Final = "org.opencontainers.image.ref.name"
#: What the file `oci-layout` holds.
LAYOUT_FILE: Final = b'{"imageLayoutVersion":"1.0.0"}'
_UNFINISHED: Final = ".unfinished."
#: Seconds after which an unfinished file belongs to a run that was killed.
_ABANDONED: Final = 86400.0
_CHUNK: Final = 1 << 20
_DIGEST = re.compile(r"(sha256|sha512):([0-9a-f]{64}|[0-9a-f]{128})")


class BlobWriter:
    """A blob on its way into a layout; made by `OciLayout.writer`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hasher = hashlib.sha256()
        #: Bytes so far.
        self.size = 0

    def write(self, data: bytes) -> None:
        """Append `data`. Raises OSError."""
        self._file.write(data)
        self._hasher.update(data)
        self.size += len(data)

    @property
    def digest(self) -> str:
        """Of what was written so far."""
        return f"sha256:{self._hasher.hexdigest()}"


class OciLayout:
    """The layout in `folder`, which is made when something is written. For all threads at once.

    Raises OSError where the disk does not do.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: str) -> Path:
        """Where a blob lies, if it is there. Raises UndecidedError for what is no digest."""
        match = _DIGEST.fullmatch(digest)
        if match is None:
            raise UndecidedError(f"{digest[:100]!r} is no digest of a blob")
        return self.folder / "blobs" / match[1] / match[2]

    def has(self, descriptor: Descriptor) -> bool:
        """Whether a blob is there, with all of its bytes; it counts as used then."""
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
        """A blob as a file. Raises UndecidedError where it is missing or cut short."""
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
                f"the image layout {self.folder}: blob {descriptor.digest} has {size} bytes in "
                f"place of {descriptor.size}"
            )
        return file

    @contextmanager
    def blob(self, descriptor: Descriptor) -> Iterator[Iterator[bytes]]:
        """The bytes of a blob; UndecidedError at their end where they are not those of its name."""
        with self.open(descriptor) as file:
            yield checked(iter(lambda: file.read(_CHUNK), b""), descriptor, str(self.folder))

    def document(self, descriptor: Descriptor) -> bytes:
        """A small blob, checked. Raises UndecidedError."""
        if descriptor.size > LARGEST_DOCUMENT:
            raise UndecidedError(f"{descriptor.digest} is too large for a document of an image")
        with self.blob(descriptor) as chunks:
            return b"".join(chunks)

    # Writing

    @contextmanager
    def writer(self) -> Iterator[BlobWriter]:
        """A new blob, which gets its name at the end of the `with` statement, or is removed."""
        unfinished = self._blobs("sha256") / f"{_UNFINISHED}{secrets.token_hex(16)}"
        try:
            with unfinished.open("xb") as file:
                blob = BlobWriter(file)
                yield blob
                rename_written(file, unfinished, self.path(blob.digest))
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise

    def put(self, data: bytes, media_type: str) -> Descriptor:
        """Store a document; the same data is stored once."""
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        descriptor = Descriptor(media_type=media_type, digest=digest, size=len(data))
        if not self.has(descriptor):
            with self.writer() as blob:
                blob.write(data)
        return descriptor

    def take(self, descriptor: Descriptor, chunks: Iterable[bytes]) -> None:
        """Store a blob of somebody else. Raises UndecidedError for bytes of another digest."""
        if not descriptor.digest.startswith("sha256:"):
            raise UndecidedError(f"{descriptor.digest[:100]}: only sha256 digests can be stored")
        with self.writer() as blob:
            for chunk in checked(iter(chunks), descriptor, "its source"):
                blob.write(chunk)

    def adopt(self, other: OciLayout, image: Descriptor) -> None:
        """Bring all blobs of an image of `other` here: as hard links where the disk is the same.

        Name it with `publish` afterwards. Raises UndecidedError for blobs that `other` lacks.
        """
        manifest = other.manifest(image)
        for descriptor in (*manifest.layers, manifest.config, image):
            if self.has(descriptor):
                continue
            with other.open(descriptor):
                pass  # it is there, with all of its bytes
            target = self.path(descriptor.digest)
            self._blobs(target.parent.name)
            target.unlink(missing_ok=True)  # one of another size is damaged
            try:
                os.link(other.path(descriptor.digest), target)
            except FileExistsError:
                continue  # another run was faster
            except OSError:  # another disk, or one without hard links
                with other.blob(descriptor) as chunks:
                    self.take(descriptor, chunks)

    def manifest(self, image: Descriptor) -> Manifest:
        """The manifest of an image. Raises UndecidedError."""
        return manifest_of(self.document(image), f"{self.folder}: {image.digest}")

    # Images

    def images(self) -> tuple[Descriptor, ...]:
        """The entries of `index.json`; none where there is no such file. Raises UndecidedError."""
        path = self.folder / "index.json"
        try:
            with path.open("rb") as file:
                data = file.read(LARGEST_DOCUMENT + 1)
        except FileNotFoundError:
            return ()
        return index_of(data, str(path)).manifests

    def publish(self, image: Descriptor, names: Iterable[str] = ()) -> None:
        """Make `image`, whose blobs are all here, an image of the layout, under `names`.

        A name moves to it from another image; without a name it replaces all that is there.
        """
        blobs = self._blobs("sha256")
        for folder in (blobs, blobs.parent):
            sync_folder(folder)
        wanted = tuple(names)
        with self._locked():
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
            manifests = tuple(
                sorted(
                    [*kept, *(named or [image])],
                    key=lambda entry: (entry.annotations.get(REF_NAME, ""), entry.digest),
                )
            )
            index = ImageIndex(schema_version=2, media_type=INDEX, manifests=manifests)
            self._replace("oci-layout", LAYOUT_FILE)
            self._replace("index.json", encode(index))
            sync_folder(self.folder)

    # Room

    def prune(self, limit: int, age: float) -> int:
        """Remove blobs by `make_room`, and what killed runs left; the bytes that were freed."""
        now = time.time()
        blobs: list[tuple[float, int, str]] = []
        for folder in (self.folder / "blobs").glob("sha*"):
            with os.scandir(folder) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        if entry.name.startswith(_UNFINISHED):
                            if now - status.st_mtime > _ABANDONED:
                                Path(entry.path).unlink()
                        else:
                            blobs.append((status.st_mtime, status.st_size, entry.path))
        return make_room(blobs, limit, age)

    # Inside

    def _blobs(self, algorithm: str) -> Path:
        folder = self.folder / "blobs" / algorithm
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _replace(self, name: str, data: bytes) -> None:
        path = self.folder / name
        unfinished = path.with_name(f"{_UNFINISHED}{secrets.token_hex(16)}")
        try:
            with unfinished.open("xb") as file:
                file.write(data)
                rename_written(file, unfinished, path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One run at a time changes the index; the system lets go of the lock of a killed one."""
        with (self.folder / ".lock").open("ab") as file:
            with suppress(OSError):  # some network file systems have no locks
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def checked(chunks: Iterator[bytes], descriptor: Descriptor, where: str) -> Iterator[bytes]:
    """`chunks` as they come; UndecidedError where they are not the bytes of `descriptor`."""
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
        more = "more than" if size > descriptor.size else f"{size} bytes in place of"
        raise UndecidedError(
            f"{where}: blob {descriptor.digest} has {more} {descriptor.size} bytes"
        )
    if hasher.hexdigest() != wanted:
        raise UndecidedError(
            f"{where}: blob {descriptor.digest} is damaged: its bytes have another digest"
        )
