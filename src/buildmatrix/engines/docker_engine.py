"""The engine `docker`, which uses `docker buildx bake` for builds, and else the Docker SDK."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.base.child import scratch, user_environment
from buildmatrix.base.errors import BuildError, BuildmatrixError, UndecidedError
from buildmatrix.base.progress import Progress
from buildmatrix.engines import docker_bake as bake
from buildmatrix.engines.docker_bake import Baker
from buildmatrix.engines.docker_command import OWN_DRIVER, DockerCommand, unusable
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
from buildmatrix.engines.process import writing

if TYPE_CHECKING:
    from buildmatrix.engines.docker_containers import Daemon


class DockerEngine:
    """Docker with BuildKit: the local daemon, or any builder of buildx."""

    name = "docker"

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """Use the daemon of `environment`, by default that of the process."""
        self._environment = {
            **(user_environment() if environment is None else environment),
            # An attestation has the time of the build: each export would have another digest, and
            # a pushed image could not be identified as the scanned one.
            "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
            "BUILDX_METADATA_PROVENANCE": "min",
            "BUILDX_GIT_INFO": "false",
        }
        self._command = DockerCommand(self._environment)
        self._processes = self._command.processes
        self._baker = Baker(self._command)

    # Images and facilities

    def check(self, builder: str | None = None) -> str:
        """Return the versions of Docker and buildx; see `Engine.check`."""
        return self._command.check(builder)

    def facilities(self) -> Facilities:
        """Return runtimes and folder of the local daemon; see `Engine.facilities`."""
        # The whole document: older clients lack some of the fields.
        answer = self._command.ask("info", "--format", "{{json .}}")
        try:
            description = json.loads(answer.stdout)
        except ValueError:
            raise unusable(answer.stderr) from None
        folder = Path(description.get("DockerRootDir") or "/nonexistent")
        is_here = self._command.host().startswith("unix:") and folder.is_dir()
        # Without folders, the daemon does not support CDI (Docker Engine API 1.44, `GET /info`).
        devices = description.get("DiscoveredDevices") or ()
        return Facilities(
            tuple(sorted(description.get("Runtimes") or ())),
            folder if is_here else None,
            has_cdi=bool(description.get("CDISpecDirs")),
            cdi=tuple(item["ID"] for item in devices if item.get("Source") == "cdi"),
            has_gpus=True,
        )

    def present(self, references: Sequence[str]) -> Mapping[str, str]:
        """Return reference → digest of the local images in `references`."""
        return self._command.images(references)

    def image(self, reference: str) -> ImageFacts | None:
        """Return the facts of a local image, or None."""
        return self._daemon().image(reference)

    def _daemon(self) -> Daemon:
        from buildmatrix.engines.docker_containers import Daemon

        return Daemon(self._command.host(), self._environment, lambda: self._processes.cancelled)

    # Building

    def refusals(self, jobs: Sequence[BuildJob]) -> Mapping[str, BuildmatrixError]:  # noqa: ARG002
        """Return no refusals: BuildKit reports problems during the build."""
        return {}

    def build(self, job: BuildJob, surroundings: Surroundings, progress: Progress) -> BuildOutcome:
        """Build and scan one target; see `Engine.build`."""
        started = time.monotonic()
        inventory = job.scan_output / INVENTORY
        with writing(job.scan_output):
            job.scan_output.mkdir(parents=True, exist_ok=True)
            inventory.unlink(missing_ok=True)
        is_daemon = self._command.driver(job.builder) == OWN_DRIVER
        load = job.load or is_daemon
        with ExitStack() as stack:
            output, archive = "type=docker" if load else "type=image,push=false", None
            if self._command.options_for(job.builder):
                # The daemon of another context would keep its image.
                archive = stack.enter_context(scratch("image", job.scan_output)) / "image.tar"
                output = bake.attributes(type="docker", dest=archive.absolute())
            tags = [job.staged] if load and job.staged else None
            overlay = bake.image_overlay(job, surroundings, output, tags=tags)
            overlay |= bake.scan_overlay(job, surroundings)
            self._baker.bake(job, surroundings, progress, overlay, fresh=True)
            if archive is not None:
                self._load(job, archive, surroundings.builder_patience, progress)
        built = self._baker.built(job)
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
        bases = dict(built.bases)
        if is_daemon and archive is None:
            # Docker's older store has digests of its own for images that it had already.
            bases |= self._command.registry_digests(built.unpinned)
        return BuildOutcome(
            job.id,
            built.digest,
            inventory,
            time.monotonic() - started,
            config=built.config,
            loaded=load,
            environment=built.environment,
            labels=built.labels,
            bases=bases,
        )

    def _load(self, job: BuildJob, archive: Path, patience: float, progress: Progress) -> None:
        """Load the image of another builder into this machine's daemon."""
        progress.step(job.id, f"loading the image that {job.builder} built")
        said: list[bytes] = []
        status = self._command.follow(
            ["image", "load", "--quiet", f"--input={archive}"],
            job.context,
            said.extend,
            self._command.watch(patience),
        )
        if status != 0:
            # Not the builder's fault: another one would fail as well.
            why = unusable(b"".join(said).decode(errors="replace")).message
            raise BuildError(f"the image of {job.builder} was not loaded here: {why}", log=job.log)

    def release(self, staged: str, tags: Sequence[str]) -> None:
        """Move tags with the docker command; see `Engine.release`."""
        for tag in tags:
            answer = self._command.ask("image", "tag", staged, tag)
            if answer.returncode != 0:
                raise unusable(answer.stderr)
        if tags:
            # The image keeps its tags. The name may already be removed.
            self._command.ask("image", "rm", "--no-prune", staged)

    def unreachable(self, references: Sequence[str], builder: str | None) -> Mapping[str, str]:
        """Check each registry from the daemon; remote builders cannot be checked."""
        if self._command.driver(builder) != OWN_DRIVER:
            return {}
        return self._daemon().unreachable(references)

    def push(
        self,
        jobs: Sequence[BuildJob],
        surroundings: Surroundings,
        progress: Progress,
        *,
        tagged: bool = True,
    ) -> Pushed:
        """Publish each image from this machine or through its builder; see `Engine.push`."""
        from buildmatrix.engines.docker_publishing import Publisher

        publisher = Publisher(self._command, self._baker, self.export, surroundings, progress)
        return publisher.push(jobs, tagged=tagged)

    def cancel(self) -> None:
        """Cancel all running and future builds; see `Engine.cancel`."""
        self._processes.cancel()

    def close(self) -> None:
        """Do nothing: there are no open connections."""

    # Running and reading

    def cannot_run(self, reference: str) -> BuildmatrixError | None:  # noqa: ARG002
        """Return None: the daemon reports problems when it runs a command."""
        return None

    @contextmanager
    def runner(self, reference: str, devices: DeviceAccess = NO_DEVICES) -> Iterator[Run]:
        """Run each command in its own container; see `Engine.runner`."""
        yield partial(self.run, reference, devices=devices)

    def run(
        self,
        reference: str,
        command: Sequence[str],
        timeout_s: float,
        devices: DeviceAccess = NO_DEVICES,
    ) -> RunResult:
        """Run a command in a temporary container."""
        return self._daemon().run(reference, command, timeout_s, devices)

    def export(self, reference: str) -> AbstractContextManager[Iterator[bytes]]:
        """Export an image as an archive; see `Engine.export`."""
        return self._daemon().export(reference)
