"""Images and containers of a Docker daemon, through the Docker SDK.

The SDK is slow to import, so this module is imported on first use. All imports of the SDK are at
its top, so that concurrent threads wait for each other; imports in functions saw partly initialized
modules.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import docker
import requests
from docker import DockerClient
from docker.errors import APIError, ImageNotFound
from docker.models.containers import Container
from docker.types import DeviceRequest, LogConfig
from msgspec import Struct

from buildmatrix.base.errors import BuildError, ComponentError, Interrupted, UndecidedError
from buildmatrix.base.threads import read_ahead
from buildmatrix.engines.model import DeviceAccess, ImageFacts, RunResult
from buildmatrix.engines.process import plain
from buildmatrix.net.addresses import iter_causes

#: Limits of containers with a user's command: memory in bytes, processes.
MEMORY = 8 << 30
PROCESSES = 4096
#: Bytes of output to keep, from its end.
OUTPUT = 1 << 20
#: Timeout of the daemon in seconds.
_PATIENCE = 60
#: Bytes per read of an exported image, and maximum chunks in memory.
_CHUNK, _HELD = 1 << 20, 8
#: Seconds between checks of a running container.
_INTERVAL = 0.1


def _remedy(error: BaseException) -> str:
    """Return a hint for a failed daemon."""
    if any(isinstance(cause, PermissionError) for cause in iter_causes(error)):
        return (
            "this user may not use it: run as root, or as a member of the group that owns the "
            "socket (`sudo usermod -aG docker $USER`, then log in again)"
        )
    return "see that it runs"


def _cause(error: BaseException) -> str:
    """Return the message of the operating system in an error's causes, else its own message.

    requests and urllib3 include the representations of their causes in their messages.
    """
    for cause in iter_causes(error):
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror[:1].lower() + cause.strerror[1:]
    if isinstance(error, requests.Timeout):
        return f"it gave no answer in {_PATIENCE} s"
    if isinstance(error, requests.ConnectionError | requests.exceptions.ChunkedEncodingError):
        return "it ended the connection"
    return str(error)


class Daemon(Struct, frozen=True):
    """A Docker daemon at `host`; `cancelled` is asked while something lasts."""

    host: str
    environment: Mapping[str, str]
    cancelled: Callable[[], bool] = lambda: False

    @contextmanager
    def client(self) -> Iterator[DockerClient]:
        """Connect to the daemon. Turn its errors into `ComponentError`."""
        try:
            options = docker.utils.kwargs_from_env(environment=dict(self.environment))
            options["base_url"] = self.host
            ssh = self.host.startswith("ssh://")
            client = docker.DockerClient(
                **options, version="auto", timeout=_PATIENCE, use_ssh_client=ssh
            )
            with contextlib.closing(client):
                yield client
        except (docker.errors.DockerException, requests.RequestException) as error:
            is_gone = any(isinstance(cause, FileNotFoundError) for cause in iter_causes(error))
            path = self.environment.get("PATH", os.defpath)
            if is_gone and shutil.which("docker", path=path) is None:
                raise ComponentError(
                    "Docker is not installed: there is no docker command, and nothing at "
                    f"{self.host}; install Docker and start its daemon"
                ) from error
            raise ComponentError(
                f"the Docker daemon at {self.host} failed: {_cause(error)}; {_remedy(error)}"
            ) from error

    def image(self, reference: str) -> ImageFacts | None:
        """Return the facts of an image; None if the daemon does not have it."""
        with self.client() as client:
            try:
                image = client.images.get(reference)
            except ImageNotFound:
                return None
            config = image.attrs.get("Config") or {}
            variables = (entry.partition("=") for entry in config.get("Env") or ())
            history = (
                (str(layer.get("CreatedBy", "")), int(layer.get("Size", 0)))
                for layer in reversed(image.history())
            )
            return ImageFacts(
                digest=image.id,
                environment={name: value for name, _, value in variables},
                labels=dict(config.get("Labels") or {}),
                size=int(image.attrs.get("Size") or 0),
                user=config.get("User") or "",
                history=tuple(history),
                layers=tuple((image.attrs.get("RootFS") or {}).get("Layers") or ()),
            )

    def unreachable(self, references: Sequence[str]) -> Mapping[str, str]:
        """Return reference → reason why its registry is out of reach, with one request each.

        Registries that lack the image or refuse the request are reachable: the daemon responds with
        their status (Docker Engine API, `GET /distribution/{name}/json`).
        """
        reasons: dict[str, str] = {}
        with self.client() as client:
            for reference in {_registry(name): name for name in reversed(references)}.values():
                try:
                    client.api.inspect_distribution(reference)
                except APIError as error:
                    if error.is_server_error():
                        reasons[reference] = plain(str(error.explanation or error)).strip()
        return reasons

    @contextmanager
    def export(self, reference: str) -> Iterator[Iterator[bytes]]:
        """Stream the archive of `docker save`. Reading raises `Interrupted` once cancelled."""
        with self.client() as client:

            def chunks() -> Iterator[bytes]:
                yield from client.images.get(reference).save(chunk_size=_CHUNK)

            def check() -> None:
                if self.cancelled():
                    raise Interrupted("interrupted while an image was read")

            # Includes the request itself: a daemon may hang before the first chunk.
            ahead = read_ahead(chunks(), _HELD, "ahead", check, is_awaited=False)
            try:
                with contextlib.closing(ahead):
                    yield ahead
            except ImageNotFound as error:
                raise UndecidedError(f"there is no image {reference} on this machine") from error

    def run(
        self, reference: str, command: Sequence[str], timeout_s: float, devices: DeviceAccess
    ) -> RunResult:
        """Run exactly `command` in a container with only `devices`: no network, no writes.

        The image's entry point is ignored. The root file system is read-only; `/tmp` and the home
        folder, where libraries have caches, are in memory. Raises `Interrupted` once cancelled.
        """
        with self.client() as client:
            try:
                container = client.containers.create(
                    reference,
                    entrypoint=[command[0]],
                    command=list(command[1:]),
                    environment={**devices.environment, "HOME": "/tmp"},  # noqa: S108 - inside
                    network_mode="none",
                    read_only=True,
                    # Kernels compiled at the first call are loaded from there.
                    tmpfs={"/tmp": "mode=1777,exec"},  # noqa: S108
                    cap_drop=["ALL"],
                    security_opt=["no-new-privileges"],
                    mem_limit=MEMORY,
                    memswap_limit=MEMORY,
                    pids_limit=PROCESSES,
                    init=True,
                    # The daemon's default driver may have unreadable logs.
                    log_config=LogConfig(
                        type="json-file", config={"max-size": "8m", "max-file": "1"}
                    ),
                    labels={"org.buildmatrix.smoke": "true"},
                    devices=[f"{node}:{node}:rw" for node in devices.nodes],
                    group_add=list(devices.groups),
                    device_requests=list(_requests(devices)),
                    runtime=devices.runtime or None,
                )
            except ImageNotFound as error:
                raise BuildError(
                    f"image {reference} is not on this machine; build it first"
                ) from error
            try:
                return _result(container, timeout_s, self.cancelled)
            finally:
                container.remove(force=True, v=True)


def _registry(reference: str) -> str:
    """Return the host of a reference; empty for the daemon's default (distribution/reference)."""
    host, slash, _ = reference.partition("/")
    return host if slash and ("." in host or ":" in host or host == "localhost") else ""


