"""The docker command: its images, builders and daemons, and long-running commands.

The exit status of buildx and the failed step are structured and take precedence. All other causes
are only in BuildKit's texts, which are matched by the tables `IN_ERRORS` and `IN_OUTPUT`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from buildmatrix.base.child import run
from buildmatrix.base.errors import (
    BuildError,
    BuildmatrixError,
    ComponentError,
    UndecidedError,
    UsageError,
)
from buildmatrix.engines.docker_follow import FailedStep, is_scan
from buildmatrix.engines.process import Processes, Watch, shorten

#: Exit status of buildx for gRPC's ResourceExhausted (docker/buildx, cmd/buildx/main.go).
RESOURCE_EXHAUSTED = 102
#: Lines of a failed command's output in the message; the log has all of them.
SHOWN = 6

_FULL = (
    "a disk is full ({0}); free space with `docker buildx prune` or on the file system named there"
)
_SOURCE = r"failed to resolve source metadata for (?P<image>\S+): "
_DOWN = "start it, or point DOCKER_HOST or --builder at one that runs"
# docker/buildx, driver/driver.go and driver/remote: steps before the builder has anything to do.
_BOOTING = ("[internal] waiting for connection", "[internal] booting buildkit")


class Symptom(NamedTuple):
    """A text that reveals a cause, and the message for the user.

    `text` is a format string: `{0}` is the whole match, named groups have their names.
    """

    pattern: str
    text: str
    kind: type[BuildmatrixError] = BuildError


# The first match wins. The comment above an entry names the source of the text.


#: Errors of a step or of buildx.
IN_ERRORS = (
    # The kernel's ENOSPC and EDQUOT, as Go and the C library spell them.
    Symptom(r"[^:\n]*: (?:no space left on device|disk quota exceeded)", _FULL),
    # docker/cli, cli/connhelper and client/errors.go, and older wordings of the same.
    Symptom(
        r"permission denied while trying to connect to the [Dd]ocker (?:API|daemon)",
        "this user may not talk to the Docker daemon; add the user to the group `docker`, or use "
        "rootless Docker",
        ComponentError,
    ),
    Symptom(
        r"(?i)(?:cannot|failed to) connect to the docker (?:daemon|api) at (?P<host>\S+?)"
        r"[.;]?(?:\s|$)",
        "the Docker daemon does not answer at {host}; " + _DOWN,
        ComponentError,
    ),
    # docker/buildx, store/storeutil: the name of a builder that does not exist.
    Symptom(
        r"no builder \"(?P<name>[^\"]*)\" found",
        "there is no builder {name!r}; `docker buildx ls` lists those that exist",
        UsageError,
    ),
    # docker/buildx, bake/entitlements.go, and moby/buildkit, util/entitlements.
    Symptom(
        r"granting entitlement (?P<name>\S+) is not allowed",
        "the builder does not allow {name}; create it with "
        "`--buildkitd-flags '--allow-insecure-entitlement {name}'`, or build without it",
        ComponentError,
    ),
    # gRPC: the connection to the daemon broke while it worked.
    Symptom(
        r"code = Unavailable|error reading from server: EOF|transport is closing",
        "the connection to the builder broke off while it worked; see that its daemon runs, then "
        "run again: what was finished is kept",
        ComponentError,
    ),
    # moby/buildkit, util/push, and docker/buildx, build/build.go.
    Symptom(
        r"failed to push (?P<image>\S+): (?P<why>.*)",
        "{image} could not be pushed: {why}; check the name, and `docker login`",
    ),
    # moby/buildkit, source/containerimage (the first half), containerd's resolver (the second).
    Symptom(
        _SOURCE + r".*(?:\b40[13] |failed to authorize|pull access denied|insufficient_scope)",
        "the registry does not let us pull {image}, or has no such repository; check the name, and "
        "`docker login`",
    ),
    Symptom(
        _SOURCE + r"\S+: not found",
        "base image {image} does not exist in its registry; check `base` in the specification and "
        "the mirror prefix",
    ),
    Symptom(
        _SOURCE + r"(?P<why>.*)",
        "base image {image} cannot be fetched, its registry is down or out of reach: {why}",
    ),
    # moby/buildkit, cache/contenthash: a COPY whose source is not in the context.
    Symptom(
        r"failed to calculate checksum of ref \S+: \"/?(?P<path>[^\"]*)\": not found",
        "{path} is to be copied into the image and does not exist; check `copy` and `lock` in the "
        "specification",
    ),
    # moby/buildkit, session/secrets.
    Symptom(
        r"secret (?P<name>\S+): not found",
        "a step needs the secret {name!r}, which was not given; see --ca and --netrc",
    ),
    # moby/buildkit, frontend/dockerfile.
    Symptom(
        r"dockerfile parse error on line .*",
        "the Dockerfile cannot be read: {0}",
    ),
)
#: apt-get install (apt-private/private-install.cc), dnf (dnf/base.py), microdnf and zypper.
_NO_PACKAGE = (
    r"(?:E: Unable to locate package |E: Package '|No match for argument: |No package matches '"
    r"|No provider of ')"
)
#: Output of a failed command.
IN_OUTPUT = (
    # uv, crates/uv-distribution: the bytes are not those that were locked.
    Symptom(
        r"Hash mismatch for `(?P<what>[^`]+)`",
        "the index serves other bytes for {what} than the lock has hashes for; find out who "
        "changed them before you run `buildmatrix lock --upgrade`",
    ),
    # reqwest, `HTTP status client error (404 Not Found) for url (...)`.
    Symptom(
        r"HTTP status \w+ error \((?P<status>\d{3}.*?)\) for url \((?P<url>[^)]*)\)",
        "the package index answered {status} for {url}; run again when it is well, or lock again "
        "when the file is gone for good",
    ),
    # reqwest and hyper: no answer at all.
    Symptom(
        r"error sending request for url \((?P<url>[^)]*)\)",
        "the package index cannot be reached from the build step ({url}); check the builder's "
        "network, proxy and certificates (--network, --ca)",
    ),
    # apt-get update (apt-pkg/update.cc) warns and goes on; what fails is the installation.
    Symptom(
        r"W: Failed to fetch (?P<url>\S+)(?s:.*)E: (?:Unable to locate|Package '\S+' has no)",
        "the package lists of the base image's distribution cannot be fetched from the build step "
        "({url}); check the builder's network and proxy (--network)",
    ),
    # dash, bash and busybox, for a distribution with another package manager, or none.
    Symptom(
        r"\b(?P<name>apt-get|microdnf|zypper): (?:command )?not found",
        "the base image lacks the target's Python or a system package, and it has no {name} to "
        "install it with; name its `package-manager`, or choose a base that has that Python",
    ),
    # dash, bash and busybox again: what the environment's interpreter is a link to is not there.
    Symptom(
        r"/opt/venv/bin/python: (?:not found|No such file or directory)",
        "the final base image does not have its Python where the build image has it, so the "
        "environment that was made there finds none; use bases of one family under `base`",
    ),
    Symptom(
        _NO_PACKAGE + r"python(?P<version>3\.?\d+)\b",
        "the base image has no Python {version}, and its distribution has no package of it; choose "
        "a base that has (Ubuntu 22.04: 3.10, Debian 12: 3.11, Ubuntu 24.04: 3.12, Debian 13: "
        "3.13, UBI 9: 3.11 and 3.12), or another `python`",
    ),
    Symptom(
        _NO_PACKAGE + r"(?P<name>[^\s']+)",
        "the distribution of the base image has no package {name}; check `system-packages`",
    ),
    # shadow, src/useradd.c.
    Symptom(
        r"useradd: user '(?P<name>[^']*)' already exists",
        "the base image has a user {name} already, under another number; write another `name` "
        "under `user`, or the `uid` that it has there",
    ),
    # strerror(ENOSPC) of the C library, Rust's and Python's.
    Symptom(r"(?:.*: )?No space left on device.*", _FULL),
)

# moby/buildkit, solver/llbsolver/ops/exec.go; the command is quoted with Go's %q.
_COMMAND = re.compile(
    r"process \"(?P<command>.*)\" did not complete successfully: (?P<how>.*)", re.DOTALL
)
_ADDRESSED = re.compile(r"^ERROR: (?:target \S+: )?(?:failed to solve: )?")
_USERINFO = re.compile(r"//[^/\s@]+@")


# moby/buildkit, issues 6808 and 6821: a build that is cancelled at the wrong moment leaves a record
# in the builder's cache whose files are gone. Every later build that meets it fails.
_LOST_SNAPSHOT = re.compile(r"snapshot \S+ does not exist: not found")


def lost_its_cache(lines: Sequence[str]) -> bool:
    """Return True if the builder's cache is broken, and a build without it may succeed."""
    return any(line.startswith("ERROR: ") and _LOST_SNAPSHOT.search(line) for line in lines)


