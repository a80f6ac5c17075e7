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
@option("--offline", is_flag=True, help="Ask no index what requires torch, and no registry.")
@click.pass_obj
def command(
    settings: CommandSettings,
    inputs: tuple[Path, ...],
    backends: tuple[str, ...],
    force: bool,
    offline: bool,
) -> None:
    """Write a first specification from a lock, requirements files or pyproject.toml.

    Its comments say why each line is there. A lock that the project has is installed as it is.
    """
    from buildmatrix.commands.init.first_spec import first_spec
    from buildmatrix.commands.init.locked import divide_inputs, find_locks
    from buildmatrix.commands.init.sections import Answers

    folder = settings.file.parent
    if inputs:
        locks, others = divide_inputs(inputs)
    else:
        locks = find_locks(folder)
        named = INPUTS[2:] if locks else INPUTS
        others = tuple(path for name in named if (path := folder / name).is_file())[:1]
    if locks and not any(path.name == INPUTS[2] for path in others):
        others += tuple(path for path in (folder / INPUTS[2],) if path.is_file())
    if not (locks or others):
        raise UsageError(f"nothing to start from: name a requirements file, or write {INPUTS[0]}")
    if settings.file.exists() and not force:
        raise UsageError(f"{settings.file} exists; give --force to replace it")
    if offline:
        text = first_spec(others, folder, backends, locks=locks, answers=Answers(torch=None))
    else:
        from buildmatrix.commands.init.asking import Digests
        from buildmatrix.commands.init.first_spec import resolved_torch

        with Digests() as digests:
            torch = "" if locks else resolved_torch(others, folder)
            answers = Answers(torch, digests.of)
            text = first_spec(others, folder, backends, locks=locks, answers=answers)
    settings.file.write_text(text, encoding="utf-8")
    complain(f"wrote {settings.file} from {', '.join(map(str, (*locks, *others)))}")
    file = "" if settings.file == Path("buildmatrix.toml") else f" -f {settings.file}"
    complain(f"next: buildmatrix{file} build")
