"""`buildmatrix inspect`."""

from __future__ import annotations

from pathlib import Path

import click

from buildmatrix.cli.options import Settings, option, width_and_color, write
from buildmatrix.cli.scan import cache_option, fact_cache
from buildmatrix.errors import EXIT_OK, UndecidedError


@click.command("inspect", short_help="Tell everything that one binary or wheel says.")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE..."
)
@option(
    "--format",
    "format_",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
)
@option("-o", "--output", type=click.Path(path_type=Path), help="File; - is stdout.")
@cache_option
@click.pass_obj
def command(
    _: Settings,
    /,
    files: tuple[Path, ...],
    format_: str,
    output: Path | None,
    no_cache: bool,
) -> int:
    """Tell what each FILE says: an ELF object, a file of device code, or a wheel.

    Headers, needed libraries with the symbols taken from them, device code with its architectures,
    and whose it is. Nothing of it is executed.
    """
    from buildmatrix.catalogue.load import load
    from buildmatrix.inspection import json, table
    from buildmatrix.inspection.look import inspect

    catalogue, cache = load(), fact_cache(no_cache)
    inspections = [inspect(path, catalogue, cache) for path in files]
    if format_ == "json":
        text = json.render(inspections)
    else:
        width, color = width_and_color(output)
        text = table.render(inspections, width=width, color=color)
    write(text, output)
    return UndecidedError.exit_code if any(one.unread for one in inspections) else EXIT_OK
