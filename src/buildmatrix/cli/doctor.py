"""`buildmatrix doctor`."""

from __future__ import annotations

from collections.abc import Callable

import click

from buildmatrix.cli.options import say
from buildmatrix.cli.surroundings import engine
from buildmatrix.errors import BuildmatrixError, ComponentError


def _engine() -> str:
    return engine().check()


def _uv() -> str:
    from buildmatrix.lock.uv import find_uv

    found = find_uv()
    return f"uv {found.version}"


def _catalogue() -> str:
    from buildmatrix.catalogue.load import load

    catalogue = load()
    return f"of {catalogue.date}, backends {', '.join(sorted(catalogue.backends))}"


CHECKS: dict[str, Callable[[], str]] = {"engine": _engine, "resolver": _uv, "catalogue": _catalogue}


@click.command("doctor", short_help="Tell what this machine can do.")
def command() -> int:
    """Tell what this machine can do, and what to install where it cannot."""
    code = 0
    for name, check in CHECKS.items():
        try:
            say(f"ok       {name}: {check()}")
        except BuildmatrixError as error:
            say(f"missing  {name}: {error.message}")
            code = ComponentError.exit_code
    return code
