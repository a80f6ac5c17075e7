"""`buildmatrix inspect`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from buildmatrix.cli import completing
from buildmatrix.cli.image_options import image_options, wheel_options
from buildmatrix.cli.options import (
    CommandSettings,
    format_option,
    load_targets,
    option,
    output_option,
)
from buildmatrix.cli.output import write_document
from buildmatrix.cli.surroundings import engine_option
from buildmatrix.cli.workspace import workspace
from buildmatrix.errors import EXIT_OK, UndecidedError, UsageError
from buildmatrix.reports.formats import DRAWING, INSPECT, names

if TYPE_CHECKING:
    from buildmatrix.reports.drawings import Drawing
    from buildmatrix.reports.inspect import Inspection, Machines
    from buildmatrix.sources.model import ReadingOptions, Source
    from buildmatrix.spec.model import Target

#: Formats that only the graph of libraries has.
_DRAWN = [name for name in names(DRAWING) if name not in names(INSPECT)]


@click.command("inspect", short_help="Show what one binary, wheel, image or tree holds.")
@click.argument(
    "sources",
    nargs=-1,
    required=True,
    metavar="FILE|SOURCE...",
    shell_complete=completing.sources,
)
@format_option(
    "format_",
    [*names(INSPECT), *_DRAWN],
    "dot and mermaid draw which distribution links whose libraries.",
)
@option("--graph", is_flag=True, help="With json: the graph of libraries, as the drawings have it.")
@output_option
@option("--select", metavar="TARGET", help="Show which device code is not usable on this target.")
@option(
    "--backend", metavar="NAME", help="For `lock:` and similar sources: which backend is meant."
)
@wheel_options
@image_options
@engine_option
@click.pass_obj
def command(
    settings: CommandSettings,
    /,
    sources: tuple[str, ...],
    format_: str,
    graph: bool,
    output: Path | None,
    select: str | None,
    backend: str | None,
    deep: bool,
    offline: bool,
    engine: str,
    platform: str | None,
    no_cache: bool,
) -> int:
    """Show what each FILE says: an ELF object, a file of device code, or a wheel.

    Headers, needed libraries with the symbols taken from them, device code with its architectures,
    and whose it is. Of a SOURCE of `scan` (an image, a folder) or a target: what it holds by
    vendor, distribution, layer and architecture. Of NAME-VERSION-variants.json of an index: which
    wheel variant the --select target takes. Nothing of it is executed.
    """
    from buildmatrix.commands.inspect.machines import find_machines
    from buildmatrix.reports.inspect import Inspections

    machines = target = None
    if graph or format_ in _DRAWN:
        if len(sources) > 1:
            raise UsageError("one picture shows one SOURCE; name only one")
        if format_ not in names(DRAWING):
            raise UsageError("--graph draws: give --format json, dot or mermaid with it")
    elif select is not None:
        selected = load_targets(settings, (select,), None)
        machines, target = find_machines(*selected, select), selected[1][0]
    here = workspace(settings, engine=engine, no_cache=no_cache, offline=offline)
    spec = here.declared()
    parsed = [here.parse(source, "inspect", spec) for source in sources]
    with here.reading(platform=platform, deep=deep) as usual:
        options = replace(usual, spec=spec, select=select, backend=backend)
        if graph or format_ in _DRAWN:
            drawing = _drawn(parsed[0], options)
        else:
            inspections = tuple(_inspection(source, options, machines, target) for source in parsed)
    if graph or format_ in _DRAWN:
        write_document(DRAWING, drawing, [(format_, None)], output)
        return EXIT_OK
    write_document(INSPECT, Inspections(inspections), [(format_, None)], output)
    return (
        UndecidedError.exit_code
        if any(inspection.unread for inspection in inspections)
        else EXIT_OK
    )


def _inspection(
    source: Source, options: ReadingOptions, machines: Machines | None, target: Target | None
) -> Inspection:
    from buildmatrix.catalogue.load import load
    from buildmatrix.commands.inspect.look import inspect, inspect_tree

    if source.single_file is not None:
        catalogue = load(options.data_files())
        return inspect(source.single_file, catalogue, options.cache(), machines, target)
    from buildmatrix.commands.inspect.machines import find_target_machines

    facts = source.facts(options)
    if machines is None and facts.target is not None:
        machines, target = find_target_machines(*facts.target), facts.target[0]
    return inspect_tree(facts.label, facts.inventory, load(facts.catalogue), machines, target)


def _drawn(source: Source, options: ReadingOptions) -> Drawing:
    from buildmatrix.commands.inspect.library_graph import draw_libraries
    from buildmatrix.commands.why.joined import load_graph

    graph = load_graph(source, options)
    return draw_libraries(graph.source, graph.graph, graph.evidence)
