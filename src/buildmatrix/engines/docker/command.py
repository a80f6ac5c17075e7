"""The docker command: its images, builders and daemons, and long-running commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from buildmatrix.base.child import run
from buildmatrix.base.errors import BuildmatrixError, ComponentError, UsageError
from buildmatrix.engines.docker.failures import explain
from buildmatrix.engines.process import Processes, Watch

#: The first release whose bake has `--allow=fs.read` and `fs.write` (November 2024).
MINIMUM_BUILDX = (0, 19)
#: The first release with BuildKit as its builder (February 2023): named contexts, bind mounts.
MINIMUM_DOCKER = (23, 0)
#: Timeout of a request to the daemon in seconds.
PATIENCE = 30
#: Maximum bytes of memory of a request.
_MEMORY = 8 << 30
#: Driver of the daemon's own builder in `docker buildx inspect`.
OWN_DRIVER = "docker"
#: Images per request. A daemon with containerd's store takes 7 ms per listed image (500 images,
#: Docker 28.5), so whole repositories are not listed, either.
_ASKED_AT_ONCE = 250


class DockerCommand:
    """The docker command, in an environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        #: Programs of `follow`.
        self.processes = Processes()
        self._drivers: dict[str | None, str] = {}
        #: Builder → nodes that did not respond to the first request.
        self._down: dict[str | None, frozenset[str]] = {}
        self._options: dict[str, tuple[str, ...]] = {}
        self._hosts: dict[str | None, str] = {}

    def program(self) -> str:
        """Return the path of the docker command. Raises `ComponentError` if it is missing."""
        docker = shutil.which("docker", path=self._environment.get("PATH", os.defpath))
        if docker is None:
            raise ComponentError(
                f"there is no docker command; install Docker {version_text(MINIMUM_DOCKER)} or "
                f"newer with buildx {version_text(MINIMUM_BUILDX)} or newer"
            )
        return docker

    def ask(self, *arguments: str, seconds: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        """Run a short docker command."""
        command = [self.program(), *arguments]
        try:
            return run(command, Path(), self._environment, seconds=seconds, memory=_MEMORY)
        except subprocess.TimeoutExpired as error:
            raise ComponentError(
                f"`docker {' '.join(arguments[:2])}` gave no answer in {seconds:g} s; see whether "
                "the Docker daemon hangs"
            ) from error
        except OSError as error:
            raise ComponentError(f"the docker command cannot be run: {error.strerror}") from error

    def follow(
        self,
        arguments: Sequence[str],
        folder: Path,
        read: Callable[[IO[bytes]], None],
        watch: Watch,
        *,
        both: bool = False,
    ) -> int:
        """Run a long docker command; see `Processes.follow`."""
        command = [self.program(), *arguments]
        return self.processes.follow(command, self._environment, folder, read, watch, both=both)

    def check(self, builder: str | None) -> str:
        """Return the versions of Docker and buildx; see `Engine.check`."""
        buildx = self.ask("buildx", "version")
        match = re.search(r"buildx v?(\d+)\.(\d+)\S*", buildx.stdout)
        if buildx.returncode != 0 or match is None:
            raise ComponentError(
                "the docker command has no buildx plugin; install the package docker-buildx (or "
                "docker-buildx-plugin) in version "
                f"{version_text(MINIMUM_BUILDX)} or newer"
            )
        if (int(match[1]), int(match[2])) < MINIMUM_BUILDX:
            raise ComponentError(
                f"{match[0]} is too old; install {version_text(MINIMUM_BUILDX)} or newer"
            )
        if self.driver(builder) != OWN_DRIVER:
            return match[0]
        context = self.options_for(builder)
        version = self.ask(*context, "version", "--format", "{{.Server.Version}}")
        if version.returncode != 0:
            raise unusable(version.stderr)
        daemon = re.match(r"(\d+)\.(\d+)", version.stdout)
        if daemon is None or (int(daemon[1]), int(daemon[2])) < MINIMUM_DOCKER:
            raise ComponentError(
                f"the Docker daemon is version {version.stdout.strip() or 'unknown'}; "
                f"{version_text(MINIMUM_DOCKER)} or newer is needed"
            )
        if context:
            store = self.ask(*context, "info", "--format", "{{.DriverStatus}}")
            if "io.containerd.snapshotter" not in store.stdout:
                raise UsageError(
                    f"--builder {builder} is the daemon of another Docker context, whose image "
                    "store cannot hand its images over; turn on its containerd image store, or "
                    f"make a builder there with `docker buildx create --name NAME {builder}`"
                )
        return f"docker {version.stdout.strip()}, {match[0]}"

    def driver(self, builder: str | None) -> str:
        """Return a builder's driver: `docker`, `docker-container`, `remote`, `kubernetes`, ..."""
        if builder not in self._drivers:
            answer = self.ask("buildx", "inspect", *([builder] if builder else []))
            driver = re.search(r"^Driver:[ \t]+(\S+)", answer.stdout, re.MULTILINE)
            if driver is None:
                error = re.search(r"^Error:[ \t]+(.+)", answer.stdout, re.MULTILINE)
                raise unusable(error[1] if error else answer.stderr)
            self._drivers[builder] = driver[1]
            self._down[builder] = _silent(_nodes(answer.stdout))
        return self._drivers[builder]

    def options_for(self, builder: str | None) -> tuple[str, ...]:
        """Return options of the docker command for a builder: empty except for another context.

        A daemon's own builder has the name of its context, and buildx requires this context for it.
        """
        if builder is None or self.driver(builder) != OWN_DRIVER:
            return ()
        if builder not in self._options:
            is_here = self.host(builder) == self.host()
            self._options[builder] = () if is_here else (f"--context={builder}",)
        return self._options[builder]

    def answers(self, builder: str | None, seconds: float) -> bool:
        """Return True if a builder responds within `seconds`.

        The node of a build is unknown, so all nodes must respond that did at the first request.
        """
        name = [builder] if builder else []
        try:
            answer = self.ask(
                *self.options_for(builder), "buildx", "inspect", *name, seconds=seconds
            )
        except ComponentError:
            return False
        nodes = _nodes(answer.stdout)
        return "running" in nodes.values() and _silent(nodes) <= self._down.get(
            builder, frozenset()
        )

    def daemon_answers(self, seconds: float) -> bool:
        """Return True if the current daemon responds within `seconds`."""
        try:
            return self.ask("version", seconds=seconds).returncode == 0
        except ComponentError:
            return False

    def watch(self, seconds: float) -> Watch:
        """Return a watchdog of a command that waits for the current daemon."""
        return Watch(seconds, lambda: self.daemon_answers(seconds))

    def images(self, references: Sequence[str]) -> Mapping[str, str]:
        """Return reference → digest of the current daemon's images."""
        keys = {name: _familiar(name) for name in references}
        names = list(dict.fromkeys(keys.values()))
        digests: dict[str, str] = {}
        for start in range(0, len(names), _ASKED_AT_ONCE):
            answer = self.ask(
                "image", "ls", "--no-trunc", "--format", "{{.ID}} {{.Repository}}:{{.Tag}}",
                *(f"--filter=reference={name}" for name in names[start : start + _ASKED_AT_ONCE]),
            )  # fmt: skip
            if answer.returncode != 0:
                raise unusable(answer.stderr)
            lines = (line.partition(" ") for line in answer.stdout.splitlines())
            digests |= {key: digest for digest, _, key in lines}
        return {name: digests[key] for name, key in keys.items() if key in digests}

    def host(self, context: str | None = None) -> str:
        """Return the address of a daemon: the SDK does not know the docker command's contexts."""
        if context not in self._hosts:
            line = ["context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]
            answer = self.ask(*line, *([context] if context else []))
            if answer.returncode != 0:
                raise unusable(answer.stderr)
            self._hosts[context] = answer.stdout.strip()
        return self._hosts[context]


def _nodes(text: str) -> dict[str, str]:
    """Parse node → status in `docker buildx inspect`; the status is empty for an error."""
    nodes: dict[str, str] = {}
    name = ""
    for line in text.partition("Nodes:\n")[2].splitlines():
        key, _, said = line.partition(":")
        if key == "Name":
            name = said.strip()
            nodes[name] = ""
        elif key == "Status":
            nodes[name] = said.strip()
    return nodes


def _silent(nodes: Mapping[str, str]) -> frozenset[str]:
    """Return the nodes that did not respond."""
    return frozenset(name for name, status in nodes.items() if not status)


def unusable(text: str) -> BuildmatrixError:
    """Return an error for the docker command's output: an unusable engine, or a wrong name."""
    line = text.strip()
    error = explain(1, None, [line if line.startswith("ERROR: ") else f"ERROR: {line}"], None)
    return error if isinstance(error, UsageError) else ComponentError(error.message)


def version_text(parts: tuple[int, ...]) -> str:
    """Format a version as `23.0`."""
    return ".".join(map(str, parts))


def _familiar(reference: str) -> str:
    """Return a reference as printed by Docker: without the default registry and folder."""
    name = reference.removeprefix("docker.io/").removeprefix("library/")
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"
