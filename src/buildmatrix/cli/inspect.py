"""`buildmatrix inspect`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from buildmatrix.cli.cache import fact_cache
from buildmatrix.cli.options import (
    Settings,
    format_option,
    load_targets,
    option,
)
from buildmatrix.cli.output import write_document
from buildmatrix.cli.surroundings import engine, engine_options
from buildmatrix.engines.model import Surroundings
from buildmatrix.errors import EXIT_OK, UndecidedError, UsageError
from buildmatrix.reports.formats import DRAWING, INSPECT, names

if TYPE_CHECKING:
    from buildmatrix.reports.drawings.drawing import Drawing
    from buildmatrix.reports.inspect.model import Inspection, Machines
    from buildmatrix.sources.known import Known, Machine

#: Formats that only the graph of libraries has.
_DRAWN = [name for name in names(DRAWING) if name not in names(INSPECT)]


@click.command("inspect", short_help="Tell what one binary, wheel, image or tree holds.")
@click.argument("sources", nargs=-1, required=True, metavar="FILE|SOURCE...")
@format_option(
    "format_",
    [*names(INSPECT), *_DRAWN],
    "dot, mermaid and svg draw which distribution links whose libraries.",
)
@option("--graph", is_flag=True, help="With json: the graph of libraries, as the drawings have it.")
@option("-o", "--output", type=click.Path(path_type=Path), help="File; - is stdout.")
@option("--select", metavar="TARGET", help="Tell which device code is of no use to this target.")
@option("--backend", metavar="NAME", help="For `lock:` and its like: which backend is meant.")
@option("--deep", is_flag=True, help="For `lock:` and its like: read whole wheels.")
@option("--offline", is_flag=True, help="For `lock:` and its like: use caches only.")
@option("--scanner", metavar="IMAGE", help="Image with a Python 3, in which images are read.")
@option("--no-cache", is_flag=True, help="Read everything again, and remember nothing.")
@engine_options
@click.pass_obj
def command(
    settings: Settings,
    /,
    sources: tuple[str, ...],
    format_: str,
    graph: bool,
    output: Path | None,
    select: str | None,
    backend: str | None,
    deep: bool,
    offline: bool,
    scanner: str | None,
    no_cache: bool,
    around: Surroundings,
) -> int:
    """Tell what each FILE says: an ELF object, a file of device code, or a wheel.

    Headers, needed libraries with the symbols taken from them, device code with its architectures,
    and whose it is. Of a SOURCE of `scan` (an image, a folder) or a target: what it holds by
    vendor, distribution, layer and architecture. Nothing of it is executed.
    """
    from buildmatrix.cli.why import data_files, note, read_on_index, specification
    from buildmatrix.inspect.machines import machines_of
    from buildmatrix.reports.inspect.model import Inspections
    from buildmatrix.sources.kinds import is_declared
    from buildmatrix.sources.known import Machine, known_of

    machine = Machine(
        engine,
        scanner,
        around,
        lambda: fact_cache(no_cache),
        data_files=lambda: data_files(settings),
        note=lambda text: note(settings, text),
    )

    def known(source: str) -> Known:
        if is_declared(source):
            return read_on_index(settings, source, backend, select, offline, deep, no_cache)
        return known_of(source, machine, lambda: specification(settings))

    if graph or format_ in _DRAWN:
        if len(sources) > 1:
            raise UsageError("one picture shows one SOURCE; name only one")
        if format_ not in names(DRAWING):
            raise UsageError("--graph draws: give --format json, dot, mermaid or svg with it")
        write_document(DRAWING, _drawn(known(sources[0])), [(format_, None)], output)
        return EXIT_OK
    machines = (
        None if select is None else machines_of(*load_targets(settings, (select,), None), select)
    )
    inspections = [_inspection(source, machine, known, machines) for source in sources]
    write_document(INSPECT, Inspections(tuple(inspections)), [(format_, None)], output)
    return UndecidedError.exit_code if any(one.unread for one in inspections) else EXIT_OK


def _inspection(
    source: str, machine: Machine, known: Callable[[str], Known], machines: Machines | None
) -> Inspection:
    from buildmatrix.catalogue.load import load
    from buildmatrix.inspect.look import inspect, inspect_tree
    from buildmatrix.sources.kinds import is_declared
    from buildmatrix.sources.known import is_file

    path = None if is_declared(source) else is_file(source)
    if path is not None:
        return inspect(path, load(machine.data_files()), machine.cache(), machines)
    from buildmatrix.inspect.machines import machines_of_target

    it = known(source)
    if machines is None and it.target is not None:
        machines = machines_of_target(*it.target)
    return inspect_tree(it.source, it.read().inventory, load(it.catalogue), machines)


def _drawn(known: Known) -> Drawing:
    from buildmatrix.inspect.library_graph import of_libraries
    from buildmatrix.why.joined import joined

    it = joined(known)
    return of_libraries(it.source, it.graph, it.evidence)
