"""`buildmatrix doctor`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator
from functools import partial
from typing import TYPE_CHECKING

import click

from buildmatrix.cli.console import say
from buildmatrix.cli.options import CommandSettings, format_option, load, option
from buildmatrix.cli.output import write_document
from buildmatrix.cli.workspace import workspace
from buildmatrix.engines.choice import DOCKER, OCI
from buildmatrix.errors import (
    EXIT_FINDINGS,
    EXIT_OK,
    ComponentError,
    SpecError,
    UndecidedError,
    most_severe,
)
from buildmatrix.reports.formats import DOCTOR, names

if TYPE_CHECKING:
    from buildmatrix.commands.doctor.node import Node, Sample
    from buildmatrix.reports.doctor import Diagnosis, DoctorLine, State
    from buildmatrix.spec.model import Spec

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
    from buildmatrix.commands.doctor.machine import MachineFiles
    from buildmatrix.commands.doctor.node import format_checks as node_lines
    from buildmatrix.locks.machine_indexes import default_indexes
    from buildmatrix.reports.doctor import DoctorLine
    from buildmatrix.spec.checks import read_data_files

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
    from buildmatrix.commands.doctor import examine, process
    from buildmatrix.commands.doctor.machine import MachineFiles
    from buildmatrix.spec.checks import read_data_files

    line, catalogue = examine.check_catalogue(lambda: read_data_files(settings.file))
    if line.state != "ok":
        yield line
    machine = MachineFiles()
    seen = process.examine(pid, catalogue, machine)
    yield from process.format_process(seen)
    return partial(examine.make_diagnosis, machine, catalogue, None, process=seen)


@click.command("doctor", short_help="Show what this machine can do.")
@option("--builder", metavar="NAME", help="A buildx builder to check instead of the daemon's.")
@option("--offline", is_flag=True, help="Do not contact package indexes.")
@option(
    "--process",
    "pid",
    type=click.IntRange(min=1),
    metavar="PID",
    help="Show only which vendors' libraries a process has mapped.",
)
@option(
    "--interval",
    type=click.FloatRange(0, 60),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks at counters; 0: do not look at them.",
)
@option(
    "--strict",
    is_flag=True,
    help="Fail where a check of the machine is `partly` (1) or `unknown` (3).",
)
@format_option("format_", names(DOCTOR), "json has what `node-classes` reads of a machine.")
@click.pass_obj
def command(
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