def _requests(devices: DeviceAccess) -> Iterator[DeviceRequest]:
    """Yield requests like `--device VENDOR/CLASS=NAME` and `--gpus all` of `docker run`."""
    if devices.cdi:
        yield DeviceRequest(driver="cdi", device_ids=list(devices.cdi))
    if devices.gpus:
        yield DeviceRequest(count=-1, capabilities=[["gpu"]])


def _result(container: Container, timeout_s: float, cancelled: Callable[[], bool]) -> RunResult:
    try:
        container.start()
    except APIError as error:
        # The runtime reports a missing command like this (exit codes 126 and 127).
        return RunResult(127, str(error.explanation or error), timed_out=False)
    deadline = time.monotonic() + timeout_s
    timed_out = False
    while container.status not in {"exited", "dead"}:
        if cancelled():
            raise Interrupted("interrupted while a smoke command ran")
        if time.monotonic() > deadline:
            timed_out = True
            with contextlib.suppress(APIError):  # It ended by itself meanwhile.
                container.kill()
            break
        time.sleep(_INTERVAL)
        container.reload()
    exit_code = int(container.wait()["StatusCode"])
    tail = b""
    for chunk in container.logs(stream=True, follow=False):
        tail = (tail + chunk)[-OUTPUT:]
    return RunResult(exit_code, plain(tail.decode(errors="replace")), timed_out)
