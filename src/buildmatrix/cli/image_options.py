"""Options of the commands that read an image, whoever has it."""

from __future__ import annotations

from buildmatrix.cli.options import option, stacked

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

#: What these commands took when an engine's image was read in a container of its own. It has no
#: effect any more, and fails nobody's CI.
former_options = stacked(
    *(
        option(flag, hidden=True, expose_value=False)
        for flag in (*("--scanner", "--builder", "--mirror", "--network", "--ca", "--netrc"),)
    )
)
