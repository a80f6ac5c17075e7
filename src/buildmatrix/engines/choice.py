"""Which engine is meant: one that was named, or the one that this machine has."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from buildmatrix.errors import ComponentError, UsageError

if TYPE_CHECKING:
    from buildmatrix.engines.model import Engine

#: What `--engine` takes.
DOCKER, OCI, AUTO = "docker", "oci", "auto"
NAMES = (AUTO, DOCKER, OCI)
#: What `--mirror` begins with that is no registry: a layout, an archive (`engines.oci.bases`).
_SAVED = ("oci:", "tar:")


def builder(
    name: str,
    buildx: str | None,
    own: Callable[[], Engine],
    log: Callable[[Literal["warning", "info"], str], None],
) -> Engine:
    """Who builds; `auto` is Docker where it answers, else our `own`, and `log` says so.

    A warning where Docker is installed: its user expects the image there. `buildx` is the name of a
    builder that only Docker has, where one was given.
    """
    if name == OCI:
        return own()
    docker = _docker()
    if name == AUTO and buildx is None:
        try:
            docker.check()
        except ComponentError as error:
            log(
                "warning" if shutil.which("docker") else "info",
                f"engine {OCI}, without Docker: {error.message}",
            )
            return own()
    return docker


def keeper(name: str, own: Callable[[], Engine], images: Path) -> Engine:
    """Whose images are read; `auto` is our `own` only where that has `images`, and Docker not.

    What was never built without Docker is no reason to hide that Docker does not answer.
    """
    if name == OCI:
        return own()
    docker = _docker()
    if name == AUTO and (images / "index.json").is_file():
        try:
            docker.check()
        except ComponentError:
            return own()
    return docker


def engine_for_mirror(name: str, mirror: str) -> str:
    """The engine that takes base images from there. Raises `UsageError` where that one cannot."""
    if not mirror.startswith(_SAVED):
        return name
    path = Path(mirror.partition(":")[2])
    if name == DOCKER:
        raise UsageError(f"--mirror {mirror}: Docker takes base images from registries alone")
    if not path.exists():
        raise UsageError(f"--mirror {mirror}: there is no {path}")
    return OCI


def is_saved(mirror: str) -> bool:
    """Whether base images lie in a layout or an archive."""
    return mirror.startswith(_SAVED)


def _docker() -> Engine:
    from buildmatrix.engines.docker.engine import DockerEngine

    return DockerEngine()
