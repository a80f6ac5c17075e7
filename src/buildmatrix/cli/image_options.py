"""Options of the commands that read an image, whoever has it."""

from __future__ import annotations

from buildmatrix.cli.options import option

platform_option = option(
    "--platform",
    metavar="OS/ARCH",
    help="Of an image for several platforms: which one is meant.  [default: this machine's]",
)

tables_option = option(
    "--tables",
    is_flag=True,
    help="Of an image in a registry: believe the tables of contents of its layers (eStargz, "
    "zstd:chunked), and read a few ranges in place of the layers.",
)
