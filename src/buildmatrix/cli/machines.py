"""`preflight`, `doctor`, `node-classes` and `cache-key`: machines, and images on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from buildmatrix.api import machines
from buildmatrix.api.machines import CollectOptions, DoctorOptions, PreflightOptions, doctor
from buildmatrix.base.errors import EXIT_OK, UsageError
from buildmatrix.base.text import JSON, STYLED
from buildmatrix.cli import completing
from buildmatrix.cli.console import complain, say, write
from buildmatrix.cli.options import (
    CommandSettings,
    add_global_options,
    engine_option,
    format_option,
    load,
    load_targets,
    option,
    output_option,
    stack_options,
    take,
)
from buildmatrix.cli.output import Output, writes
from buildmatrix.commands.workspace import CommandResult
from buildmatrix.engines import OCI
from buildmatrix.reports.formats import DOCTOR, NODE_CLASSES, PREFLIGHT, names

if TYPE_CHECKING:
    from buildmatrix.reports.preflight import Preflight


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

    spec, targets = load_targets(settings, *globs)
    keys = make_keys(spec, targets, name)
    if style == "json":
        say(json.dumps(make_document(name, keys), indent=2), JSON)
    else:
        say(require_single_key(name, keys), STYLED)


_accept_option = option(
    "--accept",
    type=click.Path(path_type=Path),
    help="Write this preflight as a baseline, if nothing failed.",
)


class _Preflight(click.Command):
    """`preflight TARGET`, and `preflight collect FILE...`: no target is called `collect`."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the arguments of the command that they are for."""
        if args[:1] == ["collect"]:
            other = add_global_options(collect)
            return other.make_context(f"{info_name} collect", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command("preflight", cls=_Preflight)
@take(
    PreflightOptions,
    reference=_accept_option,
    last=stack_options(
        option(
            "--kubernetes",
            is_flag=True,
            help="Only write a Job for each image and node class into the folder -o.",
        ),
        option(
            "--image",
            metavar="NAME@DIGEST",
            help="The target's image in a registry (--kubernetes).",
        ),
        option(
            "--report",
            type=click.Path(path_type=Path),
            help="Report of `build --stage` with the images (--kubernetes).",
        ),
        option(
            "--nodes",
            type=click.IntRange(1, 1000),
            default=1,
            show_default=True,
            help="Machines per node class (--kubernetes).",
        ),
        writes(PREFLIGHT, "File; - is stdout. With --kubernetes a folder."),
        engine_option,
    ),
)
def preflight_command(
    options: PreflightOptions,
    /,
    accept: Path | None,
    kubernetes: bool,
    image: str | None,
    report: Path | None,
    nodes: int,
    to: Output,
) -> int:
    """Climb a ladder with the image of TARGET, any IMAGE here, or the Python of a FOLDER.

    static < import < device < compute < collective < batch < memory < cold-start. Each rung runs in
    containers without network, with a read-only root, as the image's user, bounded in time and
    memory. What this machine cannot run is said, with the node classes that have to; it never
    counts as passed. TARGET may be a pattern.

    `preflight collect FILE...` reads the logs of the pods that --kubernetes describes.
    """
    from datetime import date

    from buildmatrix.base.errors import EXIT_OK, UsageError
    from buildmatrix.preflight.cluster import select_subjects, write_manifests
    from buildmatrix.preflight.environment import PREFIXES
    from buildmatrix.preflight.subject import make_reference_subject

    name, backend, output = options.name, options.backend, to.file
    if kubernetes:
        if click.get_current_context().params["formats"] or output is None or str(output) == "-":
            raise UsageError("--kubernetes writes files: give -o FOLDER, and no --format")
        if options.baseline or accept or options.reference:
            raise UsageError("--kubernetes measures nothing: no --baseline, --accept, --reference")
        if name.partition(":")[0] in PREFIXES:
            raise UsageError(f"--kubernetes runs images, and {name} is a folder; name its image")
        spec, engine = options.workspace.declared()(), options.workspace.image_engine(OCI)
        if spec is not None and machines.is_target(name):
            images = select_subjects(name, spec, engine, image, report)
        elif backend is None or image or report:
            raise UsageError("an image that is not a target needs --backend, and is named once")
        else:
            images = (make_reference_subject(name, backend, spec, engine),)
        today, node = date.today(), options.node_class
        for path in write_manifests(
            images, options.level, node, nodes, output, today, options.repeat
        ):
            say(f"kubectl create -f {path}")
        return EXIT_OK
    if image or report or nodes > 1:
        raise UsageError("--image, --report and --nodes are for --kubernetes")
    # On the command line or around it.
    source = click.get_current_context().get_parameter_source("level")
    is_asked_for = source is not ParameterSource.DEFAULT
    return _write(machines.preflight(options, is_asked_for), to, accept)


def _write(result: CommandResult[Preflight], to: Output, accept: Path | None) -> int:
    from buildmatrix.preflight import baseline

    code = to.write(result)
    if accept is not None:
        baseline.accept(result.document, accept)
    return code


@click.command("collect", short_help="Collect the results of pods into one report.")
@take(CollectOptions, reference=_accept_option, last=writes(PREFLIGHT))
def collect(options: CollectOptions, /, accept: Path | None, to: Output) -> int:
    """Read the logs of pods of `preflight --kubernetes`: what `kubectl logs` prints.

    FILE may hold the logs of many pods, with or without prefixes and timestamps; - is standard
    input, as is nothing. Nodes of one class are joined, and where they contradict each other, that
    is said. What a pod announced and did not get to is undecided.
    """
    return _write(machines.collect(options), to, accept)
