"""`buildmatrix node-classes`."""

from __future__ import annotations

from pathlib import Path

import click

from buildmatrix.cli import completing
from buildmatrix.cli.console import complain, write
from buildmatrix.cli.options import (
    CommandSettings,
    formats_option,
    load,
    output_option,
    with_global_options,
)
from buildmatrix.cli.output import check_formats, write_document
from buildmatrix.errors import EXIT_OK, UsageError
from buildmatrix.reports.formats import NODE_CLASSES, names
from buildmatrix.text import JSON

FORMATS = names(NODE_CLASSES)
_files = click.argument(
    "files", nargs=-1, required=True, metavar="FILE|-...", shell_complete=completing.files
)


@click.group("node-classes", short_help="Write and check the classes of machines.")
def command() -> None:
    """Describe the machines of a cluster, and see whether they are what was written.

    FILE is what `kubectl get nodes -o json` writes, or `buildmatrix doctor --format json` of a
    host; - is standard input.
    """


@command.command("import", short_help="Print [node-class] tables for a list of machines.")
@_files
@output_option
@click.pass_obj
def import_(settings: CommandSettings, /, files: tuple[str, ...], output: Path | None) -> int:
    """Print a [node-class.NAME] table for each kind of machine in FILE.

    Machines of which all the same is said are one class. What labels say that the catalogue does
    not know is named on standard error, and nothing is guessed from it.
    """
    from buildmatrix.catalogue.load import load as load_catalogue
    from buildmatrix.commands.node_classes.read import read_nodes
    from buildmatrix.commands.node_classes.writing import write_tables
    from buildmatrix.spec.checks import read_data_files

    catalogue = load_catalogue(read_data_files(settings.file) if settings.file.is_file() else ())
    text, notes = write_tables(read_nodes(files, catalogue), catalogue)
    # Escapes of JSON are those of TOML.
    write(text, output, JSON)
    for note in notes:
        complain(f"note: {note}")
    return EXIT_OK


@command.command("check", short_help="Compare the node classes with a list of machines.")
@_files
@formats_option(FORMATS)
@output_option
@click.pass_obj
def check(
    settings: CommandSettings,
    /,
    files: tuple[str, ...],
    formats: tuple[str, ...],
    output: Path | None,
) -> int:
    """Compare the node classes of the specification with the machines in FILE.

    0: all are what their class says. 1: some have drifted, a class has no machine, or machines with
    devices are of no class. 3: a machine does not say what its class says of it.
    """
    from buildmatrix.catalogue.load import load as load_catalogue
    from buildmatrix.commands.node_classes.comparing import check_node_classes as compare
    from buildmatrix.commands.node_classes.comparing import exit_code
    from buildmatrix.commands.node_classes.read import read_nodes

    pairs = check_formats(formats, output, FORMATS)
    spec = load(settings)
    if not spec.node_classes:
        raise UsageError(
            f"{spec.path} has no [node-class.NAME]; `buildmatrix node-classes import` writes some"
        )
    catalogue = load_catalogue(spec.catalogue_files)
    held = compare(spec, files, read_nodes(files, catalogue), catalogue)
    write_document(NODE_CLASSES, held, pairs, output)
    return exit_code(held)


for _name, _command in list(command.commands.items()):
    command.commands[_name] = with_global_options(_command)
