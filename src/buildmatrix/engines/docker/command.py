"""The docker command: what it has, which builders, where their daemons are, and its long work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from buildmatrix.engines.docker.failures import explain
from buildmatrix.engines.process import Processes, Watch
from buildmatrix.errors import BuildmatrixError, ComponentError, UsageError

#: The first release whose bake has `--allow=fs.read` and `fs.write` (November 2024).
MINIMUM_BUILDX = (0, 19)
#: The first release with BuildKit as its builder (February 2023): named contexts, bind mounts.
MINIMUM_DOCKER = (23, 0)
#: Seconds for the daemon to answer a question.
PATIENCE = 30
#: Driver of the builder that is in the daemon itself, as `docker buildx inspect` has it.
OWN_DRIVER = "docker"
#: Images in one question. A daemon with containerd's store takes 7 ms for each that it lists (500
#: images, Docker 28.5), so it is not asked for all of a repository, either.
_ASKED_AT_ONCE = 250


class DockerCommand:
    """The docker command, in an environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        #: What `follow` runs.
        self.processes = Processes()
        self._drivers: dict[str | None, str] = {}
        #: Nodes of builders that did not answer when they were first asked.
        self._down: dict[str | None, frozenset[str]] = {}
        self._options: dict[str, tuple[str, ...]] = {}
        self._hosts: dict[str | None, str] = {}

    def program(self) -> str:
        """Where it is. Raises `ComponentError` where it is not."""
        docker = shutil.which("docker", path=self._environment.get("PATH", os.defpath))
        if docker is None:
            raise ComponentError(
                f"there is no docker command; install Docker {version_text(MINIMUM_DOCKER)} or "
                f"newer with buildx {version_text(MINIMUM_BUILDX)} or newer"
            )
        return docker

    def ask(self, *arguments: str, seconds: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        """One short question to the docker command."""
        try:
            return subprocess.run(
                [self.program(), *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
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
        """Work of the docker command, to its end; see `Processes.follow`."""
        command = [self.program(), *arguments]
        return self.processes.follow(command, self._environment, folder, read, watch, both=both)

    def check(self, builder: str | None) -> str:
        """Versions of Docker and buildx; see `Engine.check`."""
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
        """Driver of a builder: `docker`, `docker-container`, `remote`, `kubernetes`, ..."""
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
        """What the docker command needs to reach a builder: nothing but for another context.

        A daemon's own builder has the name of its context, and buildx builds there only in it.
        """
        if builder is None or self.driver(builder) != OWN_DRIVER:
            return ()
        if builder not in self._options:
            is_here = self.host(builder) == self.host()
            self._options[builder] = () if is_here else (f"--context={builder}",)
        return self._options[builder]

    def answers(self, builder: str | None, seconds: float) -> bool:
        """Whether a builder answers in so many seconds.

        Nobody says which of its nodes builds: each has to answer that did when it was first asked.
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
        """Whether the current daemon answers in so many seconds."""
        try:
            return self.ask("version", seconds=seconds).returncode == 0
        except ComponentError:
            return False

    def images(self, references: Sequence[str]) -> Mapping[str, str]:
        """Reference → digest of those that the current daemon has."""
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
        """Where a daemon listens: the SDK does not know the contexts of the docker command."""
        if context not in self._hosts:
            line = ["context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]
            answer = self.ask(*line, *([context] if context else []))
            if answer.returncode != 0:
                raise unusable(answer.stderr)
            self._hosts[context] = answer.stdout.strip()
        return self._hosts[context]


def _nodes(text: str) -> dict[str, str]:
    """Node → its status, as `docker buildx inspect` shows it; empty where it shows an error."""
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
    """Those that did not answer."""
    return frozenset(name for name, status in nodes.items() if not status)


def unusable(text: str) -> BuildmatrixError:
    """What the docker command's answer means: an engine that cannot be used, or a wrong name."""
    line = text.strip()
    error = explain(1, None, [line if line.startswith("ERROR: ") else f"ERROR: {line}"], None)
    return error if isinstance(error, UsageError) else ComponentError(error.message)


def version_text(parts: tuple[int, ...]) -> str:
    """`23.0`."""
    return ".".join(map(str, parts))


def _familiar(reference: str) -> str:
    """A reference as Docker prints it: without the registry and folder that it assumes."""
    name = reference.removeprefix("docker.io/").removeprefix("library/")
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"
