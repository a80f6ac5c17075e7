"""Runs of `docker buildx bake`, each with its log, its overlay and its metadata file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TextIO

from buildmatrix.engines.disk import writing
from buildmatrix.engines.docker import bake
from buildmatrix.engines.docker.command import DockerCommand
from buildmatrix.engines.docker.failures import explain, lost_its_cache
from buildmatrix.engines.docker.follow import Follower
from buildmatrix.engines.docker.rawjson import messages
from buildmatrix.engines.model import BuildJob, Surroundings
from buildmatrix.engines.process import Watch
from buildmatrix.errors import ComponentError
from buildmatrix.progress import Progress

#: Timeout in seconds for a builder that hung before it gets another target.
_SECOND_CHANCE = 5.0


class Baker:
    """Runner of bake for targets. Thread-safe."""

    def __init__(self, command: DockerCommand) -> None:
        self._command = command
        #: Builders that hung; the last one still gets targets.
        self._hung: set[str | None] = set()

    def export(
        self, job: BuildJob, surroundings: Surroundings, progress: Progress, output: str
    ) -> bake.Built:
        """Export a built image from its builder to `output`."""
        self.bake(job, surroundings, progress, bake.image_overlay(job, surroundings, output))
        return self.built(job)

    def built(self, job: BuildJob) -> bake.Built:
        """Return the result of the last bake of a job. Raises `UndecidedError` if unknown."""
        return bake.read_metadata(_metadata(job), job.image_target, job.scan_target)

    def bake(
        self,
        job: BuildJob,
        surroundings: Surroundings,
        progress: Progress,
        overlay: Mapping[str, object],
        *,
        fresh: bool = False,
    ) -> None:
        """Bake the targets of `overlay`, and write the metadata file. Raises an error on failure.

        A `fresh` bake starts a new log, and may create another image than the last one.
        """
        overlay_file = job.log.with_suffix(".overlay.json")
        metadata = _metadata(job)
        builder = [f"--builder={job.builder}"] if job.builder else []
        arguments = [
            *self._command.options_for(job.builder), "buildx", "bake", *builder,
            f"--file={job.bake_file.absolute()}", f"--file={overlay_file.absolute()}",
            "--progress=rawjson", f"--metadata-file={metadata.absolute()}",
            *bake.entitlements(job, surroundings), *overlay,
        ]  # fmt: skip
        with writing(job.log.parent):
            job.log.parent.mkdir(parents=True, exist_ok=True)
            metadata.unlink(missing_ok=True)
            bake.write_overlay(overlay_file, overlay)
            with job.log.open("w" if fresh else "a", encoding="utf-8") as log:
                status, follower = self._follow(job, arguments, surroundings, log, progress)
                if status != 0 and fresh and lost_its_cache(follower.lines):
                    progress.step(job.id, "the builder's cache is damaged: building without it")
                    arguments = [*arguments, "--no-cache"]
                    status, follower = self._follow(job, arguments, surroundings, log, progress)
                if status != 0:
                    error = explain(status, follower.failed, tuple(follower.lines), job.log)
                    log.write(f"# failed: {error.message}\n")
                    raise error

    def _follow(
        self,
        job: BuildJob,
        arguments: Sequence[str],
        surroundings: Surroundings,
        log: TextIO,
        progress: Progress,
    ) -> tuple[int, Follower]:
        """Run one bake; return its exit status, and its messages."""
        now = datetime.now(UTC).isoformat(" ", "seconds")
        log.write(f"# {job.id}, {now}: {self._command.program()} {' '.join(arguments)}\n")
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

        status = self._command.follow(arguments, job.context, read, watch)
        if watch.gave_up:
            self._hung.add(job.builder)
            raise hangs
        return status, follower


def _metadata(job: BuildJob) -> Path:
    return job.log.with_suffix(".metadata.json")
