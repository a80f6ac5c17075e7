"""`buildmatrix promote`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from buildmatrix.cli.options import CommandSettings, formats_option, option, output_option
from buildmatrix.cli.output import check_formats, write_document
from buildmatrix.cli.progress import progress
from buildmatrix.reports.formats import PROMOTE, names

if TYPE_CHECKING:
    from buildmatrix.rules.acceptance import FailOn

FORMATS = names(PROMOTE)


@click.command("promote", short_help="Set the tags of images that were staged.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@formats_option(FORMATS)
@output_option
@option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note", "never"]),
    default="error",
    show_default=True,
    help="The least severe finding that leaves every tag where it is.",
)
@option("--strict", is_flag=True, help="What is undecided leaves every tag where it is.")
@click.pass_obj
def command(
    settings: CommandSettings,
    /,
    files: tuple[Path, ...],
    formats: tuple[str, ...],
    output: Path | None,
    fail_on: FailOn,
    strict: bool,
) -> int:
    """Set all tags of the images that `build --stage` pushed, when every report is green.

    FILES are the reports (--format json) of all machines of a run. Nothing is set while one of
    them is not green, what one of them accepted until a day is over, or one of their images or of
    its verdicts is not in its registry any more. A run that was stopped says which tags it set; run
    it again to go on.
    """
    from buildmatrix.commands.promote.run import promote
    from buildmatrix.registry.client import Registry
    from buildmatrix.reports.run.saved import read

    pairs = check_formats(formats, output, FORMATS)
    reports = [read(path) for path in files]
    with progress(settings) as display, Registry() as registry:
        promotion, code = promote(
            # The day on which `verify` will ask, on all machines.
            registry,
            reports,
            fail_on,
            strict,
            datetime.now(UTC).date(),
            display,
        )
    write_document(PROMOTE, promotion, pairs, output)
    return code
