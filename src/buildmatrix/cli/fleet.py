"""`buildmatrix fleet`."""

from __future__ import annotations

from pathlib import Path

import click

from buildmatrix.api.fleets import FleetAuditOptions, FleetScanOptions, fleet_audit, fleet_scan
from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.cli.options import add_global_options, option, take
from buildmatrix.cli.output import REPORT_FILE, Output, writes
from buildmatrix.reports.formats import FLEET

_STDOUT = Path("-")
_all_option = option("--all", "every", is_flag=True, help="Do not shorten lists.")


@click.group("fleet")
def fleet_command() -> None:
    """Judge everything that an organization has, each layer once, on one machine or many."""


@fleet_command.command("scan", short_help="Judge the images of registries, lists and clusters.")
@take(FleetScanOptions, fail_on=writes(FLEET, REPORT_FILE), last=_all_option)
def scan(options: FleetScanOptions, /, every: bool, to: Output) -> int:
    """Judge every image of a fleet for the backend of its node class, its label or its name.

    FLEET is registry:HOST/NAME[:TAG] with patterns (`registry:HOST/team/*`), a file of references,
    or pods:FILE of `kubectl get pods -A -o json`. Node classes are those of the specification.
    Nothing of an image is executed. What a run has read, the next one does not read again.
    """
    return _check_places(options, to).write(fleet_scan(options), every=every)


@fleet_command.command("audit", short_help="Judge the locks and requirements of repositories.")
@take(FleetAuditOptions, fail_on=writes(FLEET, REPORT_FILE), last=_all_option)
def audit(options: FleetAuditOptions, /, every: bool, to: Output) -> int:
    """Judge what repositories would install, each at its default branch, before it is installed.

    REPOSITORIES are clones or bare repositories on this machine, folders of them, or a file with
    their paths. Nothing is fetched, checked out or run. Equal files are judged once.
    """
    return _check_places(options, to).write(fleet_audit(options), every=every)


def _check_places(options: FleetScanOptions | FleetAuditOptions, to: Output) -> Output:
    """Return the requested documents other than lines on standard output. Raises `UsageError`."""
    if options.workers and options.scheduler:
        raise UsageError("--workers are of this machine, and --scheduler has its own; drop one")
    if options.lines != _STDOUT:
        return to
    for text in click.get_current_context().params["formats"]:
        if "=" not in text and to.file in (None, _STDOUT):
            raise UsageError(
                f"--lines - and --format {text} both go to standard output; name a file"
            )
    pairs = [pair for pair in to.pairs if (pair[1] or to.file) not in (None, _STDOUT)]
    return replace(to, pairs=pairs)


for _name, _command in list(fleet_command.commands.items()):
    fleet_command.commands[_name] = add_global_options(_command)
