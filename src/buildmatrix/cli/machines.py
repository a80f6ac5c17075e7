"""`doctor`, `node-classes` and `cache-key`: this machine, and those of a cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Generator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from buildmatrix.base.errors import (
    EXIT_FINDINGS,
    EXIT_OK,
    ComponentError,
    SpecError,
    UndecidedError,
    UsageError,
    most_severe,
)
from buildmatrix.base.text import JSON, STYLED
from buildmatrix.cli import completing
from buildmatrix.cli.console import complain, say, write
from buildmatrix.cli.options import (
    CommandSettings,
    add_global_options,
    format_option,
    formats_option,
    load,
    load_targets,
    option,
    output_option,
    workspace,
)
from buildmatrix.cli.output import check_formats, write_document
from buildmatrix.engines.choice import DOCKER, OCI
from buildmatrix.reports.formats import DOCTOR, NODE_CLASSES, names

if TYPE_CHECKING:
    from buildmatrix.commands.doctor.node import Node, Sample
    from buildmatrix.matrix.model import Spec
    from buildmatrix.reports.doctor import Diagnosis, DoctorLine, State


#: What a state says about the runs to come. Devices and disks decide nothing: no command needs a
#: device, and what is little for one project is plenty for another.
_CODES: dict[State, int] = {
    "missing": ComponentError.exit_code,
    "wrong": SpecError.exit_code,
    "unknown": UndecidedError.exit_code,
}


#: The same for the checks of the node and a process, with --strict.
_STRICT: dict[State, int] = {
    "partly": EXIT_FINDINGS,
    "unknown": UndecidedError.exit_code,
}


def _lines(
    settings: CommandSettings, builder: str | None, offline: bool, interval: float
) -> Generator[DoctorLine, None, Callable[[Collection[DoctorLine]], Diagnosis]]:
    """Each thing that is checked, as soon as it is known; then what makes a document of them."""
    from buildmatrix.commands.doctor import examine
    from buildmatrix.commands.doctor.node import format_checks as node_lines
    from buildmatrix.matrix.checks import read_data_files
    from buildmatrix.net.http.machine_indexes import default_indexes
    from buildmatrix.preflight.machine import MachineFiles
    from buildmatrix.reports.doctor import DoctorLine

    here = workspace(settings)
    lines, facilities = examine.check_engines(here.builder(DOCKER), here.builder(OCI), builder)
    yield from lines
    yield examine.check_resolver()

    line, catalogue = examine.check_catalogue(lambda: read_data_files(settings.file))
    yield line

    machine = MachineFiles()
    node = examine.find_node(machine, catalogue)
    before = node.take_sample(time.monotonic()) if interval else None

    def specification() -> Spec | None:
        return load(settings) if settings.file.exists() else None

    line, spec = examine.check_specification(specification)
    yield line

    places = {"locks, generated files, state": settings.file.absolute().parent}
    if (folder := here.user_cache().folder) is not None:
        places["cache"] = folder
    if facilities is not None and facilities.folder is not None:
        places["images"] = facilities.folder
    yield from examine.check_disks(places)

    urls = dict.fromkeys(default_indexes())
    urls |= dict.fromkeys(
        url for target in (spec.targets if spec else ()) for url in target.index.values()
    )
    if offline:
        yield DoctorLine("none", "index", f"{len(urls)} not asked, as --offline was given")
    else:
        yield from examine.check_indexes(urls)

    wanted = {target.backend for target in spec.targets} if spec else set()
    yield from examine.check_devices(machine, catalogue, wanted, facilities)
    checks = tuple(node.run_checks(_second(node, before, interval)))
    yield from node_lines(checks)
    return partial(examine.make_diagnosis, machine, catalogue, facilities, checks=checks)


def _second(node: Node, before: Sample | None, interval: float) -> tuple[Sample, Sample] | None:
    """Both samples, when at least `interval` seconds have passed since the first."""
    if before is None:
        return None
    time.sleep(max(0.0, before.moment + interval - time.monotonic()))
    return before, node.take_sample(time.monotonic())


def _process(
    settings: CommandSettings, pid: int
) -> Generator[DoctorLine, None, Callable[[Collection[DoctorLine]], Diagnosis]]:
    """Read the libraries that one process has mapped, and nothing else."""
    from buildmatrix.commands.doctor import examine
    from buildmatrix.matrix.checks import read_data_files
    from buildmatrix.preflight.machine import MachineFiles

    line, catalogue = examine.check_catalogue(lambda: read_data_files(settings.file))
    if line.state != "ok":
        yield line
    machine = MachineFiles()
    seen = examine.examine_process(pid, catalogue, machine)
    yield from examine.format_process(seen)
    return partial(examine.make_diagnosis, machine, catalogue, None, process=seen)


@click.command("doctor")
@option("--builder", metavar="NAME", help="A buildx builder to check instead of the daemon's.")
@option("--offline", is_flag=True, help="Do not contact package indexes.")
@option(
    "--process",
    "pid",
    type=click.IntRange(min=1),
    metavar="PID",
    help="Show only the vendor libraries mapped by a process.",
)
@option(
    "--interval",
    type=click.FloatRange(0, 60),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two reads of counters; 0 skips them.",
)
@option(
    "--strict",
    is_flag=True,
    help="Fail if a check of the machine is `partly` (1) or `unknown` (3).",
)
@format_option("format_", names(DOCTOR), "json has what `node-classes` reads of a machine.")
@click.pass_obj
def doctor_command(
    settings: CommandSettings,
    /,
    builder: str | None,
    offline: bool,
    pid: int | None,
    interval: float,
    strict: bool,
    format_: str,
) -> int:
    """Show what this machine can do, and what to install where it cannot.

    No program of a vendor is run: devices and drivers are read from the machine's files. A device
    that is not here is no failure.
    """
    from buildmatrix.reports.doctor import line as printed

    lines = []
    if pid is None:
        checking = _lines(settings, builder or None, offline, interval)
    else:
        checking = _process(settings, pid)
    while True:
        try:
            line = next(checking)
        except StopIteration as end:
            document = end.value
            break
        lines.append(line)
        if format_ == DOCTOR[0].name:
            # An index may take a while: what is known already is shown.
            say(printed(line))
    if format_ != DOCTOR[0].name:
        write_document(DOCTOR, document(lines), [(format_, None)], None)
    return most_severe([EXIT_OK, *(_code(line, strict) for line in lines)])


def _code(line: DoctorLine, strict: bool) -> int:
    """Return the exit code of a line."""
    kind = line.subject.partition(" ")[0]
    if kind not in ("node", "library", "process"):
        return _CODES.get(line.state, EXIT_OK)
    if kind == "process" and line.state == "unknown":
        # Nothing else was asked for.
        return UndecidedError.exit_code
    return _STRICT.get(line.state, EXIT_OK) if strict else EXIT_OK


FORMATS = names(NODE_CLASSES)
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
    from buildmatrix.commands.node_classes.lists import read_nodes, write_tables
    from buildmatrix.matrix.checks import read_data_files

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
@formats_option(FORMATS)
@output_option()
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
    from buildmatrix.commands.node_classes.lists import read_nodes

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
