"""`buildmatrix generate`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from buildmatrix.cli.bases import report_bases
from buildmatrix.cli.console import complain, say
from buildmatrix.cli.options import CommandSettings, load_targets, option, selection_options
from buildmatrix.errors import UsageError

if TYPE_CHECKING:
    from buildmatrix.locks.model import Lock


@click.command("generate", short_help="Write Dockerfiles and docker-bake.json.")
@selection_options
@option("--check", is_flag=True, help="Write nothing; exit 1 when files are out of date.")
@option(
    "-o", "--folder", "--output", "output", type=click.Path(path_type=Path), help="Where to write."
)
@click.pass_obj
def command(
    settings: CommandSettings,
    globs: tuple[str, ...],
    subset: str | None,
    check: bool,
    output: Path | None,
) -> int:
    """Write one Dockerfile per target and one docker-bake.json for all of them.

    The same specification and locks give the same bytes.
    """
    from buildmatrix.locks.pylock import read_lock
    from buildmatrix.render.dockerfile import differences, generate, write

    spec, targets = load_targets(settings, globs, subset)
    if output is not None:
        spec = replace(spec, output=output.as_posix())
    locks: dict[str, Lock] = {}
    for target in targets:
        path = spec.root / target.lock
        if not path.is_file():
            raise UsageError(f"{target.id} has no lock at {target.lock}; run `buildmatrix lock`")
        locks[target.id] = read_lock(path)
    files = generate(spec, targets, locks)
    if check:
        changed = differences(spec, files)
        for line in changed:
            say(line)
        return 1 if changed else 0
    write(spec, files)
    if not settings.quiet:
        complain(f"wrote {len(files)} files to {spec.output}")
    return report_bases(spec, targets, quiet=settings.quiet)
