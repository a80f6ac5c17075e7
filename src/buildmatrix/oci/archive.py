"""OCI archives: images as one file, readable by `docker load`, podman and skopeo.

Format: a tar archive of an image layout (OCI image specification 1.1), plus a `manifest.json` for
Docker without containerd's image store (moby, image/tarexport). `docker save` writes the same since
Docker 25. Equal images give equal bytes.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from buildmatrix.oci.documents import INDEX, Descriptor, ImageIndex, encode
from buildmatrix.oci.layers import FIXED_TIME
from buildmatrix.oci.layout import LAYOUT_FILE, REF_NAME, OciLayout

#: Annotation with the full name of an image; `REF_NAME` has the tag.
_IMAGE_NAME: Final = "io.containerd.image.name"


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
            "Config": _blob_path(manifest.config),
            "RepoTags": list(references),
            "Layers": [_blob_path(layer) for layer in manifest.layers],
        }
    ]
    blobs = {blob.digest: blob for blob in (*manifest.layers, manifest.config, image)}
    for folder in ("blobs", "blobs/sha256"):
        yield _file_header(folder, 0, tarfile.DIRTYPE)
    for digest in sorted(blobs):
        blob = blobs[digest]
        with layout.blob(blob) as chunks:
            yield from _iter_file(_blob_path(blob), blob.size, chunks)
    for name, data in (
        ("index.json", encode(index)),
        ("manifest.json", json.dumps(for_docker, separators=(",", ":")).encode()),
        ("oci-layout", LAYOUT_FILE),
    ):
        yield from _iter_file(name, len(data), (data,))
    yield bytes(2 * tarfile.BLOCKSIZE)


def _with_name(image: Descriptor, reference: str) -> Descriptor:
    names = {_IMAGE_NAME: reference, REF_NAME: reference.rpartition(":")[2]}
    return msgspec.structs.replace(image, annotations={**image.annotations, **names})


def _blob_path(blob: Descriptor) -> str:
    return f"blobs/{blob.digest.replace(':', '/')}"


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
