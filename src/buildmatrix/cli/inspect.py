"""`inspect` and `explore`: contents, as a report and on the screen."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from buildmatrix.base.data import replace
from buildmatrix.base.errors import EXIT_OK, ComponentError, UndecidedError, UsageError
from buildmatrix.cli import completing
from buildmatrix.cli.options import (
    CommandSettings,
    cache_option,
    engine_option,
    load_targets,
    option,
    stack_options,
    take,
    wheels_offline_option,
)
from buildmatrix.cli.output import Output, write_document, writes_one
from buildmatrix.cli.progress import set_aside
from buildmatrix.commands.options import CommandOptions, ImageOptions
from buildmatrix.commands.options import option as option_field
from buildmatrix.reports.formats import DRAWING, INSPECT, names

if TYPE_CHECKING:
    from buildmatrix.matrix.model import Target
    from buildmatrix.reports.inspect import Inspection, Machines
    from buildmatrix.sources.model import ReadingOptions, Source


@dataclass(frozen=True, kw_only=True)
class LookOptions(CommandOptions, ImageOptions):
    """Options of both commands, behind their own."""

    deep: bool = option_field(False, "For `lock:` and similar sources: read whole wheels.")


_look_options = take(
    LookOptions, platform=wheels_offline_option, last=stack_options(cache_option, engine_option)
)
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
@writes_one(
    [*names(INSPECT), *_DRAWN],
    "dot and mermaid draw which distribution links whose libraries.",
    option("--graph", is_flag=True, help="With json: the graph of libraries, as in the drawings."),
)
@option("--select", metavar="TARGET", help="Show which device code is not usable on this target.")
@option("--backend", metavar="NAME", help="For `lock:` and similar sources: the backend.")
@_look_options
@click.pass_obj
def inspect_command(
    settings: CommandSettings,
    look: LookOptions,
    /,
    sources: tuple[str, ...],
    graph: bool,
    to: Output,
    select: str | None,
    backend: str | None,
) -> int:
    """Show what each FILE says: an ELF object, a file of device code, or a wheel.

    Headers, needed libraries with the symbols taken from them, device code with its architectures,
    and whose it is. Of a SOURCE of `scan` (an image, a folder) or a target: what it holds by
    vendor, distribution, layer and architecture. Of NAME-VERSION-variants.json of an index: which
    wheel variant the --select target takes. Nothing of it is executed.
    """
    from buildmatrix.commands.inspect import find_machines
    from buildmatrix.reports.inspect import Inspections

    machines = target = None
    is_drawn = graph or to.pairs[0][0] in _DRAWN
    if is_drawn:
        if len(sources) > 1:
            raise UsageError("one picture shows one SOURCE; name only one")
        if to.pairs[0][0] not in names(DRAWING):
            raise UsageError("--graph draws: give --format json, dot or mermaid with it")
    elif select is not None:
        selected = load_targets(settings, select)
        machines, target = find_machines(*selected, select), selected[1][0]
    here = look.workspace
    spec = here.declared()
    parsed = [here.parse(source, "inspect", spec) for source in sources]
    with here.reading(platform=look.platform, deep=look.deep) as usual:
        options = replace(usual, spec=spec, select=select, backend=backend)
        if is_drawn:
            from buildmatrix.commands.library_graph import draw_libraries
            from buildmatrix.commands.why import load_graph

            graph_of = load_graph(parsed[0], options)
            drawing = draw_libraries(graph_of.source, graph_of.graph, graph_of.evidence)
        else:
            inspections = tuple(_inspection(source, options, machines, target) for source in parsed)
    if is_drawn:
        write_document(DRAWING, drawing, to.pairs, to.file)
        return EXIT_OK
    write_document(INSPECT, Inspections(inspections), to.pairs, to.file)
    is_unread = any(inspection.unread for inspection in inspections)
    return UndecidedError.exit_code if is_unread else EXIT_OK


def _inspection(
    source: Source, options: ReadingOptions, machines: Machines | None, target: Target | None
) -> Inspection:
    from buildmatrix.catalogue.load import load
    from buildmatrix.commands.inspect import find_target_machines, inspect, inspect_tree

    if source.single_file is not None:
        catalogue = load(options.data_files())
        return inspect(source.single_file, catalogue, options.cache(), machines, target)
    facts = source.facts(options)
    if machines is None and facts.target is not None:
        machines, target = find_target_machines(*facts.target), facts.target[0]
    return inspect_tree(facts.label, facts.inventory, load(facts.catalogue), machines, target)


#: Libraries that it takes some seconds to judge.
_MANY = 5000


@click.command("explore")
@click.argument("source", shell_complete=completing.sources)
@option("--backend", metavar="NAME", help="Backend to judge for; defaults to that of SOURCE.")
@option("--runtime", metavar="VERSION", default="any", help="The backend's version, 12.8 for CUDA.")
@option("--select", metavar="TARGET", help="Judge it as this target of the specification.")
@option("--lock", type=click.Path(path_type=Path), help="Lock from which SOURCE was installed.")
@_look_options
@click.pass_obj
def explore_command(
    settings: CommandSettings,
    look: LookOptions,
    /,
    source: str,
    backend: str | None,
    runtime: str,
    select: str | None,
    lock: Path | None,
) -> int:
    """Show SOURCE on the screen: by layer, distribution, library and vendor, the largest first.

    SOURCE is what `scan` and `audit` read, or a target of the specification. It is read and judged
    first; nothing of it is executed. `?` shows the keys.
    """
    _check_terminal()
    from buildmatrix.explore.views import make_exploration
    from buildmatrix.sources.model import Declared

    declared = None
    if select is not None:
        if backend is not None or runtime != "any":
            raise click.UsageError("--select says the backend and its version; leave those out")
        spec_of_target, targets = load_targets(settings, select)
        if len(targets) > 1:
            raise UsageError(f"--select {select} fits {len(targets)} targets; name one of them")
        declared = spec_of_target, targets[0]
    here = look.workspace
    spec = here.declared()
    parsed = here.parse(source, "explore", spec)
    with here.reading(platform=look.platform, deep=look.deep) as usual:
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
