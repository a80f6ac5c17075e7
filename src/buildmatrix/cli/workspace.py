"""Options about images, engines and this machine."""

from __future__ import annotations

import click

from buildmatrix.cli.options import option, stack_options
from buildmatrix.engines.choice import AUTO, NAMES

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
