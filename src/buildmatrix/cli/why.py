"""`buildmatrix why`."""

from __future__ import annotations

from pathlib import Path

import click

from buildmatrix.cli import completing
from buildmatrix.cli.options import (
    CommandSettings,
    format_option,
    option,
    output_option,
    stack_options,
    workspace,
)
from buildmatrix.cli.output import write_result
from buildmatrix.cli.workspace import engine_option, image_options, wheel_options
from buildmatrix.reports.formats import WHY, names

index_options = stack_options(
    option("--backend", metavar="NAME", help="For `lock:` and similar sources: the backend."),
    option("--select", metavar="TARGET", help="For `lock:` and similar sources: the target."),
    wheel_options,
)


@click.command("why")
@click.argument("source", shell_complete=completing.sources)
@click.argument("library", shell_complete=completing.libraries)
@option("--all", "every", is_flag=True, help="Every chain, not only the shortest.")
@format_option("format_", names(WHY), "dot and mermaid draw the chains.")
@output_option()
@option(
    "--symbols/--no-symbols",
    default=None,
    help="Read the symbols that each link is used for.  [default: if files are at hand]",
)
@option(
    "--layers/--no-layers",
    default=None,
    help="Show the layer of a target's image that brought it; exports the image once.  "
    "[default: layers]",
)
@option("--lock", type=click.Path(path_type=Path), help="Lock from which SOURCE was installed.")
@index_options
@image_options
@engine_option
@click.pass_obj
def why_command(
    settings: CommandSettings,
    /,
    source: str,
    library: str,
    every: bool,
    format_: str,
    output: Path | None,
    symbols: bool | None,
    layers: bool | None,
    lock: Path | None,
    backend: str | None,
    select: str | None,
    deep: bool,
    offline: bool,
    engine: str,
    platform: str | None,
    no_cache: bool,
) -> int:
    """Show why LIBRARY is in SOURCE: who asked for it, who links it, where the loader finds it.

    LIBRARY is a soname, a pattern, a path, a distribution, a vendor or a backend: `libcudart`,
    `libcudart.so.12`, `'nvidia-*'`, `cuda`. SOURCE is what `scan` reads, a target of the
    specification, `lock:FILE` or `report:FILE`. Nothing of it is executed.

    The exit code is 0 also where nothing matches: that is an answer. It is 3 where nothing matches
    and something could not be read.
    """
    from buildmatrix.api.questions import why

    result = why(
        source,
        library,
        every=every,
        symbols=symbols,
        layers=layers,
        lock=lock,
        backend=backend,
        select=select,
        deep=deep,
        platform=platform,
        workspace=workspace(settings, engine=engine, no_cache=no_cache, offline=offline),
    )
    return write_result(result, [(format_, None)], output)
