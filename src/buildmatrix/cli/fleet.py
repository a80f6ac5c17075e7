"""`buildmatrix fleet`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from buildmatrix.base.errors import UsageError
from buildmatrix.cli import completing
from buildmatrix.cli.options import (
    CommandSettings,
    add_global_options,
    option,
    stack_options,
    workspace,
)
from buildmatrix.cli.output import check_formats, result_options, write_result
from buildmatrix.cli.workspace import platform_option
from buildmatrix.reports.formats import FLEET, names

if TYPE_CHECKING:
    from buildmatrix.judge.acceptance import FailOn


FORMATS = names(FLEET)
_STDOUT = Path("-")

_cluster_options = stack_options(
    option(
        "--workers",
        type=click.IntRange(1, 1000),
        metavar="N",
        help="Worker processes on this machine.  [default: one per core]",
    ),
    option(
        "--scheduler",
        metavar="ADDRESS",
        default="",
        help="Dask scheduler to use instead of local workers: tcp://HOST:PORT or tls://...",
    ),
    option(
        "--store",
        metavar="URL",
        default="",
        help="Store of facts, shared by workers and later runs: a folder, s3://, gs://, az://.  "
        "[default: the cache of each machine]",
    ),
)
_report_options = stack_options(
    option(
        "--since",
        type=click.Path(path_type=Path),
        metavar="REPORT",
        help="An earlier report (--format json) to compare with.",
    ),
    option(
        "--lines",
        type=click.Path(path_type=Path),
        help="File for results as JSON Lines, written as they arrive; - is stdout.",
    ),
    result_options(FORMATS),
    option("--all", "every", is_flag=True, help="Do not shorten lists."),
)


@click.group("fleet")
def fleet_command() -> None:
    """Judge everything that an organization has, each layer once, on one machine or many."""


@fleet_command.command("scan", short_help="Judge the images of registries, lists and clusters.")
@click.argument(
    "sources", nargs=-1, required=True, metavar="FLEET...", shell_complete=completing.files
)
@option(
    "--newest",
    type=click.IntRange(1),
    metavar="N",
    help="The newest N images of each repository.  [default: all]",
)
@option("--exclude", multiple=True, metavar="GLOB", help="Skip images by NAME or NAME:TAG.")
@option(
    "--nodes",
    variable="BUILDMATRIX_FLEET_NODES",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Output of `kubectl get nodes -o json`, for pods:.",
)
@option("--backend", metavar="NAME", help="Backend to judge for, if nothing else names one.")
@option(
    "--backend-of",
    multiple=True,
    metavar="GLOB=NAME",
    help="Backend of images whose name matches: '*/rocm-*=rocm'.",
)
@option(
    "--would-run-on",
    multiple=True,
    metavar="CLASS",
    shell_complete=completing.node_classes,
    help="Also check every image against this node class.",
)
@option(
    "--owner-label",
    "owner_labels",
    multiple=True,
    metavar="KEY",
    help="Label of images or pods that names their owner.",
)
@option(
    "--time-limit",
    type=click.IntRange(1),
    metavar="SECONDS",
    help="Time limit per layer and image, which is undecided after that.  [default: 3600]",
)
@platform_option
@_cluster_options
@_report_options
@click.pass_obj
def scan(
    settings: CommandSettings,
    /,
    sources: tuple[str, ...],
    newest: int | None,
    exclude: tuple[str, ...],
    nodes: tuple[Path, ...],
    backend: str | None,
    backend_of: tuple[str, ...],
    would_run_on: tuple[str, ...],
    owner_labels: tuple[str, ...],
    time_limit: int | None,
    platform: str | None,
    workers: int | None,
    scheduler: str,
    store: str,
    since: Path | None,
    lines: Path | None,
    formats: tuple[str, ...],
    output: Path | None,
    fail_on: FailOn,
    strict: bool,
    every: bool,
) -> int:
    """Judge every image of a fleet for the backend of its node class, its label or its name.

    FLEET is registry:HOST/NAME[:TAG] with patterns (`registry:HOST/team/*`), a file of references,
    or pods:FILE of `kubectl get pods -A -o json`. Node classes are those of the specification.
    Nothing of an image is executed. What a run has read, the next one does not read again.
    """
    from buildmatrix.api.fleets import fleet_scan

    pairs = _check_options(formats, output, lines, workers, scheduler)
    result = fleet_scan(
        *sources,
        newest=newest or 0,
        exclude=exclude,
        nodes=nodes,
        backend=backend,
        backend_of=backend_of,
        would_run_on=would_run_on,
        owner_labels=owner_labels,
        platform=platform,
        time_limit=time_limit or 0,
        workers=workers or 0,
        scheduler=scheduler,
        store=store,
        lines=lines,
        since=since,
        fail_on=fail_on,
        strict=strict,
        workspace=workspace(settings),
    )
    return write_result(result, pairs, output, every=every)


@fleet_command.command("audit", short_help="Judge the locks and requirements of repositories.")
@click.argument(
    "sources", nargs=-1, required=True, metavar="REPOSITORIES...", shell_complete=completing.files
)
@option("--backend", metavar="NAME", help="Backend to judge for, if nothing else names one.")
@option(
    "--backend-of",
    multiple=True,
    metavar="GLOB=NAME",
    help="Backend of files whose path matches: '*/rocm/*=rocm'.",
)
@option(
    "--platform",
    metavar="OS/ARCH",
    help="Platform to resolve for.  [default: linux/amd64]",
)
@_cluster_options
@_report_options
@click.pass_obj
def audit(
    settings: CommandSettings,
    /,
    sources: tuple[str, ...],
    backend: str | None,
    backend_of: tuple[str, ...],
    platform: str | None,
    workers: int | None,
    scheduler: str,
    store: str,
    since: Path | None,
    lines: Path | None,
    formats: tuple[str, ...],
    output: Path | None,
    fail_on: FailOn,
    strict: bool,
    every: bool,
) -> int:
    """Judge what repositories would install, each at its default branch, before it is installed.

    REPOSITORIES are clones or bare repositories on this machine, folders of them, or a file with
    their paths. Nothing is fetched, checked out or run. Equal files are judged once.
    """
    from buildmatrix.api.fleets import fleet_audit

    pairs = _check_options(formats, output, lines, workers, scheduler)
    result = fleet_audit(
        *sources,
        backend=backend,
        backend_of=backend_of,
        platform=platform,
        workers=workers or 0,
        scheduler=scheduler,
        store=store,
        lines=lines,
        since=since,
        fail_on=fail_on,
        strict=strict,
        workspace=workspace(settings),
    )
    return write_result(result, pairs, output, every=every)


def _check_options(
    formats: tuple[str, ...],
    output: Path | None,
    lines: Path | None,
    workers: int | None,
    scheduler: str,
) -> tuple[tuple[str, Path | None], ...]:
    """Formats with their files. Raises `UsageError`, also for options that exclude each other."""
    pairs = check_formats(formats, output, FORMATS)
    if workers and scheduler:
        raise UsageError("--workers are of this machine, and --scheduler has its own; drop one")
    return _drop_stdout(pairs, formats, output) if lines == _STDOUT else pairs


def _drop_stdout(
    pairs: tuple[tuple[str, Path | None], ...], formats: tuple[str, ...], output: Path | None
) -> tuple[tuple[str, Path | None], ...]:
    """Return the requested documents other than lines on standard output."""
    for text in formats:
        if "=" not in text and output in (None, _STDOUT):
            raise UsageError(
                f"--lines - and --format {text} both go to standard output; name a file"
            )
    return tuple(pair for pair in pairs if (pair[1] or output) not in (None, _STDOUT))


for _name, _command in list(fleet_command.commands.items()):
    fleet_command.commands[_name] = add_global_options(_command)
