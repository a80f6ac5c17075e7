"""`buildmatrix doctor`."""

from __future__ import annotations

from collections.abc import Callable

import click

from buildmatrix.cli.options import Settings, say
from buildmatrix.cli.surroundings import engine
from buildmatrix.errors import (
    EXIT_OK,
    BuildmatrixError,
    ComponentError,
    SpecError,
    most_severe,
)


def _engine(_: Settings) -> str:
    return engine().check()


def _uv(_: Settings) -> str:
    from buildmatrix.lock.uv import find_uv

    found = find_uv()
    return f"uv {found.version}"


def _catalogue(settings: Settings) -> str:
    from buildmatrix.catalogue.load import load
    from buildmatrix.spec.data_files import read_data_files

    catalogue = load(read_data_files(settings.file))
    return f"of {catalogue.date}, backends {', '.join(sorted(catalogue.backends))}"


CHECKS: dict[str, Callable[[Settings], str]] = {
    "engine": _engine,
    "resolver": _uv,
    "catalogue": _catalogue,
}


@click.command("doctor", short_help="Tell what this machine can do.")
@click.pass_obj
def command(settings: Settings, /) -> int:
    """Tell what this machine can do, and what to install where it cannot."""
    codes = [EXIT_OK]
    for name, check in CHECKS.items():
        try:
            say(f"ok       {name}: {check(settings)}")
        except SpecError as error:
            say(f"wrong    {name}: {error.message}")
            codes.append(error.exit_code)
        except BuildmatrixError as error:
            say(f"missing  {name}: {error.message}")
            codes.append(ComponentError.exit_code)
    return most_severe(codes)
