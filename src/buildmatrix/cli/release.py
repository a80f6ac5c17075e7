"""`promote` and `verify`: tags of staged images, and their signed verdicts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from buildmatrix.api import releases
from buildmatrix.api.releases import VerifyOptions
from buildmatrix.base.errors import UsageError
from buildmatrix.cli.options import take
from buildmatrix.cli.output import Output, report_output, writes
from buildmatrix.commands.options import AcceptingOptions, CommandOptions, PromoteOptions, argument
from buildmatrix.commands.workspace import CommandResult
from buildmatrix.reports.formats import PROMOTE, RUN, VERIFY


@click.command("promote")
@take(PromoteOptions, fail_on=writes(PROMOTE))
def promote_command(options: PromoteOptions, /, to: Output) -> int:
    """Set all tags of the images that `build --stage` pushed, when every report is green.

    FILES are the reports (--format json) of all machines of a run. Nothing is set while one of
    them is not green, what one of them accepted until a day is over, or one of their images or of
    its verdicts is not in its registry any more. A run that was stopped says which tags it set; run
    it again to go on.
    """
    return to.write(releases.promote(options))


@click.command("verify")
@take(VerifyOptions, last=writes(VERIFY))
def verify_command(options: VerifyOptions, /, to: Output) -> int:
    """Answer whether an image may be admitted: registry:HOST/NAME[:TAG][@DIGEST], or its bare name.

    Its signed verdict is read, and no layer. 0: it is proved to be for the backend, all gates
    passed, and what was accepted still is. 1: it is not, and each reason is told. 3: the registry
    cannot be asked, so it is unknown.
    """
    return to.write(releases.verify(options))


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
    from buildmatrix.reports.run import exit_code
    from buildmatrix.reports.saved import accept, merge, parse, read

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
