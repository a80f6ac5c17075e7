"""`buildmatrix init`."""

from __future__ import annotations

from pathlib import Path

import click

from buildmatrix.cli.console import complain
from buildmatrix.cli.options import CommandSettings, option
from buildmatrix.errors import UsageError

#: Looked for in this order when no input is named.
INPUTS = ("requirements.in", "requirements.txt", "pyproject.toml")


@click.command("init", short_help="Write a first buildmatrix.toml.")
@click.argument("inputs", nargs=-1, type=click.Path(path_type=Path))
@option(
    "--backend",
    "backends",
    metavar="NAME",
    multiple=True,
    help="Write it for this backend of the catalogue. May be given more than once.",
)
@option("--force", is_flag=True, help="Replace a specification that exists.")
@click.pass_obj
def command(
    settings: CommandSettings, inputs: tuple[Path, ...], backends: tuple[str, ...], force: bool
) -> None:
    """Write a first specification from requirements files or pyproject.toml.

    Its comments say why each line is there.
    """
    from buildmatrix.commands.init.first_spec import first_spec

    folder = settings.file.parent
    paths = inputs or tuple(path for name in INPUTS if (path := folder / name).is_file())[:1]
    if not paths:
        raise UsageError(f"nothing to start from: name a requirements file, or write {INPUTS[0]}")
    if settings.file.exists() and not force:
        raise UsageError(f"{settings.file} exists; give --force to replace it")
    settings.file.write_text(first_spec(paths, folder, backends), encoding="utf-8")
    complain(f"wrote {settings.file} from {', '.join(map(str, paths))}")
