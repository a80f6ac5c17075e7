"""Options about the machine that a build is started on: mirror, network, secrets, builder."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from buildmatrix.cli.options import option, stacked
from buildmatrix.engines.model import Engine, Surroundings
from buildmatrix.errors import UsageError

_options = stacked(
    option(
        "--engine",
        type=click.Choice(["auto", "docker"]),
        default="auto",
        show_default=True,
        help="Who builds.",
    ),
    option("--builder", metavar="NAME", help="A buildx builder: local, remote or Kubernetes."),
    option("--mirror", metavar="PREFIX", default="", help="Put before every base image."),
    option(
        "--network",
        type=click.Choice(["", "default", "host", "none"]),
        default="",
        help="Network of the build steps.",
    ),
    option(
        "--ca",
        type=click.Path(path_type=Path),
        help="Certificates that the install step trusts; a secret mount, in no layer.",
    ),
    option(
        "--netrc",
        type=click.Path(path_type=Path),
        help="Index credentials for the install step; a secret mount, in no layer.",
    ),
)


def engine_options(command: Callable[..., int]) -> Callable[..., int]:
    """The options, as one parameter `around` of the command: a `Surroundings`, checked."""

    @wraps(command)
    def run(
        *arguments: Any,
        builder: str | None,
        mirror: str,
        network: str,
        ca: Path | None,
        netrc: Path | None,
        **others: Any,
    ) -> int:
        del others["engine"]  # Whatever it says, there is one so far.
        around = surroundings(mirror, network, ca, netrc, builder)
        return command(*arguments, around=around, **others)

    return _options(run)


def surroundings(
    mirror: str, network: str, ca: Path | None, netrc: Path | None, builder: str | None
) -> Surroundings:
    """What the options say, checked."""
    if mirror and (not mirror.endswith("/") or any(map(str.isspace, mirror))):
        written = "".join(mirror.split()).rstrip("/") or "mirror.example.com"
        raise UsageError(
            f"--mirror {mirror!r} is no prefix of image names; write it without spaces and "
            f"with / at its end: --mirror {written}/"
        )
    secrets = {name: path for name, path in (("ca", ca), ("netrc", netrc)) if path is not None}
    for name, path in secrets.items():
        if not path.is_file():
            raise UsageError(f"--{name} {path}: there is no such file")
    return Surroundings(
        mirror=mirror,
        network="" if network == "default" else network,
        secrets={name: path.absolute() for name, path in secrets.items()},
        builder=builder or None,
    )


def engine() -> Engine:
    """The engine of this machine."""
    from buildmatrix.engines.docker.engine import DockerEngine

    return DockerEngine()
