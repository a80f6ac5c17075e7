"""Push of images to registries: from this machine's daemon, else through their builders.

A builder has an image only while it is in its cache, and a rebuild may create another image. A
daemon keeps the scanned image regardless of the cache.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from buildmatrix.base.child import scratch
from buildmatrix.base.errors import BuildmatrixError, ComponentError, Interrupted, UndecidedError
from buildmatrix.base.progress import Progress
from buildmatrix.engines import docker_bake as bake
from buildmatrix.engines.docker_bake import Baker
from buildmatrix.engines.docker_command import OWN_DRIVER, DockerCommand, explain
from buildmatrix.engines.model import BuildJob, Pushed, Surroundings
from buildmatrix.engines.oci.images import push_content, repositories
from buildmatrix.engines.process import plain, writing
from buildmatrix.facts.trees.archive import Slice, safe_path
from buildmatrix.facts.trees.base import Unreadable
from buildmatrix.facts.trees.decompression import ENDLESS, ForwardSource
from buildmatrix.facts.trees.tar import members
from buildmatrix.images.documents import (
    DOCKER_LAYER,
    DOCKER_LAYER_GZIP,
    LAYER,
    LAYER_GZIP,
    MAX_DOCUMENT,
    Descriptor,
    encode,
    index_of,
)
from buildmatrix.images.layers import BlockWriter
from buildmatrix.images.layout import OciLayout
from buildmatrix.images.saved_image import digest_from_path
from buildmatrix.net.registry_client import Registry

# Conversion of a `docker save` archive to an image layout


#: Media types of layers in Docker's older store → after compression.
_COMPRESSED = {LAYER: LAYER_GZIP, DOCKER_LAYER: DOCKER_LAYER_GZIP}


def lay_down(archive: Iterable[bytes], folder: Path) -> OciLayout:
    """Create a layout in `folder` of the image in `archive`, with verified blobs and an index.

    Such archives exist since Docker 25, along with an older format, which is ignored (OCI image
    specification 1.1, image-layout.md). With containerd's store, the image is the same as in
    registries. The older store has neither compressed layers nor a manifest: its layers are
    compressed reproducibly, and its configuration is kept.

    Raises OSError, and `UndecidedError` for an archive that is invalid or in another format.
    """
    layout = OciLayout(folder)
    index = _blobs(archive, layout)
    if index is None:
        raise UndecidedError(
            "the daemon saved an image that is not an OCI image layout; Docker 25 or newer does"
        )
    # An image with several names is listed once for each.
    images = {image.digest: image for image in index_of(index, "its index.json").manifests}
    if len(images) != 1:
        raise UndecidedError(f"the daemon saved {len(images)} images in place of one")
    (image,) = images.values()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        layout.publish(_compressed(layout, image, pool))
    return layout


def _blobs(archive: Iterable[bytes], layout: OciLayout) -> bytes | None:
    """Store all blobs of an archive; return its index, if any."""
    index: bytes | None = None
    try:
        for member in members(Slice(ForwardSource(archive), 0, ENDLESS)):
            if member.data is None:
                continue
            name = safe_path(member.name) or ""
            if digest := digest_from_path(name):
                named = Descriptor(media_type="", digest=digest, size=member.data.size)
                layout.take(named, member.data.chunks())
            elif name == "index.json" and member.data.size <= MAX_DOCUMENT:
                index = member.data.read(0, member.data.size)
    except Unreadable as error:
        raise UndecidedError(f"the daemon saved an image that cannot be read: {error}") from error
    return index


def _compressed(layout: OciLayout, image: Descriptor, pool: Executor) -> Descriptor:
    """Return the image with all layers compressed."""
    manifest = layout.manifest(image)
    layers = tuple(_compressed_layer(layout, layer, pool) for layer in manifest.layers)
    if layers == manifest.layers:
        return image
    document = encode(msgspec.structs.replace(manifest, layers=layers))
    return layout.put(document, image.media_type)


def _compressed_layer(layout: OciLayout, layer: Descriptor, pool: Executor) -> Descriptor:
    if layer.media_type not in _COMPRESSED:
        return layer
    with layout.writer() as blob, layout.blob(layer) as chunks:
        blocks = BlockWriter(pool, blob.write)
        for chunk in chunks:
            blocks.write(chunk)
        blocks.finish()
    return msgspec.structs.replace(
        layer, media_type=_COMPRESSED[layer.media_type], digest=blob.digest, size=blob.size
    )


#: The last line of `docker image push` (moby, distribution/push_v2.go and daemon/containerd).
_SENT = re.compile(r"^\S+: digest: (?P<digest>sha256:[0-9a-f]{64}) size: \d+$", re.MULTILINE)

#: Exports an image of the daemon.
Save = Callable[[str], AbstractContextManager[Iterator[bytes]]]


class Publisher(Struct, frozen=True):
    """Publisher of the images of one run."""

    command: DockerCommand
    baker: Baker
    save: Save
    surroundings: Surroundings
    progress: Progress

    def push(self, jobs: Sequence[BuildJob], *, tagged: bool) -> Pushed:
        """Verify that all images are the scanned ones, then publish each; see `Engine`."""
        pushed: dict[str, str] = {}
        job = jobs[0] if jobs else None
        try:
            here = self._here(jobs)
            for job in jobs:
                self.progress.step(job.id, "push: comparing with what was scanned")
                if job.id not in here:
                    self._compare(job)
                self.progress.end(job.id)
            with nullcontext() if tagged else Registry() as registry:
                mounts = {} if registry is None else repositories(jobs)
                for job in jobs:
                    self.progress.step(job.id, "push: " + " ".join(job.tags))
                    if registry is not None:
                        digest = self._push_content(job, registry, mounts)
                    elif self._here([job]):
                        digest = self._push_kept(job)
                    else:
                        digest = self._push_built(job)
                    pushed[job.id] = digest
                    self.progress.end(job.id)
        except BuildmatrixError as error:
            return Pushed(pushed, job.id if job else None, error)
        return Pushed(pushed)

    def _here(self, jobs: Sequence[BuildJob]) -> Set[str]:
        """Return the targets whose tags are all on the scanned image on this machine.

        Other builders export a copy in another format and with another digest, and may be the only
        ones with access to the registry.
        """
        own = [job for job in jobs if self.command.driver(job.builder) == OWN_DRIVER]
        images = self.command.images([tag for job in own for tag in job.tags])
        return {
            job.id
            for job in own
            if job.tags
            and {images.get(tag) for tag in job.tags} <= {job.digest, job.config} - {None}
        }

    def _compare(self, job: BuildJob) -> None:
        """Raise `UndecidedError` if the builder's image is not the scanned one."""
        own = self.command.driver(job.builder) == OWN_DRIVER
        keep = "type=docker" if own else "type=image,push=false"
        kept = self.baker.export(job, self.surroundings, self.progress, keep)
        why = "the builder no longer has the image that was scanned; nothing was pushed, "
        _check_scanned(job, kept.digest, kept.config, why)

    def _push_built(self, job: BuildJob) -> str:
        """Push all tags of a job through its builder; return the digest in the registry."""
        to_registry = "type=image,push=true"
        sent = self.baker.export(job, self.surroundings, self.progress, to_registry)
        why = (
            f"the builder lost the image that was scanned before it was pushed, and made another "
            f"one, {sent.digest}, which was not scanned and which its tags lead to now; "
        )
        _check_scanned(job, sent.digest, sent.config, why)
        return sent.digest

    def _push_kept(self, job: BuildJob) -> str:
        """Push all tags of a job from this machine's daemon; return the digest in the registry."""
        digests = [self._push_tag(job, tag) for tag in job.tags]
        if not self._here([job]) or len(set(digests)) != 1:
            raise UndecidedError(
                f"{job.id}: its tags were moved during the push, so they may lead to images "
                f"that were not scanned ({', '.join(dict.fromkeys(digests))}); run the "
                "build again",
                log=job.log,
            )
        return digests[0]

    def _push_tag(self, job: BuildJob, tag: str) -> str:
        """Push one tag; return the pushed digest. Raises `BuildError` or `ComponentError`."""
        patience = self.surroundings.builder_patience
        watch = self.command.watch(patience)
        lines: list[str] = []

        def read(stream: IO[bytes]) -> None:
            with writing(job.log.parent), job.log.open("a", encoding="utf-8") as log:
                for line in stream:
                    watch.heard()
                    lines.append(plain(line.decode(errors="replace")).strip())
                    log.write(f"{lines[-1]}\n")
                    self.progress.output(job.id, lines[-1])

        status = self.command.follow(["image", "push", tag], job.context, read, watch, both=True)
        sent = _SENT.search("\n".join(lines))
        if status == 0 and sent:
            return sent["digest"]
        if watch.gave_up or not self.command.daemon_answers(patience):
            raise ComponentError(
                f"the Docker daemon stopped answering while {tag} was pushed; see that it runs, "
                "then run again",
                log=job.log,
            )
        why = lines[-1] if lines else f"exit status {status}"
        raise explain(status, None, [f"ERROR: failed to push {tag}: {why}"], job.log)

    def _push_content(
        self, job: BuildJob, registry: Registry, mounts: Mapping[str, Sequence[str]]
    ) -> str:
        """Push the image without tags from a layout, which daemons and builders cannot do.

        Return the digest in the registry.
        """
        with scratch("layout", job.scan_output) as folder:
            self.progress.step(job.id, "push: exporting")
            layout = self._layout(job, folder)
            images = layout.images()
            if len(images) != 1:
                raise UndecidedError(
                    f"{job.id}: the builder exported {len(images)} images in place of one",
                    log=job.log,
                )
            (image,) = images
            why = "the builder lost the image that was scanned before it was pushed; "
            _check_scanned(job, image.digest, layout.manifest(image).config.digest, why)
            push_content(registry, layout, image, job, mounts, self.progress, self._check)
        return image.digest

    def _layout(self, job: BuildJob, folder: Path) -> OciLayout:
        if self._here([job]):
            with writing(folder), self.save(job.tags[0]) as archive:
                return lay_down(archive, folder)
        output = bake.attributes(type="oci", dest=folder, tar="false")
        self.baker.export(job, self.surroundings, self.progress, output)
        return OciLayout(folder)

    def _check(self) -> None:
        if self.command.processes.cancelled:
            raise Interrupted("interrupted")


def _check_scanned(job: BuildJob, digest: str, config: str | None, why: str) -> None:
    """Raise `UndecidedError`, which begins with `why`, if an image is not the scanned one.

    Compares manifests if the configuration is unknown: BuildKit does not report it for an image
    that it exports to a daemon with containerd's store.
    """
    is_same = job.digest in (None, digest) if job.config is None else config == job.config
    if not is_same:
        raise UndecidedError(f"{job.id}: {why}run the build again", log=job.log)
