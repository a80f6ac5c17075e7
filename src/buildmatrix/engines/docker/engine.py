"""The engine `docker`: builds with `docker buildx bake`, runs and inspects with the Docker SDK."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, TextIO

from buildmatrix.engines.disk import writing
from buildmatrix.engines.docker import bake
from buildmatrix.engines.docker.command import (
    OWN_DRIVER,
    DockerCommand,
    unusable,
)
from buildmatrix.engines.docker.failures import explain, lost_its_cache
from buildmatrix.engines.docker.follow import Follower
from buildmatrix.engines.docker.rawjson import messages
from buildmatrix.engines.model import (
    INVENTORY,
    NO_DEVICES,
    BuildJob,
    BuildOutcome,
    DeviceAccess,
    Facilities,
    ImageFacts,
    Pushed,
    Run,
    RunResult,
    Surroundings,
)
from buildmatrix.engines.process import Processes, Watch
from buildmatrix.errors import (
    BuildError,
    BuildmatrixError,
    ComponentError,
    Interrupted,
    UndecidedError,
)
from buildmatrix.oci.layout import OciLayout
from buildmatrix.progress import Progress
from buildmatrix.scratch import scratch

#: Seconds in which a builder that hung has to answer before it gets another target.
_SECOND_CHANCE = 5.0


class DockerEngine:
    """Docker with BuildKit: the local daemon, or any builder that buildx knows."""

    name = "docker"

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """Use the daemon that `environment` (the process's, by default) leads to."""
        self._environment = {
            **(os.environ if environment is None else environment),
            # An attestation holds the time of the build: every export would have another digest,
            # and what is pushed could not be told to be what was scanned.
            "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
            "BUILDX_METADATA_PROVENANCE": "min",
            "BUILDX_GIT_INFO": "false",
        }
        self._processes = Processes()
        #: Builders that hung, of which the last one still gets targets.
        self._hung: set[str | None] = set()
        self._command = DockerCommand(self._environment)

    # What the engine has

    def check(self, builder: str | None = None) -> str:
        """Versions of Docker and buildx; see `Engine.check`."""
        return self._command.check(builder)

    def facilities(self) -> Facilities:
        """Runtimes and folder of the local daemon; see `Engine.facilities`."""
        # As a whole: older clients do not know all of the fields.
        answer = self._command.ask("info", "--format", "{{json .}}")
        try:
            description = json.loads(answer.stdout)
        except ValueError:
            raise unusable(answer.stderr) from None
        folder = Path(description.get("DockerRootDir") or "/nonexistent")
        is_here = self._command.host().startswith("unix:") and folder.is_dir()
        # Without folders the daemon has no CDI (Docker Engine API 1.44, `GET /info`).
        devices = description.get("DiscoveredDevices") or ()
        return Facilities(
            tuple(sorted(description.get("Runtimes") or ())),
            folder if is_here else None,
            has_cdi=bool(description.get("CDISpecDirs")),
            cdi=tuple(item["ID"] for item in devices if item.get("Source") == "cdi"),
            has_gpus=True,
        )

    def present(self, references: Sequence[str]) -> Mapping[str, str]:
        """Reference → digest of the local images among `references`."""
        return self._command.images(references)

    def image(self, reference: str) -> ImageFacts | None:
        """The facts of a local image, or None."""
        from buildmatrix.engines.docker import containers

        return containers.inspect(self._command.host(), self._environment, reference)

    # Building

    def refusals(self, jobs: Sequence[BuildJob]) -> Mapping[str, BuildmatrixError]:  # noqa: ARG002
        """None: whether BuildKit can build a Dockerfile, it says while it does."""
        return {}

    def build(self, job: BuildJob, surroundings: Surroundings, progress: Progress) -> BuildOutcome:
        """Build and scan one target; see `Engine.build`."""
        started = time.monotonic()
        inventory = job.scan_output / INVENTORY
        with writing(job.scan_output):
            job.scan_output.mkdir(parents=True, exist_ok=True)
            inventory.unlink(missing_ok=True)
        load = job.load or self._command.driver(job.builder) == OWN_DRIVER
        with ExitStack() as stack:
            output, archive = "type=docker" if load else "type=image,push=false", None
            if self._command.options_for(job.builder):
                # The daemon of another context would keep its image.
                archive = stack.enter_context(scratch("image", job.scan_output)) / "image.tar"
                output = bake.attributes(type="docker", dest=archive.absolute())
            tags = [job.staged] if load and job.staged else None
            overlay = bake.image_overlay(job, surroundings, output, tags=tags)
            overlay |= bake.scan_overlay(job, surroundings)
            self._bake(job, surroundings, progress, overlay, fresh=True)
            if archive is not None:
                self._load(job, archive, surroundings.builder_patience, progress)
        built = bake.read_metadata(_metadata(job), job.image_target, job.scan_target)
        if not inventory.is_file():
            raise UndecidedError(
                f"the scanner left no {INVENTORY}, so the image counts as unread", log=job.log
            )
        if built.environment is None:
            raise UndecidedError(
                "BuildKit did not say which environment variables the image sets, so the image "
                "counts as unread; use a newer builder",
                log=job.log,
            )
        return BuildOutcome(
            job.id,
            built.digest,
            inventory,
            time.monotonic() - started,
            config=built.config,
            loaded=load,
            environment=built.environment,
            labels=built.labels,
            bases=built.bases,
        )

    def _load(self, job: BuildJob, archive: Path, patience: float, progress: Progress) -> None:
        """Give this machine's daemon the image of another one."""
        progress.step(job.id, f"loading the image that {job.builder} built")
        said: list[bytes] = []
        status = self._processes.follow(
            [self._command.program(), "image", "load", "--quiet", f"--input={archive}"],
            self._environment,
            job.context,
            said.extend,
            Watch(patience, lambda: self._command.daemon_answers(patience)),
        )
        if status != 0:
            # The builder did its part: no other one would do better.
            why = unusable(b"".join(said).decode(errors="replace")).message
            raise BuildError(f"the image of {job.builder} was not loaded here: {why}", log=job.log)

    def release(self, staged: str, tags: Sequence[str]) -> None:
        """Move tags with the docker command; see `Engine.release`."""
        for tag in tags:
            answer = self._command.ask("image", "tag", staged, tag)
            if answer.returncode != 0:
                raise unusable(answer.stderr)
        if tags:
            # The image keeps its tags; where the name is gone already, nothing is lost.
            self._command.ask("image", "rm", "--no-prune", staged)

    def unreachable(self, references: Sequence[str], builder: str | None) -> Mapping[str, str]:
        """Ask the daemon about each registry; a builder elsewhere cannot be asked."""
        if self._command.driver(builder) != OWN_DRIVER:
            return {}
        from buildmatrix.engines.docker import containers

        return containers.unreachable(self._command.host(), self._environment, references)

    def push(
        self,
        jobs: Sequence[BuildJob],
        surroundings: Surroundings,
        progress: Progress,
        *,
        tagged: bool = True,
    ) -> Pushed:
        """Publish each image through the builder that has it; see `Engine.push`."""
        pushed: dict[str, str] = {}
        job = jobs[0] if jobs else None
        try:
            for job in jobs:
                progress.step(job.id, "push: comparing with what was scanned")
                own = self._command.driver(job.builder) == OWN_DRIVER
                keep = "type=docker" if own else "type=image,push=false"
                kept = self._export(job, surroundings, progress, keep)
                if not _was_scanned(job, kept.digest, kept.config):
                    raise UndecidedError(
                        f"{job.id}: the builder no longer has the image that was scanned; nothing "
                        "was pushed, run the build again",
                        log=job.log,
                    )
            if not tagged:
                self._push_by_digest(jobs, surroundings, progress, pushed)
                return Pushed(pushed)
            for job in jobs:
                progress.step(job.id, "push: " + " ".join(job.tags))
                to_registry = "type=image,push=true"
                sent = self._export(job, surroundings, progress, to_registry)
                if not _was_scanned(job, sent.digest, sent.config):
                    raise UndecidedError(
                        f"{job.id}: the builder lost the image that was scanned before it was "
                        f"pushed, and made another one, {sent.digest}, which nobody scanned and "
                        "its tags lead to now; run the build again",
                        log=job.log,
                    )
                pushed[job.id] = sent.digest
        except BuildmatrixError as error:
            return Pushed(pushed, job.id if job else None, error)
        return Pushed(pushed)

    def _push_by_digest(
        self,
        jobs: Sequence[BuildJob],
        surroundings: Surroundings,
        progress: Progress,
        pushed: dict[str, str],
    ) -> None:
        """Publish images without tags, through an export: the daemon's own builder cannot.

        Fills `pushed` as far as it gets.
        """
        from buildmatrix.engines.publishing import push_content, repositories
        from buildmatrix.registry.client import Registry

        with Registry() as registry:
            mounts = repositories(jobs)
            for job in jobs:
                with scratch("layout", job.scan_output) as folder:
                    progress.step(job.id, "push: exporting")
                    output = bake.attributes(type="oci", dest=folder, tar="false")
                    self._export(job, surroundings, progress, output)
                    layout = OciLayout(folder)
                    images = layout.images()
                    if len(images) != 1:
                        raise UndecidedError(
                            f"{job.id}: the builder exported {len(images)} images in place of one",
                            log=job.log,
                        )
                    (image,) = images
                    config = layout.manifest(image).config.digest
                    if not _was_scanned(job, image.digest, config):
                        raise UndecidedError(
                            f"{job.id}: the builder lost the image that was scanned before it was "
                            "pushed; run the build again",
                            log=job.log,
                        )
                    push_content(registry, layout, image, job, mounts, progress, self._check)
                pushed[job.id] = image.digest

    def _check(self) -> None:
        if self._processes.cancelled:
            raise Interrupted("interrupted")

    def _export(
        self, job: BuildJob, surroundings: Surroundings, progress: Progress, output: str
    ) -> bake.Built:
        """Hand an image that was built to `output`, as the builder has it."""
        self._bake(job, surroundings, progress, bake.image_overlay(job, surroundings, output))
        return bake.read_metadata(_metadata(job), job.image_target, job.scan_target)

    def cancel(self) -> None:
        """End every build that runs, and start no more; see `Engine.cancel`."""
        self._processes.cancel()

    def close(self) -> None:
        """Nothing is held."""

    def _bake(
        self,
        job: BuildJob,
        surroundings: Surroundings,
        progress: Progress,
        overlay: Mapping[str, object],
        *,
        fresh: bool = False,
    ) -> None:
        """Bake the targets of `overlay`; leaves the metadata file. Raises what went wrong.

        A `fresh` bake begins a log of its own, and may make another image than the last one did.
        """
        overlay_file = job.log.with_suffix(".overlay.json")
        metadata = _metadata(job)
        builder = [f"--builder={job.builder}"] if job.builder else []
        command = [
            self._command.program(), *self._command.options_for(job.builder),
            "buildx", "bake", *builder,
            f"--file={job.bake_file.absolute()}", f"--file={overlay_file.absolute()}",
            "--progress=rawjson", f"--metadata-file={metadata.absolute()}",
            *bake.entitlements(job, surroundings), *overlay,
        ]  # fmt: skip
        with writing(job.log.parent):
            job.log.parent.mkdir(parents=True, exist_ok=True)
            metadata.unlink(missing_ok=True)
            bake.write_overlay(overlay_file, overlay)
            with job.log.open("w" if fresh else "a", encoding="utf-8") as log:
                status, follower = self._follow(job, command, surroundings, log, progress)
                if status != 0 and fresh and lost_its_cache(follower.lines):
                    progress.step(job.id, "the builder's cache is damaged: building without it")
                    command = [*command, "--no-cache"]
                    status, follower = self._follow(job, command, surroundings, log, progress)
                if status != 0:
                    error = explain(status, follower.failed, tuple(follower.lines), job.log)
                    log.write(f"# failed: {error.message}\n")
                    raise error

    def _follow(
        self,
        job: BuildJob,
        command: Sequence[str],
        surroundings: Surroundings,
        log: TextIO,
        progress: Progress,
    ) -> tuple[int, Follower]:
        """Run one bake to its end; its exit status, and what it reported."""
        now = datetime.now(UTC).isoformat(" ", "seconds")
        log.write(f"# {job.id}, {now}: {' '.join(command)}\n")
        follower = Follower(job.id, log, progress)
        patience = surroundings.builder_patience
        hangs = ComponentError(
            f"the builder hangs: no word from it for {patience:g} s, and then no answer to a "
            f"question in {patience:g} s (--builder-timeout); see what its daemon does",
            log=job.log,
        )
        if job.builder in self._hung and not self._command.answers(job.builder, _SECOND_CHANCE):
            raise hangs
        watch = Watch(patience, lambda: self._command.answers(job.builder, patience))

        def read(stream: IO[bytes]) -> None:
            for message in messages(stream):
                watch.heard()
                follower.feed(message)

        status = self._processes.follow(command, self._environment, job.context, read, watch)
        if watch.gave_up:
            self._hung.add(job.builder)
            raise hangs
        return status, follower

    # Running and reading

    def cannot_run(self, reference: str) -> str | None:  # noqa: ARG002
        """None: whether the daemon can run an image, it says when it should."""
        return None

    @contextmanager
    def runner(self, reference: str, devices: DeviceAccess = NO_DEVICES) -> Iterator[Run]:
        """Each command gets a container of its own; see `Engine.runner`."""
        yield partial(self.run, reference, devices=devices)

    def run(
        self,
        reference: str,
        command: Sequence[str],
        timeout_s: float,
        devices: DeviceAccess = NO_DEVICES,
    ) -> RunResult:
        """Run a command in a throw-away container."""
        from buildmatrix.engines.docker import containers

        return containers.run(
            self._command.host(),
            self._environment,
            reference,
            command,
            timeout_s,
            lambda: self._processes.cancelled,
            devices,
        )

    def export(self, reference: str) -> AbstractContextManager[Iterator[bytes]]:
        """An existing image as an archive; see `Engine.export`."""
        from buildmatrix.engines.docker import containers

        return containers.export(
            self._command.host(), self._environment, reference, lambda: self._processes.cancelled
        )


def _was_scanned(job: BuildJob, digest: str, config: str | None) -> bool:
    """Whether an image is the one that was scanned.

    By its manifest where nobody said its configuration: BuildKit does not, of an image that it
    hands to a daemon with containerd's store.
    """
    if job.config is not None:
        return config == job.config
    return job.digest in (None, digest)


def _metadata(job: BuildJob) -> Path:
    return job.log.with_suffix(".metadata.json")
