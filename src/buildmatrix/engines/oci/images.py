"""Local images of the engine `oci`: a layout in the state folder, and their push.

An image is a name in the layout's index. Unused blobs are removed when names move; the lock of the
state folder keeps other writers out.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from buildmatrix.base.errors import BuildError, BuildmatrixError, UndecidedError
from buildmatrix.base.progress import Progress
from buildmatrix.base.text import size
from buildmatrix.base.threads import side_by_side
from buildmatrix.engines.model import BuildJob, Pushed
from buildmatrix.engines.process import filling, writing
from buildmatrix.facts.inventory.workers import count_processors
from buildmatrix.facts.trees.archive import OpenFile, Slice, Spool
from buildmatrix.facts.trees.archive_layers import LayeredTree
from buildmatrix.images.documents import (
    INDEXES,
    Descriptor,
    ImageConfiguration,
    configuration_of,
    index_of,
)
from buildmatrix.images.layout import REF_NAME, OciLayout
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Reference


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
    documents = list(_iter_documents(layout, image))
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
        with explain_errors(job):
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
def explain_errors(job: BuildJob, tag: str | None = None) -> Iterator[None]:
    """Turn errors of a registry into `BuildError`: the push failed, not the build."""
    try:
        yield
    except UndecidedError as error:
        name = tag or " ".join(job.tags)
        raise BuildError(f"{name} could not be pushed: {error.message}", log=job.log) from error


def _iter_documents(layout: OciLayout, image: Descriptor) -> Iterator[Descriptor]:
    """Yield the manifests of an image, and the index last; indexes are not nested."""
    if image.media_type in INDEXES:
        yield from index_of(layout.document(image), f"{layout.folder}: the image").manifests
    yield image


class Images(OciLayout):
    """Images by name or digest, in the layout `folder`. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._lock = threading.Lock()

    def find(self, reference: str) -> Descriptor | None:
        """Return the image with a name or the digest of its manifest or configuration, or None."""
        for entry in self.images():
            if reference in (entry.digest, entry.annotations.get(REF_NAME)):
                return entry
            if reference.startswith("sha256:") and self.manifest(entry).config.digest == reference:
                return entry
        return None

    def by_name(self) -> Mapping[str, Descriptor]:
        """Return all named images."""
        named = {entry.annotations.get(REF_NAME): entry for entry in reversed(self.images())}
        return {name: entry for name, entry in named.items() if name is not None}

    def get(self, reference: str) -> Descriptor:
        """Return an image, like `find`. Raises `UndecidedError` if there is none."""
        image = self.find(reference)
        if image is None:
            raise UndecidedError(f"{self.folder} has no image {reference}; build it again")
        return image

    def names(self, image: Descriptor) -> tuple[str, ...]:
        """Return the names of an image."""
        return tuple(
            name
            for entry in self.images()
            if entry.digest == image.digest and (name := entry.annotations.get(REF_NAME))
        )

    def is_whole(self, image: Descriptor) -> bool:
        """Return True if all blobs of an image exist."""
        if not self.has(image):
            return False
        manifest = self.manifest(image)
        return all(map(self.has, (manifest.config, *manifest.layers)))

    def configuration(self, image: Descriptor) -> ImageConfiguration:
        """Return the configuration of an image. Raises `UndecidedError`."""
        data = self.document(self.manifest(image).config)
        return configuration_of(data, f"{self.folder}: {image.digest}")

    def add(self, source: OciLayout, image: Descriptor, name: str) -> None:
        """Copy an image from `source`, and add a name. Raises the errors of writing."""
        with self._lock, writing(self.folder):
            self.adopt(source, image)
            self._set_names(image, {*self.names(image), name})

    def move(self, name: str, names: Sequence[str]) -> None:
        """Give `names` to the image `name`, and remove that name."""
        with self._lock, writing(self.folder):
            image = self.get(name)
            self._set_names(image, {*self.names(image), *names} - {name})

    def _set_names(self, image: Descriptor, names: set[str]) -> None:
        """Name an image, and remove the blobs of images without names."""
        self.publish(image, sorted(names))
        used = set()
        for entry in self.images():
            manifest = self.manifest(entry)
            used |= {
                entry.digest,
                manifest.config.digest,
                *(part.digest for part in manifest.layers),
            }
        for path in (self.folder / "blobs").glob("*/*"):
            if f"{path.parent.name}:{path.name}" not in used:
                path.unlink(missing_ok=True)

    @contextmanager
    def tree(self, image: Descriptor) -> Iterator[LayeredTree]:
        """Open the files of an image, each layer inflated into a temporary file.

        Raises `UndecidedError`, and `BuildError` if the disk is full.
        """
        with ExitStack() as stack:
            blobs = [
                (
                    stack.enter_context(closing(Spool())),
                    OpenFile(stack.enter_context(self.open(layer)).fileno()),
                )
                for layer in self.manifest(image).layers
            ]
            with filling(Path(tempfile.gettempdir())):
                layers = side_by_side(_inflate, blobs, count_processors(), "inflate")
            yield LayeredTree(layers)


def _inflate(blob: tuple[Spool, OpenFile]) -> Slice:
    spool, file = blob
    return spool.plain(Slice(file, 0, file.size))


# Push: all blobs, then all manifests, and the tags last


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
            scanned[job.id] = _require_scanned(images, job)
        mounts = repositories(jobs)
        for job in jobs:
            image = scanned[job.id]
            push_content(registry, images, image, job, mounts, progress, check)
        for job in jobs:
            check()
            if tagged:
                progress.step(job.id, "push: " + " ".join(job.tags))
                data = images.document(scanned[job.id])
                for tag in job.tags:
                    with explain_errors(job, tag):
                        name, image = Reference.parse(tag), scanned[job.id]
                        registry.push_manifest(name, data, image.media_type)
                progress.end(job.id)
            pushed[job.id] = scanned[job.id].digest
    except BuildmatrixError as error:
        return Pushed(pushed, job.id if job else None, error)
    return Pushed(pushed)


def _require_scanned(images: Images, job: BuildJob) -> Descriptor:
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
