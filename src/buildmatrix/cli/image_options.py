"""Options of the commands that read an image, wherever it is."""

from __future__ import annotations

from buildmatrix.cli.options import option, stacked

platform_option = option(
    "--platform",
    metavar="OS/ARCH",
    help="Of an image for several platforms: which one is meant.  [default: this machine's]",
)

cache_option = option(
    "--no-cache", is_flag=True, help="Read everything again, and do not use the cache."
)

image_options = stacked(platform_option, cache_option)

wheel_options = stacked(
    option("--deep", is_flag=True, help="For `lock:` and similar sources: read whole wheels."),
    option("--offline", is_flag=True, help="For `lock:` and similar sources: use caches only."),
)
