"""`inspect` and `explore`: contents, as a report and on the screen."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from buildmatrix.base.errors import EXIT_OK, ComponentError, UndecidedError, UsageError
from buildmatrix.cli import completing
from buildmatrix.cli.options import (
    CommandSettings,
    engine_option,
    format_option,
    image_options,
    load_targets,
    option,
    output_option,
    wheel_options,
    workspace,
)
from buildmatrix.cli.output import write_document
from buildmatrix.cli.progress import set_aside
from buildmatrix.reports.formats import DRAWING, INSPECT, names

if TYPE_CHECKING:
    from buildmatrix.matrix.model import Target
    from buildmatrix.reports.drawings import Drawing
    from buildmatrix.reports.inspect import Inspection, Machines
    from buildmatrix.sources.model import ReadingOptions, Source


#: Formats that only the graph of libraries has.
_DRAWN = [name for name in names(DRAWING) if name not in names(INSPECT)]


@click.command("inspect")
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
@option("--graph", is_flag=True, help="With json: the graph of libraries, as in the drawings.")
@output_option()
@option("--select", metavar="TARGET", help="Show which device code is not usable on this target.")
@option("--backend", metavar="NAME", help="For `lock:` and similar sources: the backend.")
@wheel_options
@image_options
@engine_option
@click.pass_obj
def inspect_command(
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
    from buildmatrix.commands.inspect.look import find_machines
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
    from buildmatrix.commands.inspect.look import find_target_machines

    facts = source.facts(options)
    if machines is None and facts.target is not None:
        machines, target = find_target_machines(*facts.target), facts.target[0]
    return inspect_tree(facts.label, facts.inventory, load(facts.catalogue), machines, target)


def _drawn(source: Source, options: ReadingOptions) -> Drawing:
    from buildmatrix.commands.inspect.library_graph import draw_libraries
    from buildmatrix.commands.why.run import load_graph

    graph = load_graph(source, options)
    return draw_libraries(graph.source, graph.graph, graph.evidence)


#: Libraries that it takes some seconds to judge.
_MANY = 5000


@click.command("explore")
@click.argument("source", shell_complete=completing.sources)
@option("--backend", metavar="NAME", help="Backend to judge for; defaults to that of SOURCE.")
@option("--runtime", metavar="VERSION", default="any", help="The backend's version, 12.8 for CUDA.")
@option("--select", metavar="TARGET", help="Judge it as this target of the specification.")
@option("--lock", type=click.Path(path_type=Path), help="Lock from which SOURCE was installed.")
@wheel_options
@image_options
@engine_option
@click.pass_obj
def explore_command(
    settings: CommandSettings,
    /,
    source: str,
    backend: str | None,
    runtime: str,
    select: str | None,
    lock: Path | None,
    deep: bool,
    offline: bool,
    platform: str | None,
    no_cache: bool,
    engine: str,
) -> int:
    """Show SOURCE on the screen: by layer, distribution, library and vendor, the largest first.

    SOURCE is what `scan` and `audit` read, or a target of the specification. It is read and judged
    first; nothing of it is executed. `?` shows the keys.
    """
    _check_terminal()
    from buildmatrix.explore.reading import make_exploration
    from buildmatrix.sources.model import Declared

    declared = None
    if select is not None:
        if backend is not None or runtime != "any":
            raise click.UsageError("--select says the backend and its version; leave those out")
        spec_of_target, targets = load_targets(settings, [select], None)
        if len(targets) > 1:
            raise UsageError(f"--select {select} fits {len(targets)} targets; name one of them")
        declared = spec_of_target, targets[0]
    here = workspace(settings, engine=engine, no_cache=no_cache, offline=offline)
    spec = here.declared()
    parsed = here.parse(source, "explore", spec)
    with here.reading(platform=platform, deep=deep) as usual:
        facts = parsed.facts(replace(usual, spec=spec, lock=lock, select=select, backend=backend))
    with ExitStack() as stack:
        libraries = len(facts.inventory.binaries)
        if libraries >= _MANY:
            display = stack.enter_context(here.progress())
            display.step(facts.label, f"judging {libraries} libraries")
        exploration = make_exploration(
            facts,
            backend=backend,
            runtime=runtime,
            today=date.today(),
            declared=declared,
            of_wheels=isinstance(parsed, Declared),
            data_files=here.data_files(),
        )
    from buildmatrix.explore.app import ExploreApp

    app = ExploreApp(exploration)
    # What was read stays until the end. A collection that walks through all of it, which takes half
    # a second for 100,000 libraries, would come between a key and the screen.
    gc.freeze()
    with set_aside():
        app.run(mouse=False)
    return EXIT_OK


def _check_terminal() -> None:
    """Raise `UsageError` without a terminal, and `ComponentError` without Textual."""
    from importlib.util import find_spec

    is_screen = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    if not is_screen or os.environ.get("TERM", "") in ("", "dumb"):
        raise UsageError(
            "explore needs a terminal; `buildmatrix inspect` prints what a SOURCE holds, and "
            "`buildmatrix scan` judges it"
        )
    if find_spec("textual") is None:
        raise ComponentError(
            "explore needs Textual, which is not installed: pip install 'buildmatrix[explore]'"
        )
