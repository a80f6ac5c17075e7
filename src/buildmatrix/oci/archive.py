"""An image as one file: an OCI archive that `docker load`, podman and skopeo take.

Format: a tar archive of an image layout (OCI image specification 1.1) with a `manifest.json` beside
it for Docker without containerd's image store (moby, image/tarexport). `docker save` writes the
same since Docker 25. Equal images make equal bytes.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from buildmatrix.oci.documents import INDEX, Descriptor, ImageIndex, encode
from buildmatrix.oci.layers import TIME
from buildmatrix.oci.layout import LAYOUT_FILE, REF_NAME, OciLayout

#: Annotation with the full name of an image, where `REF_NAME` has the tag.
_IMAGE_NAME: Final = "io.containerd.image.name"


def archive(layout: OciLayout, image: Descriptor, references: Sequence[str]) -> Iterator[bytes]:
    """The bytes of an archive of `image` under its names `references`, as they are made.

    Names have to be complete, as containerd does not complete them: `docker.io/library/app:1`,
    which `str` of a `registry.reference.Reference` is.
    The digests of all blobs are checked on the way. Raises UndecidedError or OSError.
    """
    manifest = layout.manifest(image)
    entries = tuple(_named(image, reference) for reference in references) or (image,)
    index = ImageIndex(schema_version=2, media_type=INDEX, manifests=entries)
    for_docker = [
        {
            "Config": _path(manifest.config),
            "RepoTags": list(references),
            "Layers": [_path(layer) for layer in manifest.layers],
        }
    ]
    blobs = {blob.digest: blob for blob in (*manifest.layers, manifest.config, image)}
    for folder in ("blobs", "blobs/sha256"):
        yield _header(folder, 0, tarfile.DIRTYPE)
    for digest in sorted(blobs):
        blob = blobs[digest]
        with layout.blob(blob) as chunks:
            yield from _file(_path(blob), blob.size, chunks)
    for name, data in (
        ("index.json", encode(index)),
        ("manifest.json", json.dumps(for_docker, separators=(",", ":")).encode()),
        ("oci-layout", LAYOUT_FILE),
    ):
        yield from _file(name, len(data), (data,))
    yield bytes(2 * tarfile.BLOCKSIZE)


def _named(image: Descriptor, reference: str) -> Descriptor:
    names = {_IMAGE_NAME: reference, REF_NAME: reference.rpartition(":")[2]}
    return msgspec.structs.replace(image, annotations={**image.annotations, **names})


def _path(blob: Descriptor) -> str:
    return f"blobs/{blob.digest.replace(':', '/')}"


def _file(path: str, size: int, chunks: Iterable[bytes]) -> Iterator[bytes]:
    yield _header(path, size, tarfile.REGTYPE)
    yield from chunks
    yield bytes(-size % tarfile.BLOCKSIZE)


def _header(path: str, size: int, kind: bytes) -> bytes:
    info = tarfile.TarInfo(path)
    info.type = kind
    info.size = size
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    info.mtime = TIME
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8")
