"""`buildmatrix doctor`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from functools import partial
from typing import TYPE_CHECKING

import click

from buildmatrix.cli.console import say
from buildmatrix.cli.options import CommandSettings, format_option, load, option
from buildmatrix.cli.output import write_document
from buildmatrix.cli.workspace import workspace
from buildmatrix.engines.choice import DOCKER, OCI
from buildmatrix.errors import EXIT_OK, ComponentError, SpecError, UndecidedError, most_severe
from buildmatrix.reports.formats import DOCTOR, names

if TYPE_CHECKING:
    from buildmatrix.reports.doctor.model import Diagnosis, DoctorLine, State
    from buildmatrix.spec.model import Spec

#: What a state says about the runs to come. Devices and disks decide nothing: no command needs a
#: device, and what is little for one project is plenty for another.
_CODES: dict[State, int] = {
    "missing": ComponentError.exit_code,
    "wrong": SpecError.exit_code,
    "unknown": UndecidedError.exit_code,
}


def _lines(
    settings: CommandSettings, builder: str | None, offline: bool
) -> Generator[DoctorLine, None, Callable[[Collection[DoctorLine]], Diagnosis]]:
    """Each thing that is checked, as soon as it is known; then what makes a document of them."""
    from buildmatrix.commands.doctor import examine
    from buildmatrix.commands.doctor.machine import MachineFiles
    from buildmatrix.locks.machine_indexes import default_indexes
    from buildmatrix.reports.doctor.model import DoctorLine
    from buildmatrix.spec.paths import read_data_files

    here = workspace(settings)
    lines, facilities = examine.engine_lines(here.builder(DOCKER), here.builder(OCI), builder)
    yield from lines
    yield examine.resolver_line()

    line, catalogue = examine.catalogue_line(lambda: read_data_files(settings.file))
    yield line

    def specification() -> Spec | None:
        return load(settings) if settings.file.exists() else None

    line, spec = examine.specification_line(specification)
    yield line

    places = {"locks, generated files, state": settings.file.absolute().parent}
    if (folder := here.user_cache().folder) is not None:
        places["cache"] = folder
    if facilities is not None and facilities.folder is not None:
        places["images"] = facilities.folder
    yield from examine.disk_lines(places)

    urls = dict.fromkeys(default_indexes())
    urls |= dict.fromkeys(
        url for target in (spec.targets if spec else ()) for url in target.index.values()
    )
    if offline:
        yield DoctorLine("none", "index", f"{len(urls)} not asked, as --offline was given")
    else:
        yield from examine.index_lines(urls)

    wanted = {target.backend for target in spec.targets} if spec else set()
    machine = MachineFiles()
    yield from examine.device_lines(machine, catalogue, wanted, facilities)
    return partial(examine.diagnosis, machine, catalogue, facilities)


@click.command("doctor", short_help="Show what this machine can do.")
@option("--builder", metavar="NAME", help="A buildx builder to check instead of the daemon's.")
@option("--offline", is_flag=True, help="Do not contact package indexes.")
@format_option("format_", names(DOCTOR), "json has what `node-classes` reads of a machine.")
@click.pass_obj
def command(settings: CommandSettings, /, builder: str | None, offline: bool, format_: str) -> int:
    """Show what this machine can do, and what to install where it cannot.

    No program of a vendor is run: devices and drivers are read from the machine's files. A device
    that is not here is no failure.
    """
    from buildmatrix.reports.doctor.table import line as printed

    lines = []
    checking = _lines(settings, builder or None, offline)
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
    return most_severe([EXIT_OK, *(_CODES.get(line.state, EXIT_OK) for line in lines)])
