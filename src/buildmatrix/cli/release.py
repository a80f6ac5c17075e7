"""`promote`, `verify`, `fleet` and `report`: images in registries, and reports of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from buildmatrix.api import releases
from buildmatrix.api.fleets import FleetAuditOptions, FleetScanOptions, fleet_audit, fleet_scan
from buildmatrix.api.releases import VerifyOptions
from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.cli.options import add_global_options, option, take
from buildmatrix.cli.output import REPORT_FILE, Output, report_output, writes
from buildmatrix.commands.options import AcceptingOptions, CommandOptions, PromoteOptions, argument
from buildmatrix.commands.workspace import CommandResult
from buildmatrix.reports.formats import FLEET, PROMOTE, RUN, VERIFY

#: Standard input or output in place of a file.
STDIO = Path("-")


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


_all_option = option("--all", "every", is_flag=True, help="Do not shorten lists.")


@click.group("fleet")
def fleet_command() -> None:
    """Judge everything that an organization has, each layer once, on one machine or many."""


@fleet_command.command("scan", short_help="Judge the images of registries, lists and clusters.")
@take(FleetScanOptions, fail_on=writes(FLEET, REPORT_FILE), last=_all_option)
def scan_fleet(options: FleetScanOptions, /, every: bool, to: Output) -> int:
    """Judge every image of a fleet for the backend of its node class, its label or its name.

    FLEET is registry:HOST/NAME[:TAG] with patterns (`registry:HOST/team/*`), a file of references,
    or pods:FILE of `kubectl get pods -A -o json`. Node classes are those of the specification.
    Nothing of an image is executed. What a run has read, the next one does not read again.
    """
    return _check_places(options, to).write(fleet_scan(options), every=every)


@fleet_command.command("audit", short_help="Judge the locks and requirements of repositories.")
@take(FleetAuditOptions, fail_on=writes(FLEET, REPORT_FILE), last=_all_option)
def audit_fleet(options: FleetAuditOptions, /, every: bool, to: Output) -> int:
    """Judge what repositories would install, each at its default branch, before it is installed.

    REPOSITORIES are clones or bare repositories on this machine, folders of them, or a file with
    their paths. Nothing is fetched, checked out or run. Equal files are judged once.
    """
    return _check_places(options, to).write(fleet_audit(options), every=every)


def _check_places(options: FleetScanOptions | FleetAuditOptions, to: Output) -> Output:
    """Return the requested documents other than lines on standard output. Raises `UsageError`."""
    if options.workers and options.scheduler:
        raise UsageError("--workers are of this machine, and --scheduler has its own; drop one")
    if options.lines != STDIO:
        return to
    for text in click.get_current_context().params["formats"]:
        if "=" not in text and to.file in (None, STDIO):
            raise UsageError(
                f"--lines - and --format {text} both go to standard output; name a file"
            )
    pairs = [pair for pair in to.pairs if (pair[1] or to.file) not in (None, STDIO)]
    return replace(to, pairs=pairs)


for _name, _command in list(fleet_command.commands.items()):
    fleet_command.commands[_name] = add_global_options(_command)


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
    if options.files.count(STDIO) > 1:
        raise UsageError("- is standard input, which can be read only once")
    report = merge(
        [
            parse(sys.stdin.buffer.read(), "standard input") if path == STDIO else read(path)
            for path in options.files
        ]
    )
    report = accept(report, accepted, fingerprints, date.today(), options.fail_on)
    report = add_gone(report, options.baseline)
    code = exit_code(report, options.fail_on, options.strict)
    return to.write(CommandResult(report, code, RUN, Path()))