def explain(
    exit_status: int, failed: FailedStep | None, lines: Sequence[str], log: Path | None
) -> BuildmatrixError:
    """Return the error of a build for the `exit_status` of buildx.

    `failed` is the failed step, if known; `lines` is plain-text output of buildx. The error names
    `log`, if there is one.
    """
    last = next((line for line in reversed(lines) if line.startswith("ERROR: ")), "")
    last = _ADDRESSED.sub("", last)
    output = failed.output if failed else ()
    command = _COMMAND.search(failed.error if failed else last)

    if command and failed and is_scan(failed.name):
        # An unread image is undecided, and no build step is at fault.
        return UndecidedError(
            f"the scanner failed ({_how(command['how'])}), so the image counts as "
            f"unread{_quoted(output)}",
            log=log,
        )
    if failed and failed.name in _BOOTING:
        return ComponentError(
            f"the builder does not answer: {shorten(failed.error, 300)}; {_DOWN}", log=log
        )
    # A command's text is not BuildKit's, and its output is only searched if the command failed.
    errors = command["how"] if command else f"{last}\n{failed.error if failed else ''}"
    for symptoms, text in ((IN_ERRORS, errors), (IN_OUTPUT, "\n".join(output) if command else "")):
        for symptom in symptoms:
            if match := re.search(symptom.pattern, text):
                named = {name: _readable(part or "") for name, part in match.groupdict().items()}
                return symptom.kind(symptom.text.format(_readable(match[0]), **named), log=log)
    if command:
        # Without the quotes and the shell that BuildKit adds.
        words = command["command"].replace(r"\"", '"').replace(r"\n", " ")
        return BuildError(
            f"`{shorten(words.removeprefix('/bin/sh -c '), 160)}` failed "
            f"({_how(command['how'])}){_quoted(output)}",
            log=log,
        )
    if exit_status == RESOURCE_EXHAUSTED:
        return BuildError(f"the builder ran out of something: {last}", log=log)
    cause = shorten(last or (lines[-1] if lines else f"exit status {exit_status}"), 500)
    return BuildError(f"the build failed: {cause}", log=log)


def _readable(text: str) -> str:
    """Return one line without the credentials in URLs."""
    return shorten(_USERINFO.sub("//", text), 300)


def _how(text: str) -> str:
    how = text.splitlines()[0]
    return f"{how}: killed, most likely out of memory" if how == "exit code: 137" else how


def _quoted(output: Sequence[str]) -> str:
    return ":" + "".join(f"\n  | {line}" for line in output[-SHOWN:]) if output else ""


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

    def registry_digests(self, references: Sequence[str]) -> Mapping[str, str]:
        """Return reference → digest in its registry, of the images here that came from one."""
        if not references:
            return {}
        form = "{{json .RepoTags}} {{json .RepoDigests}}"
        # The exit code only says that some are not here.
        answer = self.ask("image", "inspect", "--format", form, *references)
        digests = {}
        for reference in references:
            name = _familiar(reference)
            repository = re.escape(name.rpartition(":")[0])
            line = rf'^.*"{re.escape(name)}".* \[.*"{repository}@(sha256:[0-9a-f]{{64}})"'
            if digest := re.search(line, answer.stdout, re.MULTILINE):
                digests[reference] = digest[1]
        return digests

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
