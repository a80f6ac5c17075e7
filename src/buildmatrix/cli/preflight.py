"""`buildmatrix preflight`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import click

from buildmatrix.cli import completing
from buildmatrix.cli.options import CommandSettings, formats_option, option
from buildmatrix.cli.output import check_formats, write_document
from buildmatrix.cli.surroundings import engine_option
from buildmatrix.cli.workspace import workspace
from buildmatrix.reports.formats import PREFLIGHT, names
from buildmatrix.reports.preflight.model import RUNGS, Rung

FORMATS = names(PREFLIGHT)


@click.command("preflight", short_help="Import, compute and warm up in images that were built.")
@click.argument("name", metavar="TARGET|IMAGE", shell_complete=completing.targets)
@option(
    "--level",
    type=click.Choice(RUNGS),
    default=RUNGS[-1],
    show_default=True,
    help="How far to climb: this rung, and all below it.",
)
@option("--node-class", metavar="NAME", help="This machine is one of that node class.")
@option("--backend", metavar="NAME", help="Of an image that does not say for which it is.")
@option("--strict", is_flag=True, help="A rung that did not run leaves the run undecided.")
@formats_option(FORMATS)
@option("-o", "--output", type=click.Path(path_type=Path), help="File; - is stdout.")
@engine_option
@click.pass_obj
def command(
    settings: CommandSettings,
    /,
    name: str,
    level: Rung,
    node_class: str | None,
    backend: str | None,
    strict: bool,
    formats: tuple[str, ...],
    output: Path | None,
    engine: str,
) -> int:
    """Climb a ladder with the image of TARGET, or with any IMAGE on this machine.

    static < import < device < compute < collective < batch < memory < cold-start. Each rung runs in
    containers without network, with a read-only root, as the image's user, bounded in time and
    memory. What this machine cannot run is said, with the node classes that have to; it never
    counts as passed. TARGET may be a pattern.
    """
    from datetime import date

    from buildmatrix.commands.preflight.run import exit_code, preflight
    from buildmatrix.commands.preflight.subject import of_image, of_targets
    from buildmatrix.errors import UsageError

    pairs = check_formats(formats, output, FORMATS)
    here = workspace(settings, engine=engine)
    spec = here.declared()()
    is_target = spec is not None and not (":" in name or "/" in name)
    engines = cache(here.keeper)
    if spec is not None and is_target:
        subjects = of_targets(name, spec, engines, engine)
    else:
        subjects = (of_image(name, backend, spec, engines(engine)),)
    known = {node.name for subject in subjects for node in subject.node_classes}
    if node_class is not None and node_class not in known:
        listed = ", ".join(sorted(known)) or "none"
        raise UsageError(f"--node-class {node_class}: the node classes of {name} are {listed}")
    with here.progress() as display:
        result = preflight(subjects, level, node_class, display, date.today())
    write_document(PREFLIGHT, result, pairs, output)
    return exit_code(result, strict)
