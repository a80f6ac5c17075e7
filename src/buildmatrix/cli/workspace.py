"""Options about images, engines and this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from buildmatrix.base.errors import UsageError
from buildmatrix.cli.options import option, stack_options
from buildmatrix.engines.choice import AUTO, NAMES, engine_for_mirror, is_saved

if TYPE_CHECKING:
    from buildmatrix.engines.model import Surroundings


platform_option = option(
    "--platform",
    metavar="OS/ARCH",
    help="Platform of a multi-platform image.  [default: this machine's]",
)

cache_option = option(
    "--no-cache", is_flag=True, help="Ignore the cache and read everything again."
)

image_options = stack_options(platform_option, cache_option)

wheels_offline_option = option(
    "--offline", is_flag=True, help="For `lock:` and similar sources: use caches only."
)

wheel_options = stack_options(
    option("--deep", is_flag=True, help="For `lock:` and similar sources: read whole wheels."),
    wheels_offline_option,
)


# The machine: mirror, network, secrets, builders


engine_option = option(
    "--engine",
    type=click.Choice(NAMES),
    default=AUTO,
    show_default=True,
    help="Who builds and has images: Docker, or buildmatrix itself. auto: Docker where it answers.",
)
_options = stack_options(
    engine_option,
    option(
        "--builder",
        "builders",
        multiple=True,
        metavar="NAME",
        help="A buildx builder, or the daemon of a Docker context; several share the targets.",
    ),
    option(
        "--builder-timeout",
        type=click.FloatRange(min=1),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="Time without output after which a builder is pinged, and to wait for its answer.",
    ),
    option(
        "--mirror",
        metavar="PREFIX",
        default="",
        help="Prefix of every base image; or oci:FOLDER or tar:FILE with the images (engine oci).",
    ),
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
    """The options, as two parameters of the command: `around`, a `Surroundings`, and `builders`."""

    @wraps(command)
    def run(
        *arguments: Any,
        engine: str,
        builders: tuple[str, ...],
        builder_timeout: float,
        mirror: str,
        network: str,
        ca: Path | None,
        netrc: Path | None,
        **others: Any,
    ) -> int:
        around = replace(
            surroundings(mirror, network, ca, netrc, engine), builder_patience=builder_timeout
        )
        for name in builders:
            if builders.count(name) > 1:
                raise UsageError(
                    f"--builder {name} is given twice; --jobs says how many targets it builds at a "
                    "time"
                )
        return command(*arguments, around=around, builders=builders, **others)

    return _options(run)


def surroundings(
    mirror: str,
    network: str,
    ca: Path | None,
    netrc: Path | None,
    engine: str = AUTO,
) -> Surroundings:
    """Check and combine the options."""
    from buildmatrix.engines.model import Surroundings

    engine = engine_for_mirror(engine, mirror)
    is_prefix = mirror.endswith("/") and not any(map(str.isspace, mirror))
    if mirror and not (is_prefix or is_saved(mirror)):
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
        engine=engine,
        mirror=mirror,
        network="" if network == "default" else network,
        secrets={name: path.absolute() for name, path in secrets.items()},
    )
