"""Pushing images: all blobs, then all manifests, and the tags last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from buildmatrix.engines.model import BuildJob, Pushed
from buildmatrix.engines.oci.images import Images
from buildmatrix.errors import BuildError, BuildmatrixError, UndecidedError
from buildmatrix.oci.documents import Descriptor
from buildmatrix.phrases import size
from buildmatrix.progress import Progress
from buildmatrix.registry.client import Registry
from buildmatrix.registry.reference import Reference


def push(
    images: Images,
    registry: Registry,
    jobs: Sequence[BuildJob],
    progress: Progress,
    check: Callable[[], None],
    *,
    tagged: bool = True,
) -> Pushed:
    """Publish all tags of all jobs, or without `tagged` the images alone: see `Engine.push`.

    No tag moves before every blob and every manifest of all jobs is in its registry. `check` is
    called between steps, and raises what is to end the push.
    """
    pushed: dict[str, str] = {}
    job = jobs[0] if jobs else None
    try:
        found: dict[str, Descriptor] = {}
        for job in jobs:
            found[job.id] = _scanned(images, job)
        mounts = _repositories(jobs)
        for job in jobs:
            with _explained(job):
                _push_content(images, registry, job, found[job.id], mounts, progress, check)
        for job in jobs:
            check()
            progress.step(job.id, "push: " + " ".join(job.tags))
            data = images.layout.document(found[job.id])
            for tag in job.tags if tagged else ():
                with _explained(job, tag):
                    registry.push_manifest(Reference.parse(tag), data, found[job.id].media_type)
            pushed[job.id] = found[job.id].digest
    except BuildmatrixError as error:
        return Pushed(pushed, job.id if job else None, error)
    return Pushed(pushed)


def _scanned(images: Images, job: BuildJob) -> Descriptor:
    """The image that was scanned. Raises `UndecidedError` where it is no longer there, whole."""
    image = images.find(job.config or job.tags[0])
    if image is None or not images.is_whole(image):
        raise UndecidedError(
            f"{job.id}: the image that was scanned is no longer on this machine; nothing was "
            "pushed, run the build again",
            log=job.log,
        )
    return image


def _repositories(jobs: Sequence[BuildJob]) -> Mapping[str, list[str]]:
    """Host → repositories that other targets are pushed to: they may have a layer already."""
    repositories: dict[str, list[str]] = {}
    for job in jobs:
        for tag in job.tags:
            reference = Reference.parse(tag)
            known = repositories.setdefault(reference.host, [])
            if reference.repository not in known:
                known.append(reference.repository)
    return repositories


def _push_content(
    images: Images,
    registry: Registry,
    job: BuildJob,
    image: Descriptor,
    mounts: Mapping[str, Sequence[str]],
    progress: Progress,
    check: Callable[[], None],
) -> None:
    """Have the blobs and the manifest of an image in each repository of its tags, by digest."""
    manifest = images.manifest(image)
    blobs = (*manifest.layers, manifest.config)
    for reference in {Reference.parse(tag).at("") for tag in job.tags}:
        repository = Reference(reference.host, reference.repository)
        others = [name for name in mounts[reference.host] if name != reference.repository]
        for number, blob in enumerate(blobs, 1):
            check()
            text = f"push: blob {number} of {len(blobs)} ({size(blob.size)}) to {repository.name}"
            progress.step(job.id, text)
            registry.push_blob(repository, blob, partial(images.layout.open, blob), others)
        data = images.layout.document(image)
        registry.push_manifest(repository.at(image.digest), data, image.media_type)


@contextmanager
def _explained(job: BuildJob, tag: str | None = None) -> Iterator[None]:
    """A registry that does not take an image is a failure of the push: the image is as it was."""
    try:
        yield
    except UndecidedError as error:
        name = tag or " ".join(job.tags)
        raise BuildError(f"{name} could not be pushed: {error.message}", log=job.log) from error
