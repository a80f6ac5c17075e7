"""Images and containers of a Docker daemon, through the Docker SDK.

The SDK is slow to import: whoever needs this module imports it on first use. All imports of the SDK
stand at its top, so that threads which get here at once wait for each other; imports spread over
functions met half-made modules.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import docker
import requests
from docker import DockerClient
from docker.errors import APIError, ImageNotFound
from docker.models.containers import Container
from docker.types import DeviceRequest, LogConfig

from buildmatrix.engines.docker.ahead import read_ahead
from buildmatrix.engines.model import NO_DEVICES, DeviceAccess, ImageFacts, RunResult
from buildmatrix.engines.text import plain
from buildmatrix.errors import BuildError, ComponentError, Interrupted, UndecidedError

#: Bounds of a container that runs a command of the user's: memory in bytes, processes.
MEMORY = 8 << 30
PROCESSES = 4096
#: Bytes of output that are kept, the last ones.
OUTPUT = 1 << 20
#: Seconds for the daemon to answer.
_PATIENCE = 60
#: Bytes of an exported image that are taken at once.
_CHUNK = 1 << 20
#: Seconds between two looks at a running container.
_INTERVAL = 0.1


@contextmanager
def _client(host: str, environment: Mapping[str, str]) -> Iterator[DockerClient]:
    try:
        options = docker.utils.kwargs_from_env(environment=dict(environment))
        options["base_url"] = host
        ssh = host.startswith("ssh://")
        client = docker.DockerClient(
            **options, version="auto", timeout=_PATIENCE, use_ssh_client=ssh
        )
        with contextlib.closing(client):
            yield client
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise ComponentError(
            f"the Docker daemon at {host} failed: {_cause(error)}; {_remedy(error)}"
        ) from error


def _remedy(error: BaseException) -> str:
    """What to do about a daemon that failed."""
    if any(isinstance(cause, PermissionError) for cause in _causes(error)):
        return (
            "this user may not use it: run as root, or as a member of the group that owns the "
            "socket (`sudo usermod -aG docker $USER`, then log in again)"
        )
    return "see that it runs"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and those below it."""
    below: BaseException | None = error
    while below is not None:
        yield below
        below = below.__cause__ or below.__context__


def _cause(error: BaseException) -> str:
    """What the system said at the bottom of an error, or its own words where it said nothing.

    requests and urllib3 put the errors below theirs into their texts, as Python shows them.
    """
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror[:1].lower() + cause.strerror[1:]
    if isinstance(error, requests.Timeout):
        return f"it gave no answer in {_PATIENCE} s"
    if isinstance(error, requests.ConnectionError | requests.exceptions.ChunkedEncodingError):
        return "it ended the connection"
    return str(error)


def inspect(host: str, environment: Mapping[str, str], reference: str) -> ImageFacts | None:
    """The facts of an image that the daemon has, or None."""
    with _client(host, environment) as client:
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


def unreachable(
    host: str, environment: Mapping[str, str], references: Sequence[str]
) -> Mapping[str, str]:
    """Reference → why the daemon cannot reach its registry; each registry is asked once.

    A registry that knows no such image, or refuses to say, was reached: the daemon tells both from
    the rest by the status of its answer (Docker Engine API, `GET /distribution/{name}/json`).
    """
    reasons: dict[str, str] = {}
    with _client(host, environment) as client:
        for reference in {_registry(name): name for name in reversed(references)}.values():
            try:
                client.api.inspect_distribution(reference)
            except APIError as error:
                if error.is_server_error():
                    reasons[reference] = plain(str(error.explanation or error)).strip()
    return reasons


def _registry(reference: str) -> str:
    """The host in a reference; empty for the daemon's default (distribution/reference)."""
    host, slash, _ = reference.partition("/")
    return host if slash and ("." in host or ":" in host or host == "localhost") else ""


@contextmanager
def export(
    host: str, environment: Mapping[str, str], reference: str, cancelled: Callable[[], bool]
) -> Iterator[Iterator[bytes]]:
    """The archive that `docker save` would write, piece by piece.

    The pieces raise `Interrupted` as soon as `cancelled` says so.
    """
    with _client(host, environment) as client:

        def chunks() -> Iterator[bytes]:
            yield from client.images.get(reference).save(chunk_size=_CHUNK)

        try:
            # Also what comes before the first piece: a daemon may hang there.
            with contextlib.closing(read_ahead(chunks(), cancelled)) as ahead:
                yield ahead
        except ImageNotFound as error:
            raise UndecidedError(f"there is no image {reference} on this machine") from error


def run(
    host: str,
    environment: Mapping[str, str],
    reference: str,
    command: Sequence[str],
    timeout_s: float,
    cancelled: Callable[[], bool],
    devices: DeviceAccess = NO_DEVICES,
) -> RunResult:
    """Run exactly `command` in a container that has `devices` alone: no network, no writes.

    The image's entry point is set aside. The root file system is read-only; `/tmp` is a file
    system in memory, and the home folder, where libraries keep caches. Raises `Interrupted` as soon
    as `cancelled` says so.
    """
    with _client(host, environment) as client:
        try:
            container = client.containers.create(
                reference,
                entrypoint=[command[0]],
                command=list(command[1:]),
                environment={**devices.environment, "HOME": "/tmp"},  # noqa: S108 - inside
                network_mode="none",
                read_only=True,
                # Kernels that are compiled in the first call are loaded from there.
                tmpfs={"/tmp": "mode=1777,exec"},  # noqa: S108
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                mem_limit=MEMORY,
                memswap_limit=MEMORY,
                pids_limit=PROCESSES,
                init=True,
                # The daemon's default may be a driver whose logs cannot be read back.
                log_config=LogConfig(type="json-file", config={"max-size": "8m", "max-file": "1"}),
                labels={"org.buildmatrix.smoke": "true"},
                devices=[f"{node}:{node}:rw" for node in devices.nodes],
                group_add=list(devices.groups),
                device_requests=list(_requests(devices)),
                runtime=devices.runtime or None,
            )
        except ImageNotFound as error:
            raise BuildError(f"image {reference} is not on this machine; build it first") from error
        try:
            return _result(container, timeout_s, cancelled)
        finally:
            container.remove(force=True, v=True)


def _requests(devices: DeviceAccess) -> Iterator[DeviceRequest]:
    """As the options `--device VENDOR/CLASS=NAME` and `--gpus all` of `docker run` ask for it."""
    if devices.cdi:
        yield DeviceRequest(driver="cdi", device_ids=list(devices.cdi))
    if devices.gpus:
        yield DeviceRequest(count=-1, capabilities=[["gpu"]])


def _result(container: Container, timeout_s: float, cancelled: Callable[[], bool]) -> RunResult:
    try:
        container.start()
    except APIError as error:
        # The runtime's way to say that the command does not exist (exit codes 126 and 127).
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
