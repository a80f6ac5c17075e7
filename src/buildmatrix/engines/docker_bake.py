"""Runs of `docker buildx bake`: inputs, logs and results.

Bake file and metadata: https://docs.docker.com/build/bake/reference/ and
https://docs.docker.com/reference/cli/docker/buildx/bake/#metadata-file.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, TextIO
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from buildmatrix.base.errors import ComponentError, UndecidedError
from buildmatrix.base.progress import Progress
from buildmatrix.base.threads import prepare_type
from buildmatrix.engines.docker_command import DockerCommand, explain, lost_its_cache
from buildmatrix.engines.docker_follow import Follower, messages
from buildmatrix.engines.model import BuildJob, Surroundings
from buildmatrix.engines.process import Watch, writing
from buildmatrix.images.documents import Execution, configuration_of


def image_overlay(
    job: BuildJob, surroundings: Surroundings, output: str, tags: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return machine-specific settings of the image's target; never part of generated files.

    `tags` replace those of the bake file.
    """
    overlay: dict[str, Any] = {"output": [output], "args": {"MIRROR": surroundings.mirror}}
    if tags is not None:
        overlay["tags"] = list(tags)
    if surroundings.network:
        overlay["network"] = surroundings.network
    if surroundings.secrets:
        overlay["secret"] = [
            attributes(id=name, src=path.absolute())
            for name, path in sorted(surroundings.secrets.items())
        ]
    return {job.image_target: overlay}


def scan_overlay(job: BuildJob, surroundings: Surroundings) -> dict[str, Any]:
    """Return machine-specific settings of the scan's target."""
    output = attributes(type="local", dest=job.scan_output.absolute())
    return {job.scan_target: {"output": [output], "args": {"MIRROR": surroundings.mirror}}}


def write_overlay(path: Path, targets: Mapping[str, Any]) -> None:
    """Write an overlay bake file."""
    text = json.dumps({"target": targets}, indent=1) + "\n"
    # bake expands `${...}` and `%{...}` in strings of JSON files, too.
    path.write_text(text.replace("${", "$${").replace("%{", "%%{"), encoding="utf-8")


def entitlements(job: BuildJob, surroundings: Surroundings) -> list[str]:
    """Return flags that allow exactly the entitlements in the overlays."""
    flags = [
        f"--allow=fs.read={job.context.absolute()}",
        f"--allow=fs.read={job.bake_file.parent.absolute()}",
        f"--allow=fs.write={job.scan_output.absolute()}",
        *(f"--allow=fs.read={path.absolute()}" for path in sorted(surroundings.secrets.values())),
    ]
    return [*flags, "--allow=network.host"] if surroundings.network == "host" else flags


def attributes(**values: object) -> str:
    """Format `type=local,dest=/a` as a CSV record, like buildx: paths may contain commas."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(f"{key}={value}" for key, value in values.items())
    return text.getvalue()


class Built(Struct, frozen=True):
    """Facts of an image in the metadata file."""

    #: Digest of the manifest.
    digest: str
    #: Digest of the configuration.
    config: str | None
    #: Reference → digest of its base images.
    bases: Mapping[str, str]
    #: References in `bases` that had no digest where they were written.
    unpinned: Sequence[str]
    #: Environment variables of its configuration; None if the scan did not use it.
    environment: Mapping[str, str] | None
    #: Labels of its configuration.
    labels: Mapping[str, str]


class _Material(msgspec.Struct, frozen=True):
    uri: str = ""
    digest: dict[str, str] = {}


class _Parameters(msgspec.Struct, frozen=True):
    args: dict[str, str] = {}


class _Invocation(msgspec.Struct, frozen=True):
    parameters: _Parameters = _Parameters()


class _Provenance(msgspec.Struct, frozen=True):
    """SLSA provenance 0.2 of BuildKit."""

    materials: tuple[_Material, ...] = ()
    invocation: _Invocation = _Invocation()


class _Target(msgspec.Struct, frozen=True):
    digest: str | None = msgspec.field(name="containerimage.digest", default=None)
    config: str | None = msgspec.field(name="containerimage.config.digest", default=None)
    provenance: _Provenance = msgspec.field(
        name="buildx.build.provenance", default_factory=_Provenance
    )


class _Input(msgspec.Struct, frozen=True):
    """Metadata of another build, whose root file system is used."""

    config: bytes = msgspec.field(name="containerimage.config", default=b"{}")


def read_metadata(path: Path, image_target: str, scan_target: str) -> Built:
    """Read the result of a build. Raises `UndecidedError` if the file is incomplete."""
    try:
        targets = msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw])
        image, scan = (
            msgspec.json.decode(targets.get(name, msgspec.Raw(b"{}")), type=prepare_type(_Target))
            for name in (image_target, scan_target)
        )
        config = _run_config(scan.provenance.invocation.parameters.args)
    except (OSError, msgspec.MsgspecError) as error:
        raise UndecidedError(f"buildx left no usable metadata in {path}: {error}") from error
    digest = image.digest or image.config
    if digest is None:
        raise UndecidedError(f"buildx did not say which image it built: {path} has no digest")
    bases = _bases(image.provenance.materials)
    return Built(
        digest,
        image.config,
        {name: base for name, (base, _) in bases.items()},
        [name for name, (_, is_pinned) in bases.items() if not is_pinned],
        None if config is None else config.environment,
        {} if config is None else config.labels,
    )


def _run_config(arguments: Mapping[str, str]) -> Execution | None:
    """Return the image configuration that was passed to the scan's build, in part."""
    for name, value in arguments.items():
        if name.startswith("input-metadata:"):
            config = msgspec.json.decode(value, type=prepare_type(_Input)).config
            return configuration_of(config, f"buildx's `{name}`").config
    return None


def _bases(materials: Sequence[_Material]) -> dict[str, tuple[str, bool]]:
    """Return image reference → digest, and whether it was written with one.

    A purl, `pkg:docker/NAME@TAG?digest=...&platform=...`, has the digest of the reference.
    """
    bases = {}
    for material in materials:
        kind, _, rest = material.uri.partition("/")
        if kind == "pkg:docker" and "sha256" in material.digest:
            path, _, qualifiers = rest.partition("?")
            name, _, tag = unquote(path).rpartition("@")
            digest = f"sha256:{material.digest['sha256']}"
            bases[f"{name}:{tag}" if name else tag] = digest, "digest=" in qualifiers
    return bases


# Runs, each with its log, its overlay and its metadata file


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
    ) -> Built:
        """Export a built image from its builder to `output`."""
        self.bake(job, surroundings, progress, image_overlay(job, surroundings, output))
        return self.built(job)

    def built(self, job: BuildJob) -> Built:
        """Return the result of the last bake of a job. Raises `UndecidedError` if unknown."""
        return read_metadata(_metadata(job), job.image_target, job.scan_target)

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
            *entitlements(job, surroundings), *overlay,
        ]  # fmt: skip
        with writing(job.log.parent):
            job.log.parent.mkdir(parents=True, exist_ok=True)
            metadata.unlink(missing_ok=True)
            write_overlay(overlay_file, overlay)
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
