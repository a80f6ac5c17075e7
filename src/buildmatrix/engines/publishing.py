"""An image out of a layout into a registry: all blobs, then the manifest, by digest alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from buildmatrix.engines.model import BuildJob
from buildmatrix.errors import BuildError, UndecidedError
from buildmatrix.oci.documents import INDEXES, Descriptor, index_of
from buildmatrix.oci.layout import OciLayout
from buildmatrix.phrases import size
from buildmatrix.progress import Progress
from buildmatrix.registry.client import Registry
from buildmatrix.registry.reference import Reference


def push_content(
    registry: Registry,
    layout: OciLayout,
    image: Descriptor,
    job: BuildJob,
    mounts: Mapping[str, Sequence[str]],
    progress: Progress,
    check: Callable[[], None],
) -> None:
    """Have an image in each repository of its job's tags, with what an index of it names.

    `mounts`: see `repositories`. `check` is called between steps, and raises what is to end the
    push. Raises `BuildError` for what a registry does not take.
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
    """Host → repositories that targets are pushed to: another one may have a layer already."""
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
    """A registry that does not take an image is a failure of the push: the image is as it was."""
    try:
        yield
    except UndecidedError as error:
        name = tag or " ".join(job.tags)
        raise BuildError(f"{name} could not be pushed: {error.message}", log=job.log) from error


def _documents(layout: OciLayout, image: Descriptor) -> Iterator[Descriptor]:
    """The manifests of an image, and last what names them; an index names no other index."""
    if image.media_type in INDEXES:
        yield from index_of(layout.document(image), f"{layout.folder}: the image").manifests
    yield image
