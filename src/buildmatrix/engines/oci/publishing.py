"""Push of images: all blobs, then all manifests, and the tags last."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from buildmatrix.engines.model import BuildJob, Pushed
from buildmatrix.engines.oci.images import Images
from buildmatrix.engines.publishing import explained, push_content, repositories
from buildmatrix.errors import BuildmatrixError, UndecidedError
from buildmatrix.oci.documents import Descriptor
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
    """Publish all tags of all jobs, or without `tagged` only the images: see `Engine.push`.

    No tag moves before all blobs and manifests of all jobs are pushed. `check` is called between
    steps, and raises an error to end the push.
    """
    pushed: dict[str, str] = {}
    job = jobs[0] if jobs else None
    try:
        scanned: dict[str, Descriptor] = {}
        for job in jobs:
            scanned[job.id] = _scanned(images, job)
        mounts = repositories(jobs)
        for job in jobs:
            image = scanned[job.id]
            push_content(registry, images.layout, image, job, mounts, progress, check)
        for job in jobs:
            check()
            if tagged:
                progress.step(job.id, "push: " + " ".join(job.tags))
                data = images.layout.document(scanned[job.id])
                for tag in job.tags:
                    with explained(job, tag):
                        name, image = Reference.parse(tag), scanned[job.id]
                        registry.push_manifest(name, data, image.media_type)
                progress.end(job.id)
            pushed[job.id] = scanned[job.id].digest
    except BuildmatrixError as error:
        return Pushed(pushed, job.id if job else None, error)
    return Pushed(pushed)


def _scanned(images: Images, job: BuildJob) -> Descriptor:
    """Return the scanned image. Raises `UndecidedError` if it is missing or incomplete.

    Found by its manifest: another manifest may have the same configuration with other layers.
    """
    image = images.find(job.digest or job.tags[0])
    if image is None or not images.is_whole(image):
        raise UndecidedError(
            f"{job.id}: the image that was scanned is no longer on this machine; nothing was "
            "pushed, run the build again",
            log=job.log,
        )
    return image
