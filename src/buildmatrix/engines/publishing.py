"""An image out of a layout into a registry, by its digest alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from buildmatrix.engines.model import BuildJob
from buildmatrix.errors import BuildError, UndecidedError
from buildmatrix.oci.documents import INDEXES, Descriptor, index_of
from buildmatrix.oci.layout import Layout
from buildmatrix.phrases import size
from buildmatrix.progress import Progress
from buildmatrix.registry.client import Registry
from buildmatrix.registry.reference import Reference


def push_layout(registry: Registry, folder: Path, job: BuildJob, progress: Progress) -> str:
    """Push the one image of the layout in `folder` to each repository of the job's tags.

    Its digest; an index with the attestations of its builder is pushed as it is. Raises
    `UndecidedError` for a layout of no image or of several, and `BuildError` for what a registry
    does not take.
    """
    layout = Layout(folder)
    images = layout.images()
    if len(images) != 1:
        raise UndecidedError(f"{job.id}: the builder exported {len(images)} images in place of one")
    (image,) = images
    documents = list(_documents(layout, image))
    blobs = {
        blob.digest: blob
        for document in documents
        if document.media_type not in INDEXES
        for manifest in [layout.manifest(document)]
        for blob in (*manifest.layers, manifest.config)
    }
    names = [Reference.parse(tag) for tag in job.tags]
    repositories = dict.fromkeys(Reference(name.host, name.repository) for name in names)
    for repository in repositories:
        try:
            for number, blob in enumerate(blobs.values(), 1):
                text = f"blob {number} of {len(blobs)} ({size(blob.size)}) to {repository.name}"
                progress.step(job.id, f"push: {text}")
                registry.push_blob(repository, blob, partial(layout.open, blob))
            for document in documents:
                data = layout.document(document)
                registry.push_manifest(repository.at(document.digest), data, document.media_type)
        except UndecidedError as error:
            raise BuildError(
                f"{repository.name} does not take the image: {error.message}", log=job.log
            ) from error
    return image.digest


def _documents(layout: Layout, image: Descriptor) -> Iterator[Descriptor]:
    """The manifests of an image, and last what names them; an index names no other index."""
    if image.media_type in INDEXES:
        yield from index_of(layout.document(image), f"{layout.folder}: the image").manifests
    yield image
