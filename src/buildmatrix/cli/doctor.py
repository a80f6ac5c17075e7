"""`buildmatrix doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from buildmatrix.cli.console import say
from buildmatrix.cli.options import CommandSettings, load, option
from buildmatrix.cli.surroundings import engine
from buildmatrix.engines.choice import DOCKER, OCI
from buildmatrix.errors import EXIT_OK, ComponentError, SpecError, UndecidedError, most_severe
from buildmatrix.text import printable

if TYPE_CHECKING:
    from buildmatrix.doctor.checks import DoctorLine, State
    from buildmatrix.spec.model import Spec

#: What a state says about the runs to come. Devices and disks decide nothing: no command needs a
#: device, and what is little for one project is plenty for another.
_CODES: dict[State, int] = {
    "missing": ComponentError.exit_code,
    "wrong": SpecError.exit_code,
    "unknown": UndecidedError.exit_code,
}
_WIDTH = 8


def _lines(settings: CommandSettings, builder: str | None, offline: bool) -> Iterator[DoctorLine]:
    from buildmatrix.cli.cache import user_cache
    from buildmatrix.doctor import examine
    from buildmatrix.doctor.checks import DoctorLine
    from buildmatrix.doctor.machine import MachineFiles
    from buildmatrix.locks.machine_indexes import default_indexes
    from buildmatrix.spec.paths import read_data_files

    lines, facilities = examine.engine_lines(
        engine(settings, DOCKER), engine(settings, OCI), builder
    )
    yield from lines
    yield examine.resolver_line()

    line, catalogue = examine.catalogue_line(lambda: read_data_files(settings.file))
    yield line

    def specification() -> Spec | None:
        return load(settings) if settings.file.exists() else None

    line, spec = examine.specification_line(specification)
    yield line

    places = {"locks, generated files, state": settings.file.absolute().parent}
    if (folder := user_cache().folder) is not None:
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
    yield from examine.device_lines(MachineFiles(), catalogue, wanted, facilities)


@click.command("doctor", short_help="Show what this machine can do.")
@option("--builder", metavar="NAME", help="A buildx builder to check instead of the daemon's.")
@option("--offline", is_flag=True, help="Do not contact package indexes.")
@click.pass_obj
def command(settings: CommandSettings, /, builder: str | None, offline: bool) -> int:
    """Show what this machine can do, and what to install where it cannot.

    No program of a vendor is run: devices and drivers are read from the machine's files. A device
    that is not here is no failure.
    """
    codes = [EXIT_OK]
    for line in _lines(settings, builder or None, offline):
        say(printable(f"{line.state.ljust(_WIDTH)} {line.subject}: {line.text}"))
        codes.append(_CODES.get(line.state, EXIT_OK))
    return most_severe(codes)
