"""`doctor`, `node-classes` and `cache-key`: this machine, and those of a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import click

from buildmatrix.api.machines import DoctorOptions, doctor
from buildmatrix.base.errors import EXIT_OK, UsageError
from buildmatrix.base.text import JSON, STYLED
from buildmatrix.cli import completing
from buildmatrix.cli.console import complain, say, write
from buildmatrix.cli.options import (
    CommandSettings,
    add_global_options,
    format_option,
    load,
    load_targets,
    option,
    output_option,
    take,
)
from buildmatrix.cli.output import Output, writes
from buildmatrix.commands.workspace import CommandResult
from buildmatrix.reports.formats import DOCTOR, NODE_CLASSES, names


@click.command("doctor")
@take(
    DoctorOptions,
    process=option("--offline", is_flag=True, help="Do not contact package indexes."),
    last=format_option(
        "format_", names(DOCTOR), "json has what `node-classes` reads of a machine."
    ),
)
def doctor_command(options: DoctorOptions, /, format_: str) -> int:
    """Show what this machine can do, and what to install where it cannot.

    No program of a vendor is run: devices and drivers are read from the machine's files. A device
    that is not here is no failure.
    """
    from buildmatrix.reports.doctor import line as printed

    if format_ == DOCTOR[0].name:
        # An index may take a while: what is known already is shown.
        return doctor(options, lambda line: say(printed(line))).exit_code
    return Output([(format_, None)], None).write(doctor(options))


_files = click.argument(
    "files", nargs=-1, required=True, metavar="FILE|-...", shell_complete=completing.files
)


@click.group("node-classes")
def node_classes_command() -> None:
    """Describe the machines of a cluster, and see whether they are what was written.

    FILE is what `kubectl get nodes -o json` writes, or `buildmatrix doctor --format json` of a
    host; - is standard input.
    """


@node_classes_command.command(
    "import", short_help="Print [node-class] tables for a list of machines."
)
@_files
@output_option()
@click.pass_obj
def import_(settings: CommandSettings, /, files: tuple[str, ...], output: Path | None) -> int:
    """Print a [node-class.NAME] table for each kind of machine in FILE.

    Machines of which all the same is said are one class. What labels say that the catalogue does
    not know is named on standard error, and nothing is guessed from it.
    """
    from buildmatrix.catalogue.load import load as load_catalogue
    from buildmatrix.commands.node_lists import read_nodes, write_tables
    from buildmatrix.matrix.settings import read_data_files

    catalogue = load_catalogue(read_data_files(settings.file) if settings.file.is_file() else ())
    text, notes = write_tables(read_nodes(files, catalogue), catalogue)
    # Escapes of JSON are those of TOML.
    write(text, output, JSON)
    for note in notes:
        complain(f"note: {note}")
    return EXIT_OK


@node_classes_command.command(
    "check", short_help="Compare the node classes with a list of machines."
)
@_files
@writes(NODE_CLASSES)
@click.pass_obj
def check(settings: CommandSettings, /, files: tuple[str, ...], to: Output) -> int:
    """Compare the node classes of the specification with the machines in FILE.

    0: all are what their class says. 1: some have drifted, a class has no machine, or machines with
    devices are of no class. 3: a machine does not say what its class says of it.
    """
    from buildmatrix.catalogue.load import load as load_catalogue
    from buildmatrix.commands.node_classes import check_node_classes as compare
    from buildmatrix.commands.node_classes import exit_code
    from buildmatrix.commands.node_lists import read_nodes

    spec = load(settings)
    if not spec.node_classes:
        raise UsageError(
            f"{spec.path} has no [node-class.NAME]; `buildmatrix node-classes import` writes some"
        )
    catalogue = load_catalogue(spec.catalogue_files)
    held = compare(spec, files, read_nodes(files, catalogue), catalogue)
    return to.write(CommandResult(held, exit_code(held), NODE_CLASSES))


for _name, _command in list(node_classes_command.commands.items()):
    node_classes_command.commands[_name] = add_global_options(_command)


@click.command("cache-key")
@option("--node-class", "name", required=True, metavar="NAME", help="A class of the file.")
@option(
    "--select",
    "globs",
    multiple=True,
    metavar="GLOB",
    help="Targets by identifier; !GLOB excludes.",
)
@format_option("style", ["text", "json"], "`text` is the key alone.")
@click.pass_obj
def cache_key_command(
    settings: CommandSettings, name: str, globs: tuple[str, ...], style: str
) -> None:
    """Print the key under which engines and kernels are kept that a node class compiles.

    It has what they depend on: device architectures, driver, runtime and frameworks, and is fit for
    a path and for a label of Kubernetes. What the file does not say is an error.
    """
    from buildmatrix.commands.cache_key import make_document, make_keys, require_single_key

    spec, targets = load_targets(settings, globs, None)
    keys = make_keys(spec, targets, name)
    if style == "json":
        say(json.dumps(make_document(name, keys), indent=2), JSON)
    else:
        say(require_single_key(name, keys), STYLED)
