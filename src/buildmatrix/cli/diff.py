"""`buildmatrix diff`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from buildmatrix.base.errors import UsageError
from buildmatrix.cli import completing
from buildmatrix.cli.options import (
    CommandSettings,
    formats_option,
    option,
    output_option,
    selection_options,
    workspace,
)
from buildmatrix.cli.output import check_formats, write_result
from buildmatrix.cli.workspace import engine_option, image_options
from buildmatrix.reports.formats import DIFF, names

if TYPE_CHECKING:
    from buildmatrix.judge.acceptance import FailOn


FORMATS = names(DIFF)


@click.command("diff")
@click.argument("sources", nargs=-1, metavar="[BEFORE AFTER]", shell_complete=completing.sources)
@option(
    "--targets",
    "across",
    is_flag=True,
    help="Compare the targets of the specification with each other, instead of two SOURCEs.",
)
@selection_options
@option(
    "--backend",
    metavar="NAME",
    help="Judge both for this backend; defaults to that of images and reports.",
)
@option("--runtime", metavar="VERSION", help="The backend's version, 12.8 for CUDA.")
@option("--python", metavar="VERSION", help="For a lock or requirements: this Python, 3.12.")
@option("--layers", is_flag=True, help="For targets, compare the layers too; exports their images.")
@option("--deep", is_flag=True, help="For locks, read whole wheels.")
@option("--all", "every", is_flag=True, help="List everything.")
@option("--offline", is_flag=True, help="Use caches only.")
@image_options
@formats_option(FORMATS)
@output_option()
@option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note", "never"]),
    default=None,
    help="Lowest severity of a new finding that gives exit code 1.  [default: error]",
)
@option("--waivers", type=click.Path(path_type=Path), help="More [[waive]] tables, in a file.")
@engine_option
@click.pass_obj
def diff_command(
    settings: CommandSettings,
    /,
    sources: tuple[str, ...],
    across: bool,
    globs: tuple[str, ...],
    subset: str | None,
    backend: str | None,
    runtime: str | None,
    python: str | None,
    layers: bool,
    deep: bool,
    every: bool,
    offline: bool,
    engine: str,
    platform: str | None,
    no_cache: bool,
    formats: tuple[str, ...],
    output: Path | None,
    fail_on: FailOn | None,
    waivers: Path | None,
) -> int:
    """Show the differences between BEFORE and AFTER, and fail if a finding is new.

    Each is an image, a saved image, a folder, a wheel, a lock, requirements, a target that was
    built, or a saved report: what `scan` and `audit` read, `target:ID` and `report:FILE`. Nothing
    of it is executed.

    With --targets: which distributions differ in version between the targets of the specification,
    or of one SOURCE between backends, without a reason.
    """
    from buildmatrix.api import questions

    pairs = check_formats(formats, output, FORMATS)
    here = workspace(settings, engine=engine, no_cache=no_cache, offline=offline)
    if across:
        if len(sources) > 1:
            raise UsageError(
                "diff --targets compares targets with each other: name one SOURCE or none, not "
                f"{len(sources)}"
            )
        drifts = questions.drift(
            *sources,
            backend=backend,
            select=globs,
            subset=subset,
            python=python,
            fail_on=fail_on or "error",
            workspace=here,
        )
        return write_result(drifts, pairs, output, every=every)
    if len(sources) != 2:
        raise UsageError(
            f"diff compares two things, and {len(sources) or 'none'} "
            f"{'is' if len(sources) == 1 else 'are'} named: write `buildmatrix diff BEFORE AFTER`, "
            "or `buildmatrix diff --targets` for the targets of the specification"
        )
    if subset is not None:
        raise UsageError("--subset belongs to --targets; choose targets of a report with --select")
    comparison = questions.diff(
        *sources,
        backend=backend,
        runtime=runtime,
        python=python,
        select=globs,
        layers=layers,
        deep=deep,
        platform=platform,
        fail_on=fail_on,
        waivers=waivers,
        workspace=here,
    )
    return write_result(comparison, pairs, output, every=every)
