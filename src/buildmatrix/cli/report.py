"""`buildmatrix report`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from buildmatrix.base.errors import UsageError
from buildmatrix.cli.options import take
from buildmatrix.cli.output import Output, report_output
from buildmatrix.commands.options import AcceptingOptions, CommandOptions, argument
from buildmatrix.commands.workspace import CommandResult
from buildmatrix.reports.formats import RUN

STDIN = Path("-")


@dataclass(frozen=True, kw_only=True)
class RenderOptions(CommandOptions, AcceptingOptions):
    """Options of `report`."""

    files: Sequence[Path] = field(
        metadata=argument("reports that `--format json` wrote", nargs=-1, required=True)
    )


@click.command("report")
@take(RenderOptions, fail_on=report_output)
def report_command(options: RenderOptions, /, to: Output) -> int:
    """Render reports that `--format json` wrote; several become one. `-` is standard input.

    The exit code is that of the findings and gates in them. Waivers and a baseline that are given
    here count beside those of the run.
    """
    from datetime import date

    from buildmatrix.api.judging import add_gone, known_findings, more_waivers
    from buildmatrix.reports.run.model import exit_code
    from buildmatrix.reports.run.saved import accept, merge, parse, read

    accepted, fingerprints = more_waivers(options.waivers, None), known_findings(options.baseline)
    if options.files.count(STDIN) > 1:
        raise UsageError("- is standard input, which can be read only once")
    report = merge(
        [
            parse(sys.stdin.buffer.read(), "standard input") if path == STDIN else read(path)
            for path in options.files
        ]
    )
    report = accept(report, accepted, fingerprints, date.today(), options.fail_on)
    report = add_gone(report, options.baseline)
    code = exit_code(report, options.fail_on, options.strict)
    return to.write(CommandResult(report, code, RUN, Path()))
