"""Push of an image from a layout to a registry: all blobs, then the manifest, by digest only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from buildmatrix.base.errors import BuildError, UndecidedError
from buildmatrix.base.progress import Progress
from buildmatrix.base.text import size
from buildmatrix.engines.model import BuildJob
from buildmatrix.images.oci.documents import INDEXES, Descriptor, index_of
from buildmatrix.images.oci.layout import OciLayout
from buildmatrix.net.registry.client import Registry
from buildmatrix.net.registry.reference import Reference


def push_content(
    registry: Registry,
    layout: OciLayout,
    image: Descriptor,
    job: BuildJob,
    mounts: Mapping[str, Sequence[str]],
    progress: Progress,
    check: Callable[[], None],
) -> None:
    """Push an image, or all images of an index, to each repository of its job's tags.

    `mounts`: see `repositories`. `check` is called between steps, and raises an error to end the
    push. Raises `BuildError` if a registry rejects the image.
    """
    documents = list(_documents(layout, image))
    blobs = {
        blob.digest: blob
        for document in documents
        if document.media_type not in INDEXES
        for manifest in [layout.manifest(document)]
        for blob in (*manifest.layers, manifest.config)
    }
    names = [Reference.parse(tag) for tag in job.tags]
    for repository in dict.fromkeys(Reference(name.host, name.repository) for name in names):
        others = [name for name in mounts[repository.host] if name != repository.repository]
        with explained(job):
            for number, blob in enumerate(blobs.values(), 1):
                check()
                text = f"blob {number} of {len(blobs)} ({size(blob.size)}) to {repository.name}"
                progress.step(job.id, f"push: {text}")
                registry.push_blob(repository, blob, partial(layout.open, blob), others)
            for document in documents:
                data = layout.document(document)
                registry.push_manifest(repository.at(document.digest), data, document.media_type)
    progress.end(job.id)


def repositories(jobs: Sequence[BuildJob]) -> Mapping[str, list[str]]:
    """Return host → repositories of all targets: another one may already have a layer."""
    by_host: dict[str, list[str]] = {}
    for job in jobs:
        for tag in job.tags:
            reference = Reference.parse(tag)
            names = by_host.setdefault(reference.host, [])
            if reference.repository not in names:
                names.append(reference.repository)
    return by_host


@contextmanager
def explained(job: BuildJob, tag: str | None = None) -> Iterator[None]:
    """Turn errors of a registry into `BuildError`: the push failed, not the build."""
    try:
        yield
    except UndecidedError as error:
        name = tag or " ".join(job.tags)
        raise BuildError(f"{name} could not be pushed: {error.message}", log=job.log) from error


def _documents(layout: OciLayout, image: Descriptor) -> Iterator[Descriptor]:
    """Yield the manifests of an image, and the index last; indexes are not nested."""
    if image.media_type in INDEXES:
        yield from index_of(layout.document(image), f"{layout.folder}: the image").manifests
    yield image
