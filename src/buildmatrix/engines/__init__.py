"""Engines that build, open and run images, behind one interface (`engines.model`).

`docker` uses buildx and a daemon; `oci` assembles images itself, without daemon or root.
`dockerfile` writes Dockerfiles and the bake file from the targets' locks. A specification's targets
enter; images, their files, exit statuses and logs leave.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from buildmatrix.base.errors import ComponentError, UsageError

if TYPE_CHECKING:
    from buildmatrix.engines.model import Engine

#: Values of `--engine`.
DOCKER, OCI, AUTO = "docker", "oci", "auto"
NAMES = (AUTO, DOCKER, OCI)
#: Prefixes of `--mirror` that are not registries: a layout, an archive (`engines.oci.bases`).
_SAVED = ("oci:", "tar:")


def choose_builder(
    name: str,
    buildx: str | None,
    own: Callable[[], Engine],
    log: Callable[[Literal["warning", "info"], str], None],
) -> Engine:
    """Return the engine that builds. `auto`: Docker if it responds, else our `own`, with a message.

    The message is a warning if Docker is installed, as its user expects the image there. `buildx`:
    the name of a builder, which only Docker has, if any.
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


def choose_image_engine(name: str, own: Callable[[], Engine], images: Path) -> Engine:
    """Return the engine that has the images. `auto`: our `own` if it has `images` and Docker fails.

    If there are no such images, the error of Docker must not be hidden.
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
    """Return the engine for a mirror. Raises `UsageError` if the named engine cannot use it."""
    if not mirror.startswith(_SAVED):
        return name
    path = Path(mirror.partition(":")[2])
    if name == DOCKER:
        raise UsageError(f"--mirror {mirror}: Docker takes base images from registries alone")
    if not path.exists():
        raise UsageError(f"--mirror {mirror}: there is no {path}")
    return OCI


def is_saved(mirror: str) -> bool:
    """Return True if the mirror is a layout or an archive."""
    return mirror.startswith(_SAVED)


def _docker() -> Engine:
    from buildmatrix.engines.docker_engine import DockerEngine

    return DockerEngine()
